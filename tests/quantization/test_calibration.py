from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import StageError
from shrink.quantization import calibration
from shrink.quantization.calibration import (
    CalibrationExamples,
    extreme_ranges,
    least_squares_range,
    least_squares_ranges,
    lint_calibration,
)
from shrink.quantization.float_front import undefined_tensors
from shrink.quantization.source import FloatModel
from shrink.stages.quantize.config import QuantizeConfig
from shrink.stages.quantize.run import with_float_front
from shrink.stages.quantize.schemes import SCHEMES
from shrink.tflite.convert import convert
from shrink.tflite.interpreter import load
from shrink.tflite.model import read
from shrink.tflite.weights import float_operators
from tests.quantization.test_float_blocks import calibrated_on
from tests.stages.quantize.toys import batches, cnn, float_cnn, images


class Counted:
    """Examples that count how often they are read."""

    labels = np.arange(120) % 4
    reads = 0

    def __len__(self) -> int:
        return 120

    def arrays(self, indices: np.ndarray) -> tuple[Any, Any]:
        self.reads += len(indices)
        return np.asarray(indices, np.uint8)[:, None], None


@pytest.mark.parametrize(("most_bytes", "reads"), [(1000, 120), (300, 240)])
def test_batches_read_small_examples_once_and_large_ones_each_time(
    monkeypatch: pytest.MonkeyPatch, most_bytes: int, reads: int
) -> None:
    monkeypatch.setattr(calibration, "_MOST_KEPT_BYTES", most_bytes)
    examples: Any = Counted()
    sample = CalibrationExamples(examples, 120, seed=0)
    batches = sample.batches()
    for _ in range(2):
        rows = np.concatenate([x for arrays in batches for x in arrays.values()])
        np.testing.assert_array_equal(rows[:, 0], sample.indices)
        assert rows.dtype == np.float32
    assert examples.reads == reads


def test_missing_labels_are_those_without_a_chosen_example() -> None:
    examples: Any = Counted()
    assert CalibrationExamples(examples, 120, seed=0).missing_labels() == []
    chosen = CalibrationExamples(examples, 2, seed=0)
    labels = set(Counted.labels[chosen.indices])
    assert set(chosen.missing_labels()) == {0, 1, 2, 3} - labels


@pytest.mark.parametrize("most_bytes", [0, 40_000])
def test_ranges_do_not_depend_on_how_many_activations_are_held_at_once(
    monkeypatch: pytest.MonkeyPatch, most_bytes: int
) -> None:
    content, given = float_cnn(), batches()
    wanted = extreme_ranges(content, given), least_squares_ranges(content, given)
    (whole,) = calibration.tensor_values(content, given[:1])
    monkeypatch.setattr(calibration, "_MOST_ACTIVATION_BYTES", most_bytes)
    pieces = [len(next(iter(p.values()))) for p in calibration.tensor_values(content, given)]
    assert sum(pieces) == sum(len(next(iter(b.values()))) for b in given)
    assert max(pieces) < max(len(next(iter(b.values()))) for b in given)
    few = calibration.values_of_few(content, given[0])
    assert few.keys() == whole.keys()
    for name, array in whole.items():
        np.testing.assert_allclose(few[name], array, rtol=1e-5, atol=1e-6)
    found = extreme_ranges(content, given), least_squares_ranges(content, given)
    for before, after in zip(wanted, found, strict=True):
        assert before.keys() == after.keys()
        for name in before:
            assert after[name] == pytest.approx(before[name], rel=1e-5)


class Few:
    """Examples in memory."""

    def __init__(self, x: np.ndarray, labels: np.ndarray | None) -> None:
        self.x = x
        self.labels = labels

    def __len__(self) -> int:
        return len(self.x)

    def arrays(self, indices: np.ndarray) -> tuple[Any, Any]:
        return self.x[indices], None


def linted(x: np.ndarray, labels: np.ndarray | None, count: int) -> list[str]:
    examples: Any = Few(x, labels)
    return lint_calibration(CalibrationExamples(examples, count, seed=0), ("cat", "dog", "owl"))


def test_lint_calibration_has_nothing_to_say_of_a_good_sample() -> None:
    assert linted(images(150), np.arange(150) % 3, 120) == []
    assert linted(images(150), None, 120) == []


def test_lint_calibration_names_missing_classes_and_small_samples() -> None:
    labels = np.repeat([0, 1, 2], 50)
    notes = linted(images(150), labels, 2)
    assert "2 examples" in notes[0]
    assert notes[1].startswith("calibration: no example of the classes ")


def test_extreme_ranges_are_those_of_the_keras_layers() -> None:
    x, model = images(30), cnn()
    first = keras.Model(model.input, model.get_layer("first").output)(x).numpy()
    ranges = extreme_ranges(float_cnn(), [{"x": x}])
    graph = read(float_cnn())[0]
    name = graph.tensors[graph.operators[0].outputs[0]].name
    np.testing.assert_allclose(ranges[name], (first.min(), first.max()), rtol=1e-5)
    image = graph.tensors[graph.inputs[0]].name
    np.testing.assert_allclose(ranges[image], (x.min(), x.max()))


