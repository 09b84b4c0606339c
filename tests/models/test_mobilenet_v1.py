from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

from models import mobilenet_v1
from tests.models import checks


def closed_form(c: list[int]) -> int:
    """Biased convolutions with batch norm: 3x3, then depthwise 3x3 and 1x1; the dense layer."""
    total = 27 * c[0] + 5 * c[0] + 2 * (c[-1] + 1)
    for before, after in pairwise(c):
        total += (9 * before + 5 * before) + (before * after + 5 * after)
    return total


def test_build_has_the_parameters_of_mlperf_tiny() -> None:
    model = mobilenet_v1.build()
    channels = [8, 16, 32, 32, 64, 64, 128, 128, 128, 128, 128, 128, 256, 256]
    assert (model.input_shape, model.output_shape) == ((None, 96, 96, 3), (None, 2))
    assert model.count_params() == closed_form(channels) == 221_794
    assert checks.is_plain(model)


def test_build_divides_the_sides_by_32() -> None:
    model = mobilenet_v1.build(input_shape=[64, 128, 1], classes=5)
    assert model.get_layer("block13_pointwise_relu").output_shape == (None, 2, 4, 256)
    assert model.output_shape == (None, 5)


def test_build_grows_with_width() -> None:
    assert checks.grows(mobilenet_v1.build, (0.125, 0.25, 0.5))


def test_build_gives_a_model_that_survives_saving(tmp_path: Path) -> None:
    assert checks.survives_saving(mobilenet_v1.build(), tmp_path)


@pytest.mark.slow
def test_int8_is_no_larger_than_mlperf_tiny() -> None:
    model = mobilenet_v1.build()
    checks.settle(model)
    content = checks.int8(model)
    assert len(content) <= 333_288
    # Untrained, 27 layers lose too much of their signal to int8 (correlation 0.75 with the float
    # outputs): only that the artifact runs is checked, not that it agrees.
    interpreter = Interpreter(model_content=content)
    interpreter.allocate_tensors()
    interpreter.invoke()
    assert interpreter.get_input_details()[0]["dtype"] is np.int8
    assert interpreter.get_output_details()[0]["dtype"] is np.int8
