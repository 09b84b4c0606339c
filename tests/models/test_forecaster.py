from __future__ import annotations

from pathlib import Path

import numpy as np

from models import forecaster
from tests.models import checks


def closed_form() -> int:
    """Kernels of 5 with biases, 18 places of 24 channels, and two dense layers."""
    convolutions = (5 * 16 + 16) + (5 * 16 * 24 + 24) + (5 * 24 * 24 + 24)
    return convolutions + (18 * 24 * 32 + 32) + (32 * 12 + 12)


def test_build_has_the_parameters_of_the_closed_form() -> None:
    model = forecaster.build()
    assert (model.input_shape, model.output_shape) == ((None, 72, 1), (None, 12))
    assert model.count_params() == closed_form()
    assert f"{model.count_params():,}" in str(forecaster.build.__doc__)


def test_build_answers_in_the_unit_of_the_series() -> None:
    model = forecaster.build(center=200.0, scale=3.0)
    model.set_weights([np.zeros_like(weight) for weight in model.get_weights()])
    answer = model.predict(np.full((1, 72, 1), 180.0, np.float32), verbose=0)
    np.testing.assert_array_equal(answer, np.full((1, 12), 200.0, np.float32))


def test_build_grows_with_width() -> None:
    assert checks.grows(forecaster.build, (0.25, 0.5, 1.0))


def test_build_gives_a_model_that_survives_saving(tmp_path: Path) -> None:
    assert checks.survives_saving(forecaster.build(width=0.25), tmp_path)