def test_extreme_ranges_cover_a_layer_normalisation_whose_statistics_have_no_batch() -> None:
    inputs = keras.Input((4, 6))
    x = keras.layers.LayerNormalization()(keras.layers.Dense(5)(inputs))
    model = keras.Model(inputs, keras.layers.Dense(3)(x))
    content = convert(model, "float32").content
    graph = read(content)[0]
    written = {i for operator in graph.operators for i in operator.outputs}
    assert any(graph.tensors[i].shape[:1] != (1,) for i in written)  # what the test is about
    x = np.random.default_rng(0).normal(size=(5, 4, 6)).astype(np.float32)
    ranges = extreme_ranges(content, [{"x": x}])
    assert {graph.tensors[i].name for i in written} <= ranges.keys()
    outputs = model(x).numpy()
    np.testing.assert_allclose(
        ranges[graph.tensors[graph.outputs[0]].name], (outputs.min(), outputs.max()), rtol=1e-4
    )


def test_extreme_ranges_refuse_values_that_are_not_finite() -> None:
    x = images(8)
    x[1, 0, 0, 0] = np.nan
    with pytest.raises(StageError, match="not finite"):
        extreme_ranges(float_cnn(), [{"x": x}])


def guarded() -> keras.Model:
    """Return x / sum(x), or 0 if the sum is not positive, and a dense layer of it."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((6,), name="x")
    total = tf.reduce_sum(inputs, -1, keepdims=True)
    shares = tf.where(total > 0, inputs / total, 0.0)
    return keras.Model(inputs, keras.layers.Dense(3)(shares))


def spectra() -> np.ndarray:
    x = np.random.default_rng(0).uniform(0, 1, (80, 6)).astype(np.float32)
    x[::8] = 0
    return x


@pytest.mark.parametrize("first", [0, 1])  # whether the first batch begins with a silent example
def test_ranges_leave_out_what_a_guard_discards(first: int) -> None:
    x, source = spectra()[first:], FloatModel(guarded())
    quotients = x / np.maximum(x.sum(axis=1, keepdims=True), 1e-9)
    expected = float(quotients[x.sum(axis=1) > 0].max())
    (name,) = undefined_tensors(source.float32.content, [{"x": x}])
    ranges = extreme_ranges(source.float32.content, [{"x": x[:8]}, {"x": x[8:]}])
    assert ranges[name][1] == pytest.approx(expected, rel=1e-6)
    assert np.isfinite(list(ranges.values())).all()


@pytest.mark.parametrize(("offset", "in_float"), [(0.01, ["ABS", "ADD", "DIV"]), (3.0, [])])
def test_int8_divides_in_float_where_int8_rounds_the_divisor_to_0(
    offset: float, in_float: list[str]
) -> None:
    keras.utils.set_random_seed(0)
    inputs = keras.Input((6,), name="x")
    above, below = keras.layers.Dense(4)(inputs), keras.layers.Dense(4)(inputs)
    model = keras.Model(inputs, keras.layers.Dense(3)(above / (tf.abs(below) + offset)))
    x = np.random.default_rng(0).normal(size=(200, 6)).astype(np.float32)
    source, calibration = FloatModel(model), calibrated_on(x)
    config = QuantizeConfig.model_validate({"scheme": "static_wi8_ai8"})
    context: Any = SimpleNamespace(warn=lambda *_: None)
    config, _ = with_float_front(config, source, context, calibration)
    content = SCHEMES["static_wi8_ai8"](source, calibration, config).content
    assert float_operators(content) == in_float
    assert np.isfinite(load(content).predict({"x": x})[0]).all()


def test_int8_divides_in_float_where_a_guard_discards_the_quotient() -> None:
    x, model = spectra(), guarded()
    source, calibration = FloatModel(model), calibrated_on(x)
    config = QuantizeConfig.model_validate({"scheme": "static_wi8_ai8"})
    context: Any = SimpleNamespace()
    config, (note,) = with_float_front(config, source, context, calibration)
    assert "not finite" in note
    content = SCHEMES["static_wi8_ai8"](source, calibration, config).content
    assert float_operators(content) == ["DIV"]
    (found,) = load(content).predict({"x": x})
    assert np.abs(found - model.predict(x, verbose=0)).max() < 0.05


def test_least_squares_range_keeps_the_extremes_of_a_uniform_distribution() -> None:
    low, high = least_squares_range(np.ones(2048, np.int64), (-1.0, 3.0), 256)
    assert (low, high) == (-1.0, 3.0)


def test_least_squares_range_is_near_the_optimum_of_a_normal_distribution() -> None:
    # Banner et al. 2019, "Post training 4-bit quantization of convolutional networks for
    # rapid-deployment", section 3: clipping at 2.55 standard deviations for 16 levels.
    edges = np.linspace(-6, 6, 2049)
    density = np.exp(-(((edges[1:] + edges[:-1]) / 2) ** 2) / 2)
    low, high = least_squares_range((1e6 * density).astype(np.int64), (-6.0, 6.0), 16)
    assert high == pytest.approx(2.55, abs=0.2)
    assert low == pytest.approx(-2.55, abs=0.2)


def test_least_squares_ranges_clip_between_the_borders_only() -> None:
    extremes = extreme_ranges(float_cnn(), batches())
    chosen = least_squares_ranges(float_cnn(), batches())
    graph = read(float_cnn())[0]
    borders = {graph.tensors[i].name for i in (*graph.inputs, *graph.outputs)}
    assert {name: chosen[name] for name in borders} == {name: extremes[name] for name in borders}
    inner = extremes.keys() - borders
    assert all(0 <= chosen[name][1] <= max(extremes[name][1], 0) for name in inner)
    assert any(chosen[name][1] < extremes[name][1] for name in inner)
