"""Memory maps against bytes counted by hand, and against the addresses of a file's own plan."""

from __future__ import annotations

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from shrink.base.types import Array
from shrink.compact.graph import write_graph
from shrink.compact.memory_map import has_plan, memory_map
from shrink.compact.plan import plan
from shrink.compact.read import read_graph
from shrink.contract.compaction import Holder
from shrink.tflite.memory import read_plan
from shrink.tflite.model import Operator, Subgraph, read
from tests.compact.test_compact import wide
from tests.compact.test_plan import tiled_chain
from tests.compact.toys import Net, chain, random_net

THIN, WIDE = 48 * 24 * 4, 48 * 24 * 48


def read_bytes(graph: Subgraph, operator: Operator, index: int) -> slice:
    """Which bytes of an input an operator reads: a SLICE of rows, those rows alone."""
    tensor = graph.tensors[index]
    if operator.name != "SLICE":
        return slice(0, tensor.size_bytes)
    row = tensor.size_bytes // tensor.shape[1]
    begin, size = (graph.tensors[i].data.view("<i4") for i in operator.inputs[1:])
    return slice(int(begin[1]) * row, int(begin[1] + size[1]) * row)


def summed(graph: Subgraph, operator: Operator) -> int:
    """The int32 sums that TRANSPOSE_CONV keeps beside tensors, to 16 bytes."""
    if operator.name != "TRANSPOSE_CONV":
        return 0
    return -(-4 * graph.tensors[operator.outputs[0]].elements // 16) * 16


def needed_bytes(content: bytes) -> list[int]:
    """How many addresses hold what an operator or a later one reads or writes; from the end on."""
    (graph,), planned = read(content), read_plan(content)
    assert planned is not None

    def at(index: int, part: slice | None = None) -> Array:
        whole = part or slice(0, graph.tensors[index].size_bytes)
        found = np.zeros(planned.size_bytes, bool)
        found[planned.offsets[index] + whole.start : planned.offsets[index] + whole.stop] = True
        return found

    live = np.any([at(index) for index in graph.outputs], axis=0)
    counts = []
    for operator in reversed(graph.operators):
        written = np.any([at(index) for index in operator.outputs], axis=0)
        inputs = [i for i in operator.inputs if i >= 0 and not graph.tensors[i].constant]
        reads = [at(index, read_bytes(graph, operator, index)) for index in inputs]
        before = np.any([live & ~written, *reads], axis=0)
        counts.append(int(np.count_nonzero(before | live | written)) + summed(graph, operator))
        live = before
    return counts[::-1]


def test_a_map_of_a_file_without_a_plan_counts_whole_tensors() -> None:
    graph = read_graph(wide())
    found = memory_map(graph, has_plan(graph))
    assert found.live_bytes == (THIN + WIDE, WIDE + WIDE, WIDE + THIN)
    assert found.origins == (0, 1, 2)
    assert found.peak_operator == "DEPTHWISE_CONV_2D"
    names = [graph.tensors[o.outputs[0]].stored.name.decode() for o in graph.operators[:2]]  # type: ignore[union-attr]
    assert found.holders == tuple(Holder(name=n, live_bytes=WIDE, size_bytes=WIDE) for n in names)


def test_a_map_of_tiles_is_that_of_their_plan() -> None:
    graph, given = tiled_chain(4, kept=True)[0], read_graph(chain())
    content = write_graph(graph, plan(graph, 20).offsets)
    before, after = memory_map(given, planned=False), memory_map(graph, planned=True)
    assert list(after.live_bytes) == needed_bytes(content)
    assert max(after.live_bytes) < max(before.live_bytes)
    assert [after.origins.count(number) for number in range(3)] == [4, 4, 4]
    names = [operator.name for operator in read(content)[0].operators]
    brought = [name for name, o in zip(names, after.origins, strict=True) if o is None]
    assert set(brought) <= {"CONCATENATION", "SLICE"}
    assert after.peak_operator == names[after.live_bytes.index(max(after.live_bytes))]
    assert sum(holder.live_bytes for holder in after.holders) == max(after.live_bytes)
    whole = {tensor.size_bytes for tensor in read(chain())[0].tensors}
    assert {holder.size_bytes for holder in after.holders} <= whole
    # Read again, slices count as parts of what they are cut from, wherever they lie.
    again = read_graph(content)
    found = memory_map(again, has_plan(again)).live_bytes
    assert all(a <= b for a, b in zip(found, after.live_bytes, strict=True))


@pytest.mark.parametrize("seed", range(3))
def test_maps_of_random_graphs_are_those_of_their_plans(seed: int) -> None:
    graph = read_graph(random_net(seed))
    content = write_graph(graph, plan(graph, 5).offsets)
    found = memory_map(graph, planned=True)
    assert list(found.live_bytes) == needed_bytes(content)
    assert sum(holder.live_bytes for holder in found.holders) == max(found.live_bytes)


def test_a_scalar_without_a_stored_shape_has_one_element() -> None:
    net = Net((1, 2, 2, 4))
    scalar = net.tensor((), scale=1.0)
    net.graph.tensors[scalar].shape = None
    axes = net.tensor((4,), schema.TensorType.INT32, data=np.arange(4, dtype=np.int32))
    net.emit(schema.BuiltinOperator.MEAN, [net.input, axes], scalar)
    graph = read_graph(net.file(scalar))
    assert [one.size_bytes for one in memory_map(graph, planned=False).holders] == [16, 1]


def test_a_map_of_no_operators_is_empty() -> None:
    net = Net((1, 2, 2, 4))
    graph = read_graph(net.file(net.input))
    assert memory_map(graph, planned=False).live_bytes == ()
