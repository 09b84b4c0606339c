from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from models import autoencoder
from tests.models import checks


def closed_form(hidden: int) -> int:
    """Biased dense layers, all but the last with batch norm."""
    sizes = [640, *[hidden] * 4, 8, *[hidden] * 4]
    dense_bn = sum((a + 5) * b for a, b in pairwise(sizes))
    return dense_bn + (hidden + 1) * 640


def test_build_has_the_parameters_of_mlperf_tiny() -> None:
    model = autoencoder.build()
    assert (model.input_shape, model.output_shape) == ((None, 640), (None, 640))
    assert model.count_params() == closed_form(128) == 269_992
    assert checks.is_plain(model)


def test_build_keeps_the_bottleneck_when_narrower() -> None:
    model = autoencoder.build(width=0.25)
    assert model.get_layer("bottleneck_relu").output_shape == (None, 8)
    assert model.count_params() == closed_form(32)


def test_build_grows_with_width() -> None:
    assert checks.grows(autoencoder.build, (0.1, 0.25, 0.5, 1.0))


def test_build_gives_a_model_that_survives_saving(tmp_path: Path) -> None:
    assert checks.survives_saving(autoencoder.build(), tmp_path)


def test_int8_is_no_larger_than_mlperf_tiny_when_dense_layers_are_per_tensor() -> None:
    # A scale and a zero point for each of 1,672 units would cost 20 KB more than the reference.
    model = autoencoder.build()
    checks.settle(model)
    content = checks.int8(model, dense_per_tensor=True)
    assert len(content) <= 276_976
    assert checks.int8_agrees(content, model)


def test_build_machine_takes_eight_frames_of_32_bands() -> None:
    model = autoencoder.build_machine()
    assert (model.input_shape, model.output_shape) == ((None, 256), (None, 256))
    norms = [layer for layer in model.layers if hasattr(layer, "momentum")]
    assert {norm.momentum for norm in norms} == {0.9}
