from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from shrink.tflite.model import Operator, Subgraph, Tensor
from shrink.tflite.planner import Lifetime, lifetimes, plan, planned_bytes


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


def test_of_blocks_of_one_size_the_last_is_placed_first() -> None:
    """As TFLite Micro does: sizes count rounded up to 16 bytes, and of equal ones the last."""
    blocks = [Lifetime(17, 0, 0), Lifetime(30, 0, 0), Lifetime(40, 0, 0), Lifetime(32, 0, 0)]
    assert plan(blocks) == [112, 80, 0, 48]


def test_blocks_with_places_stay_and_others_take_the_gaps_between() -> None:
    blocks = [Lifetime(16, 0, 1), Lifetime(16, 0, 1, 0), Lifetime(16, 1, 2, 32), Lifetime(32, 0, 2)]
    assert plan(blocks) == [16, 0, 32, 48]
