"""Lifetimes and plans: greedy ones as TFLite Micro makes them, and those that files bring."""

from __future__ import annotations

import itertools
import random
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tflite_micro

from shrink.base.errors import ModelError
from shrink.tflite.arena import arena_of, predict_in_micro
from shrink.tflite.convert import convert
from shrink.tflite.edit import with_constants, with_metadata, without_plan
from shrink.tflite.memory import (
    ONLINE,
    Allocation,
    allocations,
    check_plan,
    greedy_plan,
    planned_bytes,
    read_plan,
    with_plan,
)
from shrink.tflite.model import (
    PLAN_ENTRY,
    Operator,
    Subgraph,
    Tensor,
    packed,
    read,
    read_metadata,
    unpacked,
)
from shrink.tflite.runtime import check_artifact
from tests.tflite.toys import samples, small_cnn


def tensor(*shape: int, data: list[int] | None = None, dtype: str = "INT8") -> Tensor:
    stored = np.zeros(0, np.uint8)
    if data is not None:
        dtype, stored = "INT32", np.frombuffer(np.array(data, "<i4").tobytes(), np.uint8)
    return Tensor("", shape, dtype, (), (), 0, stored, sparse=False, variable=False)


class Net:
    """A graph that is built operator by operator, by rows of 4 bytes."""

    def __init__(self, *rows: int) -> None:
        self.tensors = [tensor(1, count, 4) for count in rows]
        self.inputs = list(range(len(rows)))
        self.operators: list[Operator] = []

    def add(self, name: str, inputs: list[int], *shape: int, axis: int = 0) -> int:
        self.tensors.append(tensor(*shape))
        output = len(self.tensors) - 1
        self.operators.append(
            Operator(
                name,
                False,
                tuple(inputs),
                (output,),
                options=SimpleNamespace(axis=axis, fusedActivationFunction=0),
            )
        )
        return output

    def constant(self, *numbers: int) -> int:
        self.tensors.append(tensor(len(numbers), data=list(numbers)))
        return len(self.tensors) - 1

    def slice(self, source: int, start: int, rows: int) -> int:
        begin, size = self.constant(0, start, 0), self.constant(1, rows, 4)
        return self.add("SLICE", [source, begin, size], 1, rows, 4)

    def graph(self, *outputs: int) -> Subgraph:
        return Subgraph(
            tuple(self.tensors), tuple(self.operators), tuple(self.inputs), tuple(outputs)
        )


def checked(graph: Subgraph, offsets: dict[int, int]) -> None:
    check_plan(graph, [offsets.get(i, ONLINE) for i in range(len(graph.tensors))])


def refusal(graph: Subgraph, offsets: dict[int, int]) -> str:
    with pytest.raises(ModelError) as caught:
        checked(graph, offsets)
    return caught.value.message


def test_check_plan_accepts_an_output_over_rows_that_no_band_reads_any_more() -> None:
    net = Net(8)
    first = net.slice(0, 0, 5)
    upper = net.add("CONV_2D", [first], 1, 4, 4)
    second = net.slice(0, 3, 5)
    lower = net.add("CONV_2D", [second], 1, 4, 4)
    whole = net.add("CONCATENATION", [upper, lower], 1, 8, 4, axis=1)
    graph = net.graph(whole)
    # Slices lie in the input; the upper band before it, the lower one over its first three rows.
    rolled = {0: 20, first: 20, second: 32, upper: 0, lower: 16, whole: 0}
    checked(graph, rolled)
    checked(graph, {**rolled, lower: 56, whole: 72})
    assert "writes" in refusal(graph, {**rolled, upper: 4, lower: 20, whole: 4})  # over its slice
    assert "writes" in refusal(graph, {**rolled, upper: 8})  # over the slice that it reads
    assert "writes" in refusal(graph, {**rolled, whole: 4})  # bands at a wrong place
    assert "overwritten" in refusal(graph, {**rolled, second: 0, lower: 56, whole: 72})


def test_check_plan_counts_rows_that_a_later_band_reads() -> None:
    net = Net(8)
    first = net.slice(0, 0, 5)
    upper = net.add("CONV_2D", [first], 1, 2, 4)
    second = net.slice(0, 3, 5)
    end = net.add("CONV_2D", [upper, second], 1, 1, 4)
    graph = net.graph(end)
    dead = {0: 0, first: 32, upper: 4, second: 12, end: 52}
    checked(graph, dead)  # rows 1 and 2 are dead once the first slice was copied
    message = refusal(graph, {**dead, upper: 8})
    assert "overwritten by" in message
    assert "operator 2 (SLICE) reads" in message


