"""Logits of detectors that saturate, so that boxes keep their steps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tf_keras as keras

from shrink.detection.config import DecodeConfig
from shrink.detection.head import head_of
from shrink.quantization.source import FloatModel
from shrink.stages.quantize.config import QuantizeConfig
from shrink.stages.quantize.noise import noise
from shrink.stages.quantize.schemes import static_int8
from shrink.stages.quantize.scores import bound_scores
from shrink.task.detector import Detector
from shrink.tflite.interpreter import load
from tests.quantization.test_float_blocks import calibrated_on

L = keras.layers
CLASSES = 2
ANCHORS = (((10.0, 14.0), (23.0, 27.0)),)
YOLO = DecodeConfig(name="yolo", strides=(8,), anchors=ANCHORS)
CHANNELS = 2 * (5 + CLASSES)
INT8 = QuantizeConfig(scheme="static_wi8_ai8")


def network() -> FloatModel:
    """Return a head whose offsets are near 0 and whose logits reach from -40 to 15."""
    keras.utils.set_random_seed(0)
    image = L.Input((16, 16, 3), name="image")
    head = L.Conv2D(CHANNELS, 8, strides=8)
    model = keras.Model(image, head(image))
    kernel, _ = head.get_weights()
    logits = np.arange(CHANNELS) % (5 + CLASSES) >= 4
    kernel = kernel * np.where(logits, 25, 0.7)
    head.set_weights([kernel, np.where(logits, -12.0, 0.0)])
    return FloatModel(model)


def context(settings: DecodeConfig, shape: tuple[int, ...], decode: object = "yolo") -> Any:
    head = head_of(settings, (16, 16, 3), [shape], CLASSES)
    task = SimpleNamespace(detector=Detector(head))
    return SimpleNamespace(
        has_data=True,
        has_targets=True,
        task_config=SimpleNamespace(decode=decode),
        task=lambda model: task,
    )


def pictures() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(80, 16, 16, 3)).astype(np.float32)


def test_offsets_keep_the_steps_that_no_probability_needs() -> None:
    x, source = pictures(), network()
    wanted = load(source.float32.content).predict({"image": x})[0]
    logits = np.arange(CHANNELS) % (5 + CLASSES) >= 4

    def error() -> tuple[float, float]:
        (found,) = load(static_int8(source, calibrated_on(x), INT8).content).predict({"image": x})
        sigmoids = 1 / (1 + np.exp(-np.stack([found, wanted])[..., logits]))
        offsets = np.abs(found - wanted)[..., ~logits]
        return float(offsets.max()), float(np.abs(sigmoids[0] - sigmoids[1]).max())

    offsets_before, probabilities_before = error()
    (note,) = bound_scores(source, INT8, context(YOLO, (2, 2, CHANNELS)), calibrated_on(x))
    ((low, high),) = source.bounds.values()
    assert -10 <= low < -9
    assert high <= 10
    assert "logits are clipped at ±10" in note
    offsets, probabilities = error()
    assert wanted[..., logits].min() < -30
    # A step was (largest - least) / 255 of all numbers, and is 20 / 255.
    assert offsets < 0.6 * offsets_before
    assert offsets < 20 / 255
    assert probabilities <= probabilities_before


def test_bounds_reach_what_a_reshape_takes_its_scale_from() -> None:
    plain = network().model
    assert plain is not None
    output = L.Reshape((2, 4, CHANNELS // 2))(plain.output)
    x, source = pictures(), FloatModel(keras.Model(plain.input, output))
    before = load(static_int8(source, calibrated_on(x), INT8).content).output_details[0].scale
    head = SimpleNamespace(logit_channels=lambda: [np.arange(CHANNELS // 2) >= 4])
    task = SimpleNamespace(detector=Detector(head))  # type: ignore[arg-type]
    of = SimpleNamespace(
        has_data=True,
        has_targets=True,
        task_config=SimpleNamespace(decode="yolo"),
        task=lambda model: task,
    )
    assert bound_scores(source, INT8, of, calibrated_on(x))  # type: ignore[arg-type]
    source.measured.clear()
    content = static_int8(source, calibrated_on(x), INT8)
    after = load(content.content).output_details[0].scale
    assert after <= 20.5 / 255 < before
    assert noise(content, source, [{"image": x}]) < 0.01


@pytest.mark.parametrize(
    ("settings", "outputs", "expected"),
    [
        (YOLO, [(2, 2, 14)], [[0, 0, 0, 0, 1, 1, 1] * 2]),
        (DecodeConfig(name="grid", strides=(8,)), [(2, 2, 6)], [[0, 0, 0, 0, 1, 1]]),
        (
            DecodeConfig(name="ssd", strides=(8,), anchors=ANCHORS),
            [(8, 4), (8, 2)],
            [[0, 0, 0, 0], [1, 1]],
        ),
        (DecodeConfig(name="ssd", strides=(8,), anchors=ANCHORS), [(8, 6)], [[0, 0, 0, 0, 1, 1]]),
        (DecodeConfig(name="ssd", strides=(8,), anchors=ANCHORS, scores="softmax"), [(8, 7)], None),
        (DecodeConfig(name="boxes"), [(8, 6)], None),
    ],
)
def test_logit_channels_are_those_that_a_sigmoid_is_taken_of(
    settings: DecodeConfig, outputs: Any, expected: list[list[int]] | None
) -> None:
    found = head_of(settings, (16, 16, 3), outputs, CLASSES).logit_channels()
    assert (found and [each.astype(int).tolist() for each in found]) == expected


def test_nothing_is_bounded_where_nobody_decodes_or_parts_are_split() -> None:
    x, source = pictures(), network()
    for config, decode in ((INT8, None), (QuantizeConfig(split_outputs=True), "yolo")):
        of = context(YOLO, (2, 2, CHANNELS), decode)
        assert bound_scores(source, config, of, calibrated_on(x)) == []
    assert not source.bounds
