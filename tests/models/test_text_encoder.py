from __future__ import annotations

from pathlib import Path

import numpy as np

from models import text_encoder
from tests.models import checks


def closed_form() -> int:
    """Two tables, and of each of two blocks four projections, two norms and two dense layers."""
    block = 4 * (48 * 48 + 48) + 2 * 2 * 48 + (48 * 96 + 96) + (96 * 48 + 48)
    return 192 * 48 + 24 * 48 + 2 * block + (48 * 10 + 10)


def test_build_has_the_parameters_of_the_closed_form() -> None:
    model = text_encoder.build()
    assert (model.input_shape, model.output_shape) == ((None, 24), (None, 10))
    assert model.inputs[0].dtype == "int32"
    assert model.count_params() == closed_form()
    assert f"{model.count_params():,}" in str(text_encoder.build.__doc__)


def test_build_knows_the_order_of_the_tokens() -> None:
    model = text_encoder.build(width=0.5, depth=0.5, dropout=0.0)
    ids = np.arange(24)[None]
    one, other = (model.predict(x, verbose=0) for x in (ids, ids[:, ::-1].copy()))
    assert np.abs(one - other).max() > 1e-3


def test_build_grows_with_width_and_depth() -> None:
    assert checks.grows(text_encoder.build, (0.25, 0.5, 1.0))
    counts = [text_encoder.build(depth=depth).count_params() for depth in (0.5, 1.0, 1.5)]
    assert counts[1] - counts[0] == counts[2] - counts[1] > 0


def test_build_gives_a_model_that_survives_saving(tmp_path: Path) -> None:
    assert checks.survives_saving(text_encoder.build(width=0.25), tmp_path)
