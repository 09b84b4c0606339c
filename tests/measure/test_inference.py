from __future__ import annotations

from pathlib import Path

import numpy as np
import tf_keras as keras

from shrink.measure.inference import measure_inference, one_op_model
from shrink.tflite.runtime import time_invokes
from tests.tflite.toys import to_float32


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


def test_latency_orders_its_percentiles_and_memory_within_noise_is_none(tmp_path: Path) -> None:
    path = tmp_path / "one.tflite"
    path.write_bytes(one_op_model())
    figures = measure_inference(path, threads=2)
    assert (figures.examples, figures.made_up) == (0, "random")
    assert 0 < (figures.p50_ms.value or 0) <= (figures.p90_ms.value or 0)
    assert figures.threads == 2
    assert figures.peak_bytes.value is None
    assert "less than 1 MiB" in figures.peak_bytes.reason


def test_time_invokes_takes_at_least_fifty_examples_in_turn_after_a_warm_up() -> None:
    interpreter = Recording()
    times = time_invokes(interpreter, [[np.array([value])] for value in (1.0, 2.0, 3.0)])
    assert len(times) >= 50
    assert len(interpreter.invoked) > len(times)
    assert interpreter.invoked[:6] == [1, 2, 3, 1, 2, 3]
    assert interpreter.resets == len(interpreter.invoked)


def test_latency_runs_the_examples_that_it_is_given(tmp_path: Path) -> None:
    path = tmp_path / "one.tflite"
    path.write_bytes(one_op_model())
    timed = measure_inference(path, inputs=[np.ones((3, 1), np.float32)])
    assert timed.examples == 3
    assert (timed.p50_ms.value or 0) > 0
    assert timed.made_up is None


def test_latency_fills_a_batch_of_its_own_with_an_example(tmp_path: Path) -> None:
    path, inputs = tmp_path / "four.tflite", keras.layers.Input(batch_shape=(4, 3))
    path.write_bytes(to_float32(keras.Model(inputs, keras.layers.Dense(2)(inputs))))
    timed = measure_inference(path, inputs=[np.ones((3, 3), np.float32)])
    assert (timed.p50_ms.value or 0) > 0, timed.p50_ms.reason


def test_latency_uses_zeros_where_random_numbers_cannot_be_run(tmp_path: Path) -> None:
    path = tmp_path / "table.tflite"
    inputs = keras.layers.Input((4,))
    # Random numbers below 1, a hundredfold, are no indices of three rows.
    far = keras.layers.Lambda(lambda x: x * 100)(inputs)
    path.write_bytes(to_float32(keras.Model(inputs, keras.layers.Embedding(3, 2)(far))))
    assert measure_inference(path).made_up == "zeros"
