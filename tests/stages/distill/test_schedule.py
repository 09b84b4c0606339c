"""Temperature and alpha over the updates."""

from __future__ import annotations

import pytest
import tensorflow as tf

from shrink.stages.distill.config import Ramp
from shrink.stages.distill.objective import value_at


@pytest.mark.parametrize(
    ("shape", "progress", "expected"),
    [
        ("linear", 0.0, 8.0),
        ("linear", 0.25, 5.0),
        ("linear", 0.9, 2.0),
        ("cosine", 0.125, 8.0 - 6.0 * (1 - 0.5**0.5) / 2),
        ("cosine", 0.5, 2.0),
    ],
)
def test_value_at_goes_from_start_to_end(shape: str, progress: float, expected: float) -> None:
    ramp = Ramp.model_validate({"start": 8, "end": 2, "shape": shape, "until": 0.5})
    assert float(value_at(ramp, tf.constant(progress))) == pytest.approx(expected, rel=1e-6)


def test_value_at_is_the_number_itself_when_it_is_constant() -> None:
    assert value_at(4.0, tf.constant(0.5)) == 4.0
