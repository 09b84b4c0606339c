from __future__ import annotations

import itertools
import random
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from shrink.tflite.arena import arena_bytes
from shrink.tflite.planner import Lifetime, arena_32_bytes, lifetimes, plan, planned_bytes
from shrink.tflite.structure import Operator, Subgraph, Tensor


def tensor(size: int, constant: bool = False, variable: bool = False) -> Tensor:
    data = np.zeros(size if constant else 0, np.uint8)
    return Tensor("t", (size,), "INT8", (), (), 0, data, sparse=False, variable=variable)


def chain(*sizes: int) -> Subgraph:
    """Each operator reads one tensor and a constant of 99 bytes, and writes the next tensor."""
    tensors = (*map(tensor, sizes), tensor(99, constant=True))
    last = len(sizes)
    operators = tuple(
        Operator("RELU", custom=False, inputs=(i, last, -1), outputs=(i + 1,))
        for i in range(last - 1)
    )
    return Subgraph(tensors, operators, (0,), (last - 1,))


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((64,), 64),
        ((64, 32), 96),
        ((64, 128, 32), 192),
        ((16, 16, 16, 16), 32),
        ((10, 10), 32),  # each starts at a multiple of 16
    ],
)
def test_planned_bytes_of_a_chain_is_its_largest_neighbouring_pair(
    sizes: tuple[int, ...], expected: int
) -> None:
    assert planned_bytes(chain(*sizes)) == expected


def test_planned_bytes_keeps_a_skipped_over_tensor() -> None:
    graph = chain(64, 64, 64, 64)
    add = Operator("ADD", custom=False, inputs=(0, 2), outputs=(3,))
    assert planned_bytes(Subgraph(graph.tensors, (*graph.operators[:2], add), (0,), (3,))) == 192


def test_lifetimes_hold_variables_throughout_and_leave_out_constants() -> None:
    graph = chain(16, 16, 16)
    state = tensor(32, variable=True)
    reader = Operator("LSTM", custom=False, inputs=(0, 4), outputs=(1,))
    graph = Subgraph((*graph.tensors, state), (reader, graph.operators[1]), (0,), (2,))
    assert lifetimes(graph) == [
        Lifetime(16, 0, 0),
        Lifetime(16, 0, 1),
        Lifetime(16, 1, 1),
        Lifetime(32, 0, 1),
    ]


def test_plan_never_overlaps_and_aligns_offsets() -> None:
    source = random.Random(0)
    for _ in range(200):
        starts = [source.randrange(12) for _ in range(15)]
        blocks = [Lifetime(16 * source.randint(1, 9), s, s + source.randrange(5)) for s in starts]
        offsets = plan(blocks)
        for step in range(17):
            live = sorted(
                (offset, offset + block.size_bytes)
                for offset, block in zip(offsets, blocks, strict=True)
                if block.first <= step <= block.last
            )
            assert all(a[1] <= b[0] for a, b in itertools.pairwise(live))
        assert all(offset % 16 == 0 for offset in offsets)


def conv(*kernel: int, dtype: str = "INT8") -> Subgraph:
    """A convolution of 8 x 8 x 4 values, with its weights and without a bias."""
    shapes = ((1, 8, 8, 4), (4, *kernel), (1, 8, 8, 4))
    data = (np.zeros(0, np.uint8), np.zeros(99, np.uint8), np.zeros(0, np.uint8))
    tensors = tuple(
        Tensor("", shape, dtype, (), (), 0, stored, sparse=False, variable=False)
        for shape, stored in zip(shapes, data, strict=True)
    )
    return Subgraph(tensors, (Operator("CONV_2D", False, (0, 1), (2,)),), (0,), (2,))


def test_arena_32_bytes_adds_scratch_and_takes_off_what_pointers_take() -> None:
    tail = 5_000 - 3 * 12 - 49 - 490
    # Two columns of 3 x 3 x 4 values as int16 are 144 bytes; 1 x 1 needs none, nor do floats.
    # The input and the output are 256 bytes each.
    assert arena_32_bytes([conv(3, 3, 4)], 512, 5_000) == -(-(512 + 144 + tail) // 16) * 16
    assert arena_32_bytes([conv(1, 1, 4)], 512, 5_000) == -(-(512 + tail) // 16) * 16
    floats = conv(3, 3, 4, dtype="FLOAT32")
    assert arena_32_bytes([floats], 2_048, 5_000) == -(-(2_048 + tail) // 16) * 16


def test_arena_32_bytes_is_what_planning_takes_for_many_small_tensors() -> None:
    graph = chain(*(1 for _ in range(500)))
    tail = 100_000 - 501 * 12 - 499 * 29 - 490
    assert arena_32_bytes([graph], 32, 100_000) == -(-(268 + 501 * 24 + 500 * 40 + tail) // 16) * 16


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Statistics for quantized inputs:UserWarning")
@pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated:UserWarning")
def test_arena_32_bytes_is_near_a_build_of_tflite_micro(tmp_path: Path) -> None:
    """22,912 bytes: DS-CNN for 49 x 10 values, CMSIS-NN on 32-bit x86, commit 90b983c."""
    layers = keras.layers
    inputs = x = layers.Input((49, 10, 1))
    for kernel, stride in ((None, 2), *((3, 1),) * 4):
        if kernel is None:
            x = layers.Conv2D(64, (10, 4), stride, "same")(x)
        else:
            x = layers.ReLU(6.0)(layers.DepthwiseConv2D(kernel, stride, "same")(x))
            x = layers.Conv2D(64, 1)(x)
        x = layers.ReLU(6.0)(x)
    x = layers.Flatten()(layers.GlobalAveragePooling2D(keepdims=True)(x))
    model = keras.Model(inputs, layers.Dense(12, activation="softmax")(x))
    chance = np.random.default_rng(0)  # equal biases would be one tensor
    model.set_weights([chance.normal(0, 0.1, weight.shape) for weight in model.get_weights()])
    converter = tf.lite.TFLiteConverter.from_keras_model(model)  # as the recorded file was made
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = converter.inference_output_type = tf.int8
    converter.representative_dataset = lambda: [[chance.random((1, 49, 10, 1), np.float32)]] * 4
    path = tmp_path / "ds_cnn.tflite"
    path.write_bytes(converter.convert())
    found = arena_bytes(path)
    assert found.value == pytest.approx(24_368, abs=160)
    assert found.estimate_32.value == pytest.approx(22_912, rel=0.01)
