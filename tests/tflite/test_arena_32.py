"""Estimated arenas of 32-bit targets: closed forms, and figures of builds that were recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shrink.tflite.arena import arena_of
from shrink.tflite.arena_32 import CMSIS_NN, REFERENCE, Kernels, arena_32_bytes
from shrink.tflite.memory import aligned
from shrink.tflite.model import Operator, Subgraph, Tensor
from tests.benchmarks.bench_arena_32 import KERNELS, digest, estimates
from tests.benchmarks.compact_models import MODELS, int8_file
from tests.compact.random_tilings import half_planned_file
from tests.compact.toys import random_net

_RECORDED = Path(__file__).with_name("arena_32.json")
_ONCE, _TENSOR = 446, 12


def tensor(shape: tuple[int, ...], dtype: str = "INT8", stored: bool = False) -> Tensor:
    data = np.zeros(99 if stored else 0, np.uint8)
    return Tensor("", shape, dtype, (), (), 0, data, sparse=False, variable=False)


def conv(*kernel: int, dtype: str = "INT8", name: str = "CONV_2D") -> Subgraph:
    """A convolution of 8 x 8 x 4 values, with its weights and without a bias."""
    one = 1 if name == "DEPTHWISE_CONV_2D" else 4
    activations = tensor((1, 8, 8, 4), dtype)
    tensors = (activations, tensor((one, *kernel), dtype, stored=True), activations)
    return Subgraph(tensors, (Operator(name, False, (0, 1), (2,)),), (0,), (2,))


def estimate(graph: Subgraph, head: int, kernels: Kernels = CMSIS_NN) -> int:
    return arena_32_bytes([graph], head, 5_000, (), kernels)


def arena(head: int, requests: int = 0, tensors: int = 3, kind: int = 48) -> int:
    """Return what comes out where activations and scratch buffers take so many bytes."""
    return aligned(head + 5_000 - _ONCE - tensors * _TENSOR - kind + 4 * requests)


@pytest.mark.parametrize(
    ("kernel", "name", "scratch"),
    [
        ((3, 3, 4), "CONV_2D", 144),  # two columns of 3 x 3 x 4 values as int16
        ((1, 1, 4), "CONV_2D", 0),
        ((3, 3, 4), "DEPTHWISE_CONV_2D", 0),
        ((5, 5, 4), "DEPTHWISE_CONV_2D", 208),  # 5 x 5 x 4 values as int16 are 200 bytes
    ],
)
def test_cmsis_nn_takes_scratch_beside_activations(
    kernel: tuple[int, ...], name: str, scratch: int
) -> None:
    graph, requests = conv(*kernel, name=name), int(scratch > 0)
    assert estimate(graph, 512) == arena(512 + scratch, requests)
    assert estimate(graph, 512, REFERENCE) == arena(512)


def test_kernels_of_floats_take_no_scratch() -> None:
    floats = conv(3, 3, 4, dtype="FLOAT32")
    assert estimate(floats, 2_048) == arena(2_048)


@pytest.mark.parametrize(
    ("depth", "buffers"),
    [
        # Up to 16 channels: sums of int32 of (7 x 2 + 3) columns and 3 rows, and nothing.
        (16, (4 * 17 * 3 * 8, 0)),
        # Else two columns of int16 of 3 x 3 x 32 values, and the reversed kernel.
        (32, (4 * 3 * 3 * 32, 3 * 3 * 32 * 8)),
    ],
)
def test_transposed_convolutions_take_other_scratch_than_reference_kernels(
    depth: int, buffers: tuple[int, int]
) -> None:
    tensors = (
        tensor((4,), "INT32", stored=True),
        tensor((8, 3, 3, depth), stored=True),
        tensor((1, 8, 8, depth)),
        tensor((1, 16, 16, 8)),
    )
    graph = Subgraph(tensors, (Operator("TRANSPOSE_CONV", False, (0, 1, 2), (3,)),), (2,), (3,))
    activations, sums = 64 * depth + 2_048, 4 * 2_048
    wheel = activations + sums  # the wheel's head has the scratch of reference kernels
    assert estimate(graph, wheel, REFERENCE) == arena(wheel, 0, 4)
    expected = activations + sum(map(aligned, buffers))
    assert estimate(graph, wheel) == arena(expected, 1, 4)


def test_what_planning_takes_binds_with_many_small_tensors() -> None:
    tensors = (*(tensor((1,)) for _ in range(501)),)
    operators = tuple(Operator("RELU", False, (i,), (i + 1,)) for i in range(500))
    graph = Subgraph(tensors, operators, (0,), (500,))
    planning = 24 + 501 * 24 + 501 * 40
    tail = 100_000 - _ONCE - 501 * _TENSOR - 500 * 32
    assert arena_32_bytes([graph], 32, 100_000, (), CMSIS_NN) == aligned(planning + tail)


def recorded() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(_RECORDED.read_text())["files"]
    return found


def check(content: bytes, name: str, folder: Path) -> None:
    """Compare an estimate with what 32-bit builds of TFLite Micro took."""
    path = folder / "model.tflite"
    path.write_bytes(content)
    found = estimates(arena_of(path, timeout_s=120))
    for kernels in KERNELS:
        assert found[kernels] == pytest.approx(recorded()[name]["measured"][kernels], rel=0.01)


@pytest.mark.parametrize("seed", range(3))
def test_estimates_are_near_builds_of_tflite_micro(tmp_path: Path, seed: int) -> None:
    for name, content in (
        (f"random {seed}", random_net(seed)),
        (f"random {seed}, planned", half_planned_file(seed)),
    ):
        assert recorded()[name]["sha256"] == digest(content), "record again: bench_arena_32"
        check(content, name, tmp_path)


def test_recorded_files_differ_by_kernels() -> None:
    """The control: an estimate that leaves out CMSIS-NN's scratch would be too low for some."""
    rows = [row["measured"] for row in recorded().values()]
    assert any(row["cmsis_nn"] > 1.02 * row["reference"] for row in rows)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Statistics for quantized inputs:UserWarning")
@pytest.mark.parametrize("name", [name for name in MODELS if name in recorded()])
def test_estimates_of_the_table_are_near_builds(tmp_path: Path, name: str) -> None:
    check(int8_file(name), name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3, 7))
def test_estimates_of_many_graphs_are_near_builds(tmp_path: Path, seed: int) -> None:
    check(random_net(seed), f"random {seed}", tmp_path)
    check(half_planned_file(seed), f"random {seed}, planned", tmp_path)
