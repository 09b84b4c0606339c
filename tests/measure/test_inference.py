from __future__ import annotations

from pathlib import Path

import numpy as np
import tf_keras as keras

from shrink.measure.inference import latency, one_op_model
from shrink.tflite.convert import to_float32
from shrink.tflite.runtime import random_rows, time_invokes


class Recording:
    """An interpreter of one input that remembers what it was invoked on."""

    def __init__(self) -> None:
        self.invoked: list[float] = []
        self.resets = 0
        self._held = 0.0

    def get_input_details(self) -> list[dict[str, int]]:
        return [{"index": 0}]

    def set_tensor(self, index: int, array: np.ndarray) -> None:
        self._held = float(array[0])

    def reset_all_variables(self) -> None:
        self.resets += 1

    def invoke(self) -> None:
        self.invoked.append(self._held)


def test_latency_orders_its_percentiles(tmp_path: Path) -> None:
    path = tmp_path / "one.tflite"
    path.write_bytes(one_op_model())
    figures = latency(path, threads=2)
    assert (figures.examples, figures.made_up) == (0, "random")
    assert 0 < (figures.p50_ms.value or 0) <= (figures.p90_ms.value or 0)
    assert figures.threads == 2


def test_latency_is_none_with_a_note_when_the_process_fails(tmp_path: Path) -> None:
    path = tmp_path / "broken.tflite"
    path.write_bytes(b"no model at all")
    timed = latency(path)
    assert timed.p50_ms.value is None
    assert timed.p90_ms.value is None
    assert "ended with code 1" in timed.p50_ms.reason


def test_time_invokes_takes_at_least_fifty_examples_in_turn_after_a_warm_up() -> None:
    interpreter = Recording()
    times = time_invokes(interpreter, [[np.array([value])] for value in (1.0, 2.0, 3.0)])
    assert len(times) >= 50
    assert len(interpreter.invoked) > len(times)
    assert interpreter.invoked[:6] == [1, 2, 3, 1, 2, 3]
    assert interpreter.resets == len(interpreter.invoked)


def test_random_rows_are_the_same_every_time_and_no_zeros() -> None:
    details = [
        {"shape": np.array([1, 50]), "dtype": np.float32, "quantization": (0.0, 0)},
        {"shape": np.array([1, 50]), "dtype": np.int8, "quantization": (0.5, -3)},
        {"shape": np.array([1, 50]), "dtype": np.int32, "quantization": (0.0, 0)},
    ]
    real, quantized, index = random_rows(details)[0]
    assert real.dtype == np.float32
    assert np.all((real >= 0) & (real < 1))
    assert np.count_nonzero(real) == 50
    assert quantized.dtype == np.int8
    assert quantized.min() < -100
    assert quantized.max() > 100
    assert set(index.ravel().tolist()) == {0, 1}
    np.testing.assert_array_equal(random_rows(details)[0][0], real)


def test_latency_runs_the_examples_that_it_is_given(tmp_path: Path) -> None:
    path = tmp_path / "one.tflite"
    path.write_bytes(one_op_model())
    timed = latency(path, inputs=[np.ones((3, 1), np.float32)])
    assert timed.examples == 3
    assert (timed.p50_ms.value or 0) > 0
    assert timed.made_up is None


def test_latency_fills_a_batch_of_its_own_with_an_example(tmp_path: Path) -> None:
    path, inputs = tmp_path / "four.tflite", keras.layers.Input(batch_shape=(4, 3))
    path.write_bytes(to_float32(keras.Model(inputs, keras.layers.Dense(2)(inputs))))
    timed = latency(path, inputs=[np.ones((3, 3), np.float32)])
    assert (timed.p50_ms.value or 0) > 0, timed.p50_ms.reason


def test_latency_uses_zeros_where_random_numbers_cannot_be_run(tmp_path: Path) -> None:
    path = tmp_path / "table.tflite"
    inputs = keras.layers.Input((4,))
    # Random numbers below 1, a hundredfold, are no indices of three rows.
    far = keras.layers.Lambda(lambda x: x * 100)(inputs)
    path.write_bytes(to_float32(keras.Model(inputs, keras.layers.Embedding(3, 2)(far))))
    assert latency(path).made_up == "zeros"