def test_check_plan_counts_what_lies_between_the_columns_that_a_slice_reads() -> None:
    net = Net(4)
    begin, size = net.constant(0, 1, 2), net.constant(1, 2, 2)
    early = net.add("CONV_2D", [], 1, 1, 2)
    tile = net.add("SLICE", [0, begin, size], 1, 2, 2)
    end = net.add("CONV_2D", [tile, early], 1, 1, 4)
    graph = net.graph(end)
    checked(graph, {0: 0, early: 16, tile: 18, end: 24})
    assert "overwritten" in refusal(graph, {0: 0, early: 10, tile: 18, end: 24})


def test_check_plan_knows_which_operators_may_write_in_place() -> None:
    for name, allowed in {"RELU": True, "ADD": True, "CONV_2D": False, "MEAN": False}.items():
        net = Net(4)
        end = net.add(name, [0], 1, 4, 4)
        graph = net.graph(end)
        checked(graph, {0: 0, end: 16})
        if allowed:
            checked(graph, {0: 0, end: 0})
        else:
            assert "writes" in refusal(graph, {0: 0, end: 0})
        assert "writes" in refusal(graph, {0: 0, end: 4})


def test_check_plan_keeps_inputs_and_outputs_apart() -> None:
    net = Net(2, 2)
    end = net.add("ADD", [0, 1], 1, 2, 4)
    checked(net.graph(end), {0: 0, 1: 8, end: 0})
    assert "before the first operator" in refusal(net.graph(end), {0: 0, 1: 4, end: 16})
    assert "before the application" in refusal(net.graph(end, 0), {0: 0, 1: 8, end: 0})


def test_check_plan_refuses_offsets_that_do_not_suit() -> None:
    net = Net(2)
    net.tensors[0] = tensor(1, 2, 4, dtype="FLOAT32")
    end = net.add("CONV_2D", [0], 1, 2, 4)
    graph = net.graph(end)
    assert "lies at -2" in refusal(graph, {0: -2})
    assert "no multiple of its 4 bytes" in refusal(graph, {0: 2})
    assert "lies at 2,147,483,6" in refusal(graph, {0: 2**31 - 16})


def test_check_plan_counts_bytes_that_are_live_at_once() -> None:
    net, last = Net(1 << 20), 0
    for _ in range(36):
        last = net.add("RELU", [last], 1, 1 << 20, 4)
    places = {index: index % 2 << 22 for index in range(37)}
    checked(net.graph(last), places)
    assert "overwritten" in refusal(net.graph(0, last), places)
    every = Net(*[1 << 20] * 65)
    every.add("ADD", every.inputs, 1, 1, 4)
    found = refusal(every.graph(), dict.fromkeys(range(66), 0))
    assert "272,629,764, more than can be checked" in found


def test_check_plan_refuses_what_would_take_too_long() -> None:
    net, start = Net(1), time.process_time()
    parts = [net.add("CONV_2D", [0], 1, 1, 1) for _ in range(6_000)]
    net.operators = [Operator("SPLIT", False, (0,), tuple(parts))]
    graph = net.graph()
    assert "too many bytes" in refusal(graph, {part: part for part in parts})
    net.operators = [Operator("CONCATENATION", False, tuple(parts), (0,))]
    net.tensors[0] = tensor(6_000)
    assert "too many bytes" in refusal(net.graph(), {0: 6_001, **{part: part for part in parts}})
    assert time.process_time() - start < 3


def test_check_plan_leaves_the_work_memory_of_a_compiled_operator_to_its_compiler() -> None:
    net = Net(4)
    net.tensors.append(tensor(64))
    end = net.add("ethos-u", [1, 0], 1, 4, 4)
    checked(net.graph(end), {0: 0, 1: 0, end: 16})
    net.operators[0] = Operator("CUSTOM", True, (1, 0), (end,))
    assert "writes" in refusal(net.graph(end), {0: 0, 1: 0, end: 0})


def random_net(chance: random.Random) -> Subgraph:
    """Return a graph in which rows are sliced, copied, added, joined and convolved."""
    net = Net(chance.randint(3, 6))
    known = [0]
    for _ in range(chance.randint(2, 6)):
        source = chance.choice(known)
        rows = net.tensors[source].shape[1]
        kind = chance.choice(["CONV_2D", "RELU", "RESHAPE", "SLICE", "CONCATENATION"])
        if kind == "SLICE":
            start = chance.randrange(rows)
            known.append(net.slice(source, start, chance.randint(1, rows - start)))
        elif kind == "CONCATENATION":
            other = chance.choice(known)
            count = rows + net.tensors[other].shape[1]
            known.append(net.add(kind, [source, other], 1, count, 4, axis=1))
        else:
            known.append(net.add(kind, [source], 1, rows, 4))
    return net.graph(known[-1], chance.choice(known))


