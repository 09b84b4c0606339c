from __future__ import annotations

from pathlib import Path

from models import digits_cnn
from tests.models import checks


def closed_form(a: int, b: int, c: int) -> int:
    """3x3 kernels without bias, four batch-norm values a channel, and the dense layer."""
    return 9 * (a + a * b + b * c) + 4 * (a + b + c) + 10 * (c + 1)


def test_build_has_the_documented_shapes_and_parameters() -> None:
    model = digits_cnn.build()
    assert (model.input_shape, model.output_shape) == ((None, 8, 8, 1), (None, 10))
    assert model.count_params() == closed_form(48, 64, 128) == 104_058
    assert digits_cnn.build(width=0.5).count_params() == closed_form(24, 32, 64) == 26_690
    assert checks.is_plain(model)


def test_build_grows_with_width() -> None:
    assert checks.grows(digits_cnn.build, (0.1, 0.25, 0.5, 1.0, 1.5))


def test_build_gives_a_model_that_survives_saving(tmp_path: Path) -> None:
    assert checks.survives_saving(digits_cnn.build(), tmp_path)


def test_half_width_int8_is_a_tenth_of_the_float32_weights() -> None:
    student = digits_cnn.build(width=0.5)
    checks.settle(student)
    content = checks.int8(student)
    assert len(content) <= digits_cnn.build().count_params() * 4 / 10
    assert checks.int8_agrees(content, student)
