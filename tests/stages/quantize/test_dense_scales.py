"""One scale for each dense layer, or one for each channel: chosen by error and by bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tf_keras as keras

from shrink.contract.choices import Choice
from shrink.quantization.calibration import CalibrationExamples
from shrink.quantization.source import FloatModel
from shrink.stages.quantize.config import QuantizeConfig
from shrink.stages.quantize.dense_scales import (
    allowed_loss_db,
    saved_bytes,
    with_best_scales,
)
from shrink.tflite.model import read
from tests.unlabelled import UnlabelledExamples

L = keras.layers


def network(outlier: float = 0.0) -> FloatModel:
    """Return two dense layers; `outlier` is a weight on an input that is always 0."""
    random = np.random.default_rng(0)
    inputs = L.Input((32,))
    model = keras.Model(inputs, L.Dense(16)(L.Dense(48, activation="relu")(inputs)))
    for layer in model.layers[1:]:
        kernel = random.uniform(-1, 1, layer.kernel.shape) / layer.kernel.shape[0]
        layer.set_weights([kernel, random.normal(size=kernel.shape[1]) / 10])
    first = model.layers[1].kernel
    first.assign(np.concatenate([np.eye(1, 48) * outlier, first.numpy()[1:]]))
    return FloatModel(model)


def converted(source: FloatModel, **keys: Any) -> tuple[bytes, tuple[Choice, ...]]:
    x = np.random.default_rng(1).normal(size=(60, 32)).astype(np.float32)
    x[:, 0] = 0
    rows: Any = UnlabelledExamples(x)
    calibration = CalibrationExamples(rows, 60, 0)
    conversion, choices = with_best_scales(source, calibration, QuantizeConfig(**keys))
    return conversion.content, choices


def scales_of(content: bytes) -> list[int]:
    graph = read(content)[0]
    dense = [o for o in graph.operators if o.name == "FULLY_CONNECTED"]
    return [len(graph.tensors[o.inputs[1]].scales) for o in dense]


@pytest.mark.parametrize(
    ("outlier", "value", "scales"), [(0.0, "tensor", [1, 1]), (5.0, "channel", [48, 16])]
)
def test_auto_takes_one_scale_where_channels_are_alike(
    outlier: float, value: str, scales: list[int]
) -> None:
    content, (choice,) = converted(network(outlier))
    assert (choice.key, choice.value) == ("dense_scales", value)
    assert scales_of(content) == scales
    sizes = {one.value: one.figures["file_bytes"] for one in choice.options}
    assert sizes[value] == len(content)
    assert sizes["tensor"] < sizes["channel"]
    errors = [one.figures["snr_db"] for one in choice.options]
    assert all(f"snr_db {error:.4g}" in choice.sentence for error in errors)


def test_saved_bytes_is_what_the_other_file_is_smaller_by() -> None:
    source = network()
    files = [converted(source, dense_scales=value)[0] for value in ("channel", "tensor")]
    assert saved_bytes(files[0]) == 24 * (47 + 15)
    # Tables are aligned, and a vector of one number is stored beside its length.
    assert len(files[0]) - len(files[1]) == pytest.approx(saved_bytes(files[0]), abs=64)
    assert saved_bytes(files[1]) == 0


def test_auto_tries_nothing_for_a_head_of_few_classes() -> None:
    inputs = L.Input((32,))
    x = L.Dense(2)(
        L.Reshape((32 * 64,))(L.Conv1D(64, 9, padding="same")(L.Reshape((32, 1))(inputs)))
    )
    content, (choice,) = converted(FloatModel(keras.Model(inputs, x)))
    assert scales_of(content) == [2]
    assert choice.options == ()
    assert "per-tensor scales would save only" in choice.sentence


@pytest.mark.parametrize("value", ["channel", "tensor"])
def test_a_value_by_hand_is_taken_and_not_told(value: str) -> None:
    content, choices = converted(network(), dense_scales=value)
    assert choices == ()
    assert scales_of(content) == ([1, 1] if value == "tensor" else [48, 16])


def test_bytes_have_half_the_price_that_narrower_weights_would_have() -> None:
    # One bit of eight: 12.5 % of the bytes, 20 log10(2) = 6.02 dB.
    assert allowed_loss_db(1000, 950) == pytest.approx(0.5 * 6.02 / 12.5 * 5, rel=0.01)
    assert allowed_loss_db(1000, 500) == 3.0
    assert allowed_loss_db(1000, 1001) == 0.0


def test_untrained_takes_the_least_of_what_may_be_chosen() -> None:
    """Of weights that keep the scales of channels, too: values are nothing yet."""
    x = np.random.default_rng(1).normal(size=(60, 32)).astype(np.float32)
    rows: Any = UnlabelledExamples(x)
    calibration = CalibrationExamples(rows, 60, 0)
    source = network(5.0)
    source.untrained = True
    made, choices = with_best_scales(source, calibration, QuantizeConfig())
    least = made.content
    content, (choice,) = converted(network(5.0))
    (tensor,) = [one for one in choice.options if one.value == "tensor"]
    assert (choice.value, choices) == ("channel", ())
    assert len(least) == tensor.figures["file_bytes"] < len(content)
