"""Signals of one dimension as columns: the same bytes, and rows to cut."""

from __future__ import annotations

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from shrink.compact.columns import with_columns
from shrink.compact.compact import compact
from shrink.compact.graph import Graph, write_graph
from shrink.compact.plan import plan
from shrink.compact.read import read_graph
from shrink.compact.schedule import Tiling
from shrink.compact.segment import GraphInfo
from tests.compact.random_tilings import in_tiles
from tests.compact.runs import outputs_of
from tests.compact.toys import Net

_CODE, _KIND = schema.BuiltinOperator, schema.BuiltinOptions


def reshaped(net: Net, source: int, shape: tuple[int, ...]) -> int:
    options = schema.ReshapeOptionsT()
    options.newShape = np.array(shape, np.int32)
    data = np.array(shape, np.int32)
    given = net.tensor(data.shape, schema.TensorType.INT32, data=data)
    output = net.tensor(shape, scale=net.scale(source))
    return net.emit(_CODE.RESHAPE, [source, given], output, options, _KIND.ReshapeOptions)


def conv1d(net: Net, source: int, channels: int, size: int = 5, stride: int = 1) -> int:
    """As converters write it: to a row, convolved, and back to (1, steps, channels)."""
    _, steps, depth = net.shape(source)
    row = net.conv(reshaped(net, source, (1, 1, steps, depth)), channels, (1, size), stride)
    return reshaped(net, row, (1, net.shape(row)[2], channels))


def signal_net(steps: int = 40, middle: int = 16) -> bytes:
    """Convolutions over time with a residual, a dilated one, a pool and a causal PAD."""
    net = Net((1, steps, 3))
    x = conv1d(net, net.input, middle)
    x = net.add(x, conv1d(net, x, middle, 3))
    x = conv1d(net, x, 12, 5, stride=2)
    rows = reshaped(net, x, (1, 1, *net.shape(x)[1:]))
    pooled = net.pool(rows, 1, 1, average=False, padding=0)
    padded = net.pad(net.conv(pooled, 0, (1, 3), depthwise=True), (0, 0), (4, 0))
    return net.file(net.conv(padded, 6, (1, 3), padding=1, dilation=2))


def kinds(graph: Graph) -> list[str]:
    return [operator.name for operator in graph.operators]


def test_columns_give_the_bytes_of_rows() -> None:
    content = signal_net()
    given = read_graph(content)
    graph = with_columns(given)
    # One RESHAPE to a column, one of the output; those between are gone.
    assert kinds(graph).count("RESHAPE") == 2
    assert kinds(given).count("RESHAPE") == 7
    assert [graph.tensors[i].shape for i in graph.outputs] == [(1, 1, 20, 6)]
    assert outputs_of(write_graph(graph)) == outputs_of(content)


@pytest.mark.parametrize("cuts", [(10,), (3, 4, 11), tuple(range(1, 20))])
def test_columns_run_in_tiles(cuts: tuple[int, ...]) -> None:
    content = signal_net()
    info = GraphInfo(with_columns(read_graph(content)))
    count = len(info.rules)
    assert [place for place, rule in enumerate(info.rules) if rule is None] == [0, count - 1]
    outputs = {o.outputs[0] for o in info.graph.operators}
    for kept in (frozenset[int](), frozenset(outputs)):
        graph = in_tiles(info, [Tiling(1, count - 1, cuts, kept)])
        assert outputs_of(write_graph(graph, plan(graph, 50).offsets)) == outputs_of(content)


@pytest.mark.slow
def test_compact_cuts_signals_where_that_takes_less() -> None:
    content = signal_net(160, 64)
    found = compact(content)
    assert found.changed
    assert found.arena_after < 0.75 * found.arena_before
    assert any("row tiles" in line for line in found.done)
    assert found.equality is not None
    assert len(found.equality.runtimes) == 4
    assert outputs_of(found.content) == outputs_of(content)


def test_inputs_decide_the_outputs_of_signals() -> None:
    """The control: these comparisons can fail."""
    assert outputs_of(signal_net()) != outputs_of(signal_net(middle=12))
    assert len(set(outputs_of(signal_net())[-1])) == 2


def test_a_reshape_to_another_scale_stays() -> None:
    net = Net((1, 12, 3))
    row = reshaped(net, conv1d(net, net.input, 4), (1, 1, 12, 4))
    net.graph.tensors[row].quantization.scale *= 2
    content = net.file(net.conv(row, 4, (1, 3)))
    graph = with_columns(read_graph(content))
    # To a column, the one that stays, to a column, of the output.
    assert kinds(graph).count("RESHAPE") == 4
    assert outputs_of(write_graph(graph)) == outputs_of(content)


def test_a_kernel_of_several_rows_stays_as_it_is() -> None:
    net = Net((1, 1, 12, 3))
    graph = read_graph(net.file(net.conv(net.input, 4, (3, 3))))
    assert with_columns(graph) is graph