def numbers_of(graph: Subgraph, index: int) -> list[int]:
    return np.frombuffer(graph.tensors[index].data.tobytes(), "<i4").tolist()


def runs_right(graph: Subgraph, offsets: dict[int, int]) -> bool:
    """Run a plan with a number in each byte of a real arena; the plain reading of the rules."""
    sizes = {i: graph.tensors[i].size_bytes for i in offsets}
    arena = np.full(max(offsets[i] + sizes[i] for i in offsets), -1)
    right: dict[int, list[int]] = {}
    fresh = iter(range(1, 10**6))

    def place(index: int) -> slice:
        return slice(offsets[index], offsets[index] + sizes[index])

    for index in graph.inputs:
        right[index] = arena[place(index)] = [next(fresh) for _ in range(sizes[index])]
    for operator in graph.operators:
        (output,) = operator.outputs
        moving = [i for i in operator.inputs if i in offsets]
        low = 0
        if operator.name == "SLICE":
            low = 4 * numbers_of(graph, operator.inputs[1])[1]
        reads: list[int] = []
        result: list[int] = []
        for index in moving:
            count = sizes[output] if operator.name == "SLICE" else sizes[index]
            begin = offsets[index] + low
            if arena[begin : begin + count].tolist() != right[index][low : low + count]:
                return False
            target = {
                "SLICE": begin,
                "CONCATENATION": offsets[index] - len(result),
                "CONV_2D": -1,
            }.get(operator.name, offsets[index])
            if offsets[output] != target:
                reads += range(begin, begin + count)
            result += right[index][low : low + count]
        if set(reads) & set(range(offsets[output], offsets[output] + sizes[output])):
            return False
        if operator.name in ("CONV_2D", "RELU"):
            result = [next(fresh) for _ in range(sizes[output])]
        right[output] = arena[place(output)] = result
    return all(arena[place(i)].tolist() == right[i] for i in graph.outputs)


def test_check_plan_accepts_what_runs_right_byte_by_byte() -> None:
    chance = random.Random(5)
    seen = {True: 0, False: 0}
    for _ in range(4_000):
        graph = random_net(chance)
        moving = [i for i, one in enumerate(graph.tensors) if not one.constant]
        room = chance.choice([6, 12, 20])
        offsets = {i: 4 * chance.randrange(room) for i in moving}
        right = runs_right(graph, offsets)
        seen[right] += 1
        try:
            checked(graph, offsets)
            accepted = True
        except ModelError:
            accepted = False
        if right != accepted and any(o.inputs[0] in o.inputs[1:] for o in graph.operators):
            continue  # a concatenation of a tensor with itself: refused only in place
        assert accepted == right, (graph, offsets)
    assert min(seen.values()) > 200


@pytest.fixture(scope="module")
def int8() -> bytes:
    return convert(small_cnn(), "static_int8", samples(small_cnn(), 4), "int8", "int8").content


def greedy_offsets(content: bytes) -> list[int]:
    """Return the offsets of shrink's own greedy plan, by tensor."""
    graph = read(content)[0]
    offsets = [ONLINE] * len(graph.tensors)
    used = {i for o in graph.operators for i in (*o.inputs, *o.outputs)} | {*graph.inputs}
    moving = sorted(i for i in used if i >= 0 and not graph.tensors[i].constant)
    for index, offset in zip(moving, greedy_plan(allocations(graph)), strict=True):
        offsets[index] = offset
    return offsets


def test_with_plan_is_read_back_and_tflite_micro_computes_the_same(
    int8: bytes, tmp_path: Path
) -> None:
    offsets = greedy_offsets(int8)
    content = with_plan(int8, offsets)
    found = read_plan(content)
    assert found is not None
    assert list(found.offsets) == offsets
    assert found.size_bytes == planned_bytes(read(int8)[0])
    x = np.random.default_rng(0).random(
        (5, *read(int8)[0].tensors[read(int8)[0].inputs[0]].shape[1:]), np.float32
    )
    np.testing.assert_array_equal(predict_in_micro(content, x)[0], predict_in_micro(int8, x)[0])
    path = tmp_path / "planned.tflite"
    path.write_bytes(content)
    assert arena_of(path).value is not None
    check_artifact(path)


