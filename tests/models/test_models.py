"""The reference architectures: parameters by closed forms, widths, saving, and sizes in int8."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tf_keras as keras

from models import (
    autoencoder,
    digits_cnn,
    ds_cnn,
    forecaster,
    mobilenet_v1,
    resnet,
    text_encoder,
    unet,
)
from shrink.base.errors import ModelError
from shrink.graph.groups import find_groups
from tests.models import checks


def autoencoder_parameters(hidden: int) -> int:
    """Biased dense layers, all but the last with batch norm."""
    sizes = [640, *[hidden] * 4, 8, *[hidden] * 4]
    return sum((a + 5) * b for a, b in pairwise(sizes)) + (hidden + 1) * 640


def digits_parameters(a: int, b: int, c: int) -> int:
    """3x3 kernels without bias, four batch-norm values a channel, and the dense layer."""
    return 9 * (a + a * b + b * c) + 4 * (a + b + c) + 10 * (c + 1)


def ds_cnn_parameters(c: int) -> int:
    """Biased 10x4, depthwise 3x3 and 1x1 convolutions with batch norm, and the dense layer."""
    block = (9 * c + c + 4 * c) + (c * c + c + 4 * c)
    return (40 * c + c + 4 * c) + 4 * block + 12 * (c + 1)


def forecaster_parameters() -> int:
    """Kernels of 5 with biases, 18 places of 24 channels, and two dense layers."""
    convolutions = (5 * 16 + 16) + (5 * 16 * 24 + 24) + (5 * 24 * 24 + 24)
    return convolutions + (18 * 24 * 32 + 32) + (32 * 12 + 12)


def mobilenet_parameters(c: list[int]) -> int:
    """Biased convolutions with batch norm: 3x3, then depthwise 3x3 and 1x1; the dense layer."""
    total = 27 * c[0] + 5 * c[0] + 2 * (c[-1] + 1)
    return total + sum(14 * a + a * b + 5 * b for a, b in pairwise(c))


def resnet_parameters(blocks: int) -> int:
    """Biased 3x3 convolutions with batch norm, biased 1x1 shortcuts, and the dense layer."""

    def conv(before: int, after: int) -> int:
        return 9 * before * after + 5 * after

    total = conv(3, 16) + 65 * 10
    for before, after in ((16, 16), (16, 32), (32, 64)):
        shortcut = 0 if before == after else before * after + after
        total += conv(before, after) + (2 * blocks - 1) * conv(after, after) + shortcut
    return total


def encoder_parameters() -> int:
    """Two tables, and of each of two blocks four projections, two norms and two dense layers."""
    block = 4 * (48 * 48 + 48) + 2 * 2 * 48 + (48 * 96 + 96) + (96 * 48 + 48)
    return 192 * 48 + 24 * 48 + 2 * block + (48 * 10 + 10)


def unet_parameters(a: int, b: int, c: int, d: int) -> int:
    """3x3 convolutions without bias and four numbers of batch norm a channel; 1x1 with bias."""
    pairs = ((1, a), (a, b), (b, c), (c, d), (d, d), (d + c, c), (c + b, b), (b + a, a))
    return sum(9 * before * after + 4 * after for before, after in pairs) + 11 * (a + 1)


class Case(NamedTuple):
    """An architecture, and a size of it that is saved quickly."""

    build: Callable[..., keras.Model]
    shapes: tuple[tuple[int | None, ...], tuple[int | None, ...]]
    parameters: int
    stated: int
    widths: tuple[float, ...] = (0.1, 0.25, 0.5, 1.0)
    small: dict[str, Any] = {}  # noqa: RUF012  nobody changes it


CASES = [
    Case(autoencoder.build, ((None, 640), (None, 640)), autoencoder_parameters(128), 269_992),
    Case(digits_cnn.build, ((None, 8, 8, 1), (None, 10)), digits_parameters(48, 64, 128), 104_058),
    Case(ds_cnn.build, ((None, 49, 10, 1), (None, 12)), ds_cnn_parameters(64), 24_908),
    Case(
        forecaster.build, ((None, 72, 1), (None, 12)), forecaster_parameters(), 19_196,
        (0.25, 0.5, 1.0), {"width": 0.25},
    ),
    Case(
        mobilenet_v1.build, ((None, 96, 96, 3), (None, 2)),
        mobilenet_parameters([8, 16, 32, 32, 64, 64, *[128] * 6, 256, 256]), 221_794,
        (0.125, 0.25, 0.5),
    ),
    Case(
        resnet.build, ((None, 32, 32, 3), (None, 10)), resnet_parameters(1), 78_666,
        (0.25, 0.5, 0.75, 1.0),
    ),
    Case(
        text_encoder.build, ((None, 24), (None, 10)), encoder_parameters(), 48_778,
        (0.25, 0.5, 1.0), {"width": 0.25},
    ),
    Case(
        unet.build, ((None, 48, 48, 1), (None, 48, 48, 11)), unet_parameters(16, 24, 32, 48),
        87_115, (0.25, 0.5, 1.0), {"width": 0.25, "input_shape": (16, 16, 1)},
    ),
]  # fmt: skip
each = pytest.mark.parametrize("case", CASES, ids=lambda case: case.build.__module__)


@each
def test_build_has_the_parameters_of_the_closed_form(case: Case) -> None:
    model = case.build()
    assert (model.input_shape, model.output_shape) == case.shapes
    assert model.count_params() == case.parameters == case.stated
    assert {type(layer).__name__ for layer in model.layers} <= checks.PLAIN or (
        case.build is text_encoder.build
    )


@each
def test_build_grows_with_width(case: Case) -> None:
    counts = [case.build(width=width).count_params() for width in case.widths]
    assert all(a < b for a, b in pairwise(counts))


@each
def test_build_gives_a_model_that_survives_saving(case: Case, tmp_path: Path) -> None:
    assert checks.survives_saving(case.build(**case.small), tmp_path)


# A scale and a zero point for each of the autoencoder's 1,672 units would cost 20 KB more than the
# reference. Half of the digits' network is a tenth of the whole one in float32.
@pytest.mark.parametrize(
    ("build", "most_bytes"),
    [
        (autoencoder.build, 276_976),
        (lambda: digits_cnn.build(width=0.5), 104_058 * 4 // 10),
        (ds_cnn.build, 53_936),
        (resnet.build, 98_496),
        pytest.param(mobilenet_v1.build, 333_288, marks=pytest.mark.slow),
    ],
)
def test_int8_is_no_larger_than_mlperf_tiny(build: Any, most_bytes: int) -> None:
    model = build()
    checks.settle(model)
    content = checks.int8(model, dense_per_tensor=build is autoencoder.build)
    assert len(content) <= most_bytes
    # Untrained, the 27 layers of MobileNetV1 lose too much of their signal to int8.
    assert checks.int8_correlation(content, model) > (0.6 if most_bytes > 300_000 else 0.95)


@pytest.mark.parametrize(("depth", "parameters"), [(14, 176_554), (20, 274_442)])
def test_a_deeper_resnet_has_the_documented_parameters(depth: int, parameters: int) -> None:
    assert resnet.build(depth=depth).count_params() == parameters
    assert resnet_parameters((depth - 2) // 6) == parameters


@pytest.mark.parametrize("depth", [2, 7, 9, -4])
def test_a_depth_of_resnet_that_is_not_6n_plus_2_is_refused(depth: int) -> None:
    with pytest.raises(ModelError, match=f"depth {depth}"):
        resnet.build(depth=depth)


def test_a_deeper_encoder_has_as_many_parameters_more_for_each_block() -> None:
    counts = [text_encoder.build(depth=depth).count_params() for depth in (0.5, 1.0, 1.5)]
    assert counts[1] - counts[0] == counts[2] - counts[1] > 0


def test_other_shapes_and_classes_are_taken() -> None:
    model = resnet.build(input_shape=[48, 64, 1], classes=3)
    assert (model.input_shape, model.output_shape) == ((None, 48, 64, 1), (None, 3))
    model = mobilenet_v1.build(input_shape=[64, 128, 1], classes=5)
    assert model.get_layer("block13_pointwise_relu").output_shape == (None, 2, 4, 256)
    assert model.output_shape == (None, 5)
    narrow = autoencoder.build(width=0.25)
    assert narrow.get_layer("bottleneck_relu").output_shape == (None, 8)
    assert narrow.count_params() == autoencoder_parameters(32)
    assert digits_cnn.build(width=0.5).count_params() == digits_parameters(24, 32, 64) == 26_690
    assert text_encoder.build().inputs[0].dtype == "int32"
    names = {layer.name for layer in ds_cnn.build(stem_dropout=0).layers}
    assert names & {"head_dropout", "stem_dropout"} == {"head_dropout"}


def test_models_of_short_trainings_follow_them() -> None:
    machine, tones = autoencoder.build_machine(), ds_cnn.build_tones()
    assert (machine.input_shape, machine.output_shape) == ((None, 256), (None, 256))
    assert (tones.input_shape, tones.output_shape) == ((None, 25, 10, 1), (None, 5))
    # The closed form with five classes in place of twelve.
    assert tones.count_params() == ds_cnn_parameters(32) - 7 * 33
    norms = [layer for layer in (*machine.layers, *tones.layers) if hasattr(layer, "momentum")]
    assert {norm.momentum for norm in norms} == {0.9}


def test_a_forecaster_answers_in_the_unit_of_the_series() -> None:
    model = forecaster.build(center=200.0, scale=3.0)
    model.set_weights([np.zeros_like(weight) for weight in model.get_weights()])
    answer = model.predict(np.full((1, 72, 1), 180.0, np.float32), verbose=0)
    np.testing.assert_array_equal(answer, np.full((1, 12), 200.0, np.float32))


def test_an_encoder_knows_the_order_of_the_tokens() -> None:
    model = text_encoder.build(width=0.5, depth=0.5, dropout=0.0)
    ids = np.arange(24)[None]
    one, other = (model.predict(x, verbose=0) for x in (ids, ids[:, ::-1].copy()))
    assert np.abs(one - other).max() > 1e-3


def test_channels_of_a_unet_are_pruned_through_the_concatenations() -> None:
    groups = find_groups(unet.build()).groups
    assert len(groups) == 8  # all convolutions but the last, each a group of its own
