from __future__ import annotations

from pathlib import Path

import pytest

from models import resnet
from shrink.base.errors import ModelError
from tests.models import checks


def conv_bn(before: int, after: int) -> int:
    return 9 * before * after + after + 4 * after


def closed_form(blocks: int) -> int:
    """Biased 3x3 convolutions with batch norm, biased 1x1 shortcuts, and the dense layer."""
    total = conv_bn(3, 16) + 65 * 10
    for before, channels in ((16, 16), (16, 32), (32, 64)):
        shortcut = 0 if before == channels else before * channels + channels
        first = conv_bn(before, channels) + conv_bn(channels, channels)
        total += first + shortcut + (blocks - 1) * 2 * conv_bn(channels, channels)
    return total


def test_build_has_the_parameters_of_mlperf_tiny() -> None:
    model = resnet.build()
    assert (model.input_shape, model.output_shape) == ((None, 32, 32, 3), (None, 10))
    assert model.count_params() == closed_form(1) == 78_666
    assert checks.is_plain(model)


@pytest.mark.parametrize(("depth", "parameters"), [(14, 176_554), (20, 274_442)])
def test_build_has_the_documented_parameters_when_deeper(depth: int, parameters: int) -> None:
    assert resnet.build(depth=depth).count_params() == closed_form((depth - 2) // 6) == parameters


def test_build_takes_another_shape_and_other_classes() -> None:
    model = resnet.build(input_shape=[48, 64, 1], classes=3)
    assert (model.input_shape, model.output_shape) == ((None, 48, 64, 1), (None, 3))


@pytest.mark.parametrize("depth", [2, 7, 9, -4])
def test_build_refuses_a_depth_that_is_not_6n_plus_2(depth: int) -> None:
    with pytest.raises(ModelError, match=f"depth {depth}"):
        resnet.build(depth=depth)


def test_build_grows_with_width() -> None:
    assert checks.grows(resnet.build, (0.25, 0.5, 0.75, 1.0))


def test_build_gives_a_model_that_survives_saving(tmp_path: Path) -> None:
    assert checks.survives_saving(resnet.build(), tmp_path)


def test_int8_is_no_larger_than_mlperf_tiny() -> None:
    model = resnet.build()
    checks.settle(model)
    content = checks.int8(model)
    assert len(content) <= 98_496
    assert checks.int8_agrees(content, model)