def test_a_plan_that_tflite_micro_runs_wrongly_is_refused(int8: bytes, tmp_path: Path) -> None:
    offsets = [0 if offset > 0 else offset for offset in greedy_offsets(int8)]
    good = with_plan(int8, greedy_offsets(int8))
    stored = np.array([1, 0, len(offsets), *offsets], "<i4").tobytes()
    model = unpacked(good)
    (entry,) = [one for one in model.metadata if one.name == PLAN_ENTRY.encode()]
    model.buffers[entry.buffer].data = np.frombuffer(stored, np.uint8)
    content = packed(model, entry)
    graph = read(int8)[0]
    shape = graph.tensors[graph.inputs[0]].shape[1:]
    rows = np.random.default_rng(0).integers(-128, 128, (5, *shape)).astype(np.int8)
    assert np.array_equal(run_in_micro(good, rows), run_in_micro(int8, rows))
    assert not np.array_equal(run_in_micro(content, rows), run_in_micro(int8, rows))
    path = tmp_path / "wrong.tflite"
    path.write_bytes(content)
    with pytest.raises(ModelError, match="memory plan is wrong: operator"):
        check_artifact(path)
    figure = arena_of(path)
    assert figure.value is None
    assert "memory plan is wrong" in figure.reason


def run_in_micro(content: bytes, rows: np.ndarray) -> np.ndarray:
    """Return stored outputs, whatever the plan is."""
    interpreter = tflite_micro.runtime.Interpreter.from_bytes(content, arena_size=1 << 20)
    outputs = []
    for row in rows:
        interpreter.set_input(row[None], 0)
        interpreter.invoke()
        outputs.append(np.array(interpreter.get_output(0)))
    return np.concatenate(outputs)


@pytest.mark.parametrize(
    ("numbers", "why"),
    [
        ([1, 0], "it has 8 bytes"),
        ([1, 0, 3, -1, -1, -1], "it says 3 tensors"),
        ([1, 0, -1], "it says -1 tensors"),
        ([1, 0, 2**31 - 1], "it says 2147483647 tensors"),
    ],
)
def test_read_plan_refuses_a_plan_of_another_shape(
    int8: bytes, numbers: list[int], why: str
) -> None:
    model = unpacked(with_plan(int8, greedy_offsets(int8)))
    entry = model.metadata[-1]
    model.buffers[entry.buffer].data = np.array(numbers, "<i4").view(np.uint8)
    with pytest.raises(ModelError, match=why):
        read_plan(packed(model, entry))


def test_every_edit_removes_a_plan_but_one_that_changes_no_tensor(int8: bytes) -> None:
    content = with_plan(int8, greedy_offsets(int8))
    graph = read(int8)[0]
    place = next(i for i, o in enumerate(graph.operators) if o.name == "CONV_2D")
    bias = graph.tensors[graph.operators[place].inputs[2]]
    edited = with_constants(content, {(place, 2): np.zeros(bias.shape, np.int32)})
    assert read_metadata(edited, PLAN_ENTRY) == []
    assert read_plan(without_plan(content)) is None
    assert without_plan(int8) is int8
    told = with_metadata(content, "labels", b"a\nb")
    assert read_plan(told) == read_plan(content)
    assert len(without_plan(content)) < len(content)


def bytes_tensor(size: int, constant: bool = False, variable: bool = False) -> Tensor:
    data = np.zeros(size if constant else 0, np.uint8)
    return Tensor("t", (size,), "INT8", (), (), 0, data, sparse=False, variable=variable)


def chain(*sizes: int) -> Subgraph:
    """Each operator reads one tensor and a constant of 99 bytes, and writes the next tensor."""
    tensors = (*map(bytes_tensor, sizes), bytes_tensor(99, constant=True))
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
    state = bytes_tensor(32, variable=True)
    reader = Operator("LSTM", custom=False, inputs=(0, 4), outputs=(1,))
    graph = Subgraph((*graph.tensors, state), (reader, graph.operators[1]), (0,), (2,))
    assert allocations(graph) == [
        Allocation(16, 0, 0),
        Allocation(16, 0, 1),
        Allocation(16, 1, 1),
        Allocation(32, 0, 1),
    ]


def test_plan_never_overlaps_and_aligns_offsets() -> None:
    source = random.Random(0)
    for _ in range(200):
        starts = [source.randrange(12) for _ in range(15)]
        blocks = [Allocation(16 * source.randint(1, 9), s, s + source.randrange(5)) for s in starts]
        offsets = greedy_plan(blocks)
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
    blocks = [
        Allocation(17, 0, 0),
        Allocation(30, 0, 0),
        Allocation(40, 0, 0),
        Allocation(32, 0, 0),
    ]
    assert greedy_plan(blocks) == [112, 80, 0, 48]


def test_blocks_with_places_stay_and_others_take_the_gaps_between() -> None:
    blocks = [
        Allocation(16, 0, 1),
        Allocation(16, 0, 1, 0),
        Allocation(16, 1, 2, 32),
        Allocation(32, 0, 2),
    ]
    assert greedy_plan(blocks) == [16, 0, 32, 48]
