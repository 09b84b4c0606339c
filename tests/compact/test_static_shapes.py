"""Shapes computed while a file runs become constants, where they depend on shapes alone."""

from __future__ import annotations

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from shrink.compact.compact import compact
from shrink.compact.graph import read_graph, write_graph
from shrink.compact.static_shapes import with_static_shapes
from shrink.compact.sweep import swept
from tests.compact.runs import outputs_of
from tests.compact.toys import Net

INT32 = schema.TensorType.INT32
_CODE, _KIND = schema.BuiltinOperator, schema.BuiltinOptions


def upsampled(channels: int = 4, from_data: bool = False) -> bytes:
    """As converters write it: the batch of a shape, packed with the other sizes of the output."""
    net = Net((1, 6, 5, 4))
    x = net.conv(net.input, channels)
    output = net.transposed(x, 6, 3, 2)
    transposed = net.graph.operators.pop()

    def constant(value: int | list[int]) -> int:
        data = np.array(value, np.int32)
        return net.tensor(data.shape, INT32, data=data)

    options = schema.ShapeOptionsT()
    options.outType = INT32
    shape = net.emit(_CODE.SHAPE, [x], net.tensor((4,), INT32), options, _KIND.ShapeOptions)
    if from_data:
        shape = net.tensor((4,), INT32)
        net.graph.inputs.append(shape)
    cut = schema.StridedSliceOptionsT()
    cut.shrinkAxisMask = 1
    ends = [constant([0]), constant([1]), constant([1])]
    batch = net.tensor((), INT32)
    net.emit(_CODE.STRIDED_SLICE, [shape, *ends], batch, cut, _KIND.StridedSliceOptions)
    packed = schema.PackOptionsT()
    packed.valuesCount, packed.axis = 4, 0
    sizes = [batch, *(constant(size) for size in (12, 10, 6))]
    transposed.inputs[0] = net.tensor((4,), INT32)
    net.emit(_CODE.PACK, sizes, transposed.inputs[0], packed, _KIND.PackOptions)
    net.graph.operators.append(transposed)
    return net.file(net.conv(output, 4))


def test_a_shape_that_follows_from_shapes_is_a_constant() -> None:
    content = upsampled()
    graph = swept(with_static_shapes(read_graph(content)))
    assert [o.name for o in graph.operators] == ["CONV_2D", "TRANSPOSE_CONV", "CONV_2D"]
    assert graph.values(graph.operators[1].inputs[0]).tolist() == [1, 12, 10, 6]
    # XNNPACK, the third runtime, takes no operator whose shape is computed, and rounds otherwise.
    got, wanted = outputs_of(write_graph(graph)), outputs_of(content)
    assert [got[place] for place in (0, 1, 3)] == [wanted[place] for place in (0, 1, 3)]


def test_compact_compares_xnnpack_on_constant_shapes() -> None:
    found = compact(upsampled(48))
    assert found.changed
    assert found.equality is not None
    assert found.equality.different == ()
    assert set(found.equality.runtimes) >= {"LiteRT reference", "LiteRT built-in", "TFLite Micro"}
    assert "1 computed shapes made constants" in found.done[0]
    assert found.arena_after < found.arena_before


def test_a_shape_that_follows_from_an_input_stays() -> None:
    graph = read_graph(upsampled(from_data=True))
    assert with_static_shapes(graph).operators == graph.operators
