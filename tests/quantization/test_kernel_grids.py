"""Kernels on a grid keep its step in the file, and all others the scale of their largest weight."""

from __future__ import annotations

import numpy as np
import pytest
import tf_keras as keras

from shrink.quantization.kernel_grids import grid_steps, with_grids_of_kernels
from shrink.tflite.convert import convert
from shrink.tflite.interpreter import load
from shrink.tflite.model import read, values

L = keras.layers
GENERATOR = np.random.default_rng(0)
KINDS = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")


def codes(*shape: int, most: int = 90) -> np.ndarray:
    """Whole numbers, the largest of each row `most`: fewer than the 127 that there are."""
    drawn = GENERATOR.integers(-most, most + 1, shape)
    drawn[..., 0] = most
    return drawn


def test_a_step_is_found_whatever_the_largest_code_is() -> None:
    steps = np.array([0.01, 0.37, 2.5])
    rows = (codes(3, 40, most=97) * steps[:, None]).astype(np.float32)
    found = grid_steps(rows, np.ones(3))
    assert found is not None
    np.testing.assert_allclose(found, steps, rtol=1e-5)


def test_a_row_of_zeros_keeps_its_scale() -> None:
    rows = np.stack([codes(40) * 0.5, np.zeros(40)])
    found = grid_steps(rows, np.array([9.0, 7.0]))
    assert found is not None
    np.testing.assert_allclose(found, [0.5, 7.0], rtol=1e-6)


@pytest.mark.parametrize("moved", [0.02, 0.5])
def test_a_weight_beside_the_grid_is_no_grid(moved: float) -> None:
    rows = codes(2, 40).astype(float)
    rows[1, 7] += moved
    assert grid_steps(rows, np.ones(2)) is None


def test_random_weights_lie_on_no_grid() -> None:
    assert grid_steps(GENERATOR.normal(size=(50, 9)), np.ones(50)) is None


def network(grid: bool) -> keras.Model:
    x = inputs = keras.Input((6, 6, 3), name="x")
    x = L.Conv2D(5, 3, activation="relu")(x)
    x = L.Flatten()(L.DepthwiseConv2D(3, activation="relu")(x))
    model = keras.Model(inputs, L.Dense(4)(x))
    for weight in model.weights:
        drawn = GENERATOR.normal(size=weight.shape) * 0.1
        if grid and len(weight.shape) > 1:
            drawn = codes(*weight.shape[::-1]).T * 0.003
        weight.assign(drawn.astype(np.float32))
    return model


def quantized(model: keras.Model) -> tuple[bytes, bytes, np.ndarray]:
    x = GENERATOR.random((32, 6, 6, 3)).astype(np.float32)
    calibration = [{"x": one[None]} for one in x]
    content = convert(model, "static_int8", calibration=calibration).content
    return content, convert(model, "float32").content, x


def kernels(content: bytes) -> list[np.ndarray]:
    """Every kernel as the file means it."""
    graph, found = read(content)[0], []
    for operator in graph.operators:
        if operator.name not in KINDS:
            continue
        tensor = graph.tensors[operator.inputs[1]]
        stored = values(tensor)
        assert stored is not None
        rows = stored.astype(np.float64).reshape(tensor.shape)
        if len(tensor.scales) > 1:
            sides = [1] * rows.ndim
            sides[tensor.quantized_dimension] = -1
            rows = rows * np.reshape(tensor.scales, sides)
        else:
            rows = rows * (tensor.scales[0] if tensor.scales else 1.0)
        found.append(rows)
    return found


def test_kernels_on_a_grid_are_the_float_models_and_outputs_no_farther() -> None:
    content, reference, x = quantized(network(grid=True))
    made = with_grids_of_kernels(content, reference)
    wanted = kernels(reference)
    assert len(wanted) == len(KINDS)
    for kernel, now, before in zip(wanted, kernels(made), kernels(content), strict=True):
        np.testing.assert_allclose(now, kernel, rtol=0, atol=1e-6)
        assert np.abs(before - kernel).max() > 1e-4
    (exact,) = load(reference).predict({"x": x})
    errors = [np.abs(load(one).predict({"x": x})[0] - exact).mean() for one in (made, content)]
    assert errors[0] < errors[1]


def test_a_model_without_grids_is_left_as_it_is() -> None:
    content, reference, _ = quantized(network(grid=False))
    assert with_grids_of_kernels(content, reference) is content
