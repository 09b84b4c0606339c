from __future__ import annotations

from pathlib import Path

from models import ds_cnn
from tests.models import checks


def closed_form(c: int) -> int:
    """Biased 10x4, depthwise 3x3 and 1x1 convolutions with batch norm, and the dense layer."""
    block = (9 * c + c + 4 * c) + (c * c + c + 4 * c)
    return (40 * c + c + 4 * c) + 4 * block + 12 * (c + 1)


def test_build_has_the_parameters_of_mlperf_tiny() -> None:
    model = ds_cnn.build()
    assert (model.input_shape, model.output_shape) == ((None, 49, 10, 1), (None, 12))
    assert model.count_params() == closed_form(64) == 24_908
    assert checks.is_plain(model)


def test_build_leaves_dropout_out_when_its_rate_is_0() -> None:
    names = {layer.name for layer in ds_cnn.build(stem_dropout=0).layers}
    assert "head_dropout" in names
    assert "stem_dropout" not in names


def test_build_grows_with_width() -> None:
    assert checks.grows(ds_cnn.build, (0.1, 0.25, 0.5, 1.0))


def test_build_gives_a_model_that_survives_saving(tmp_path: Path) -> None:
    assert checks.survives_saving(ds_cnn.build(), tmp_path)


def test_int8_is_no_larger_than_mlperf_tiny() -> None:
    model = ds_cnn.build()
    checks.settle(model)
    content = checks.int8(model)
    assert len(content) <= 53_936
    assert checks.int8_agrees(content, model)


def test_build_tones_is_half_as_wide_and_follows_short_trainings() -> None:
    model = ds_cnn.build_tones()
    assert (model.input_shape, model.output_shape) == ((None, 25, 10, 1), (None, 5))
    # The closed form with five classes in place of twelve.
    assert model.count_params() == closed_form(32) - 7 * 33
    norms = [layer for layer in model.layers if hasattr(layer, "momentum")]
    assert {norm.momentum for norm in norms} == {0.9}
