"""Passes: fewer operators or tensors, the same bytes."""

from __future__ import annotations

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from shrink.compact.arena import allocated_bytes
from shrink.compact.compact import compact
from shrink.compact.graph import Graph, write_graph
from shrink.compact.passes import (
    simplified,
    with_folded_pads,
    with_merged_reshapes,
    with_static_shapes,
    without_unread,
)
from shrink.compact.read import read_graph
from tests.compact.runs import outputs_of
from tests.compact.toys import Net

_CODE, _KIND = schema.BuiltinOperator, schema.BuiltinOptions
INT32 = schema.TensorType.INT32
VALID = 1


def names(graph: Graph) -> list[str]:
    return [operator.name for operator in graph.operators]


def flattened(
    keeps_dimensions: bool = False,
    examples: int = 1,
    rescaled: float = 1.0,
    zero_point: int = 0,
    read_again: bool = False,
) -> bytes:
    """A convolution, what flattens it, and a dense layer; a RELU of the flat values, too."""
    net = Net((1, 4, 4, 4))
    x = net.conv(net.input, 4)
    rows = (examples, 64 // examples)
    shape = net.tensor((2,), schema.TensorType.INT32, data=np.array(rows, np.int32))
    flat = net.tensor(rows, scale=rescaled * net.scale(x))
    net.graph.tensors[flat].quantization.zeroPoint[0] = zero_point
    net.emit(_CODE.RESHAPE, [x, shape], flat, schema.ReshapeOptionsT(), _KIND.ReshapeOptions)
    weights = net.rng.integers(-127, 128, (5, rows[1])).astype(np.int8)
    output = net.dense(flat, weights)
    net.graph.tensors[output].shape = np.array((examples, 5), np.int32)
    net.graph.operators[-1].builtinOptions.keepNumDims = keeps_dimensions
    return net.file(output, *([net.relu(flat)] if read_again else []))


def test_a_dense_layer_reads_a_feature_map() -> None:
    content = flattened()
    graph = without_unread(with_merged_reshapes(read_graph(content)))
    assert [operator.name for operator in graph.operators] == ["CONV_2D", "FULLY_CONNECTED"]
    rewritten = write_graph(graph)
    assert outputs_of(rewritten) == outputs_of(content)
    assert allocated_bytes(rewritten) < allocated_bytes(content)


@pytest.mark.parametrize("content", [flattened(keeps_dimensions=True), flattened(examples=2)])
def test_a_layer_that_reads_the_shape_keeps_its_reshape(content: bytes) -> None:
    names = [
        operator.name
        for operator in without_unread(with_merged_reshapes(read_graph(content))).operators
    ]
    assert names == ["CONV_2D", "RESHAPE", "FULLY_CONNECTED"]


@pytest.mark.parametrize(
    "content", [flattened(rescaled=2.0), flattened(zero_point=3)], ids=["scale", "zero point"]
)
def test_values_of_another_scale_keep_their_reshape(content: bytes) -> None:
    graph = read_graph(content)
    found = without_unread(with_merged_reshapes(graph))
    assert [operator.inputs for operator in found.operators] == [
        operator.inputs for operator in graph.operators
    ]
    assert [one.name for one in found.operators] == ["CONV_2D", "RESHAPE", "FULLY_CONNECTED"]


def test_a_reshape_stays_for_another_operator_that_reads_it() -> None:
    content = flattened(read_again=True)
    graph = without_unread(with_merged_reshapes(read_graph(content)))
    convolution, reshape, dense, relu = graph.operators
    assert [one.name for one in (convolution, reshape, dense, relu)] == [
        "CONV_2D", "RESHAPE", "FULLY_CONNECTED", "RELU",
    ]  # fmt: skip
    assert dense.inputs[0] == convolution.outputs[0]
    assert relu.inputs[0] == reshape.outputs[0]
    assert outputs_of(write_graph(graph)) == outputs_of(content)


@pytest.mark.parametrize("depthwise", [False, True])
@pytest.mark.parametrize(
    ("height", "stride", "rows", "folds"),
    [
        (12, 1, (1, 1), True),  # what SAME adds
        (12, 2, (0, 1), True),
        (13, 2, (1, 1), True),
        (12, 2, (1, 1), False),  # a row above more than SAME would
    ],
)
def test_a_pad_before_a_convolution_is_folded(
    height: int, stride: int, rows: tuple[int, int], folds: bool, depthwise: bool
) -> None:
    net = Net((1, height, height, 3))
    x = net.pad(net.conv(net.input, 4), rows, rows)
    content = net.file(net.conv(x, 5, (3, 3), stride, VALID, depthwise=depthwise))
    folded = with_folded_pads(read_graph(content))
    assert ("PAD" not in names(folded)) is folds
    assert outputs_of(write_graph(folded)) == outputs_of(content)


def test_a_pad_that_others_read_stays() -> None:
    net = Net((1, 12, 12, 3))
    padded = net.pad(net.conv(net.input, 4), (1, 1), (1, 1))
    graph = read_graph(net.file(net.conv(padded, 5, (3, 3), 1, VALID), net.relu(padded)))
    assert "PAD" in names(with_folded_pads(graph))


def test_a_folded_pad_is_no_other_order_and_what_nothing_reads_is_counted() -> None:
    net = Net((1, 12, 12, 3))
    first = net.conv(net.input, 4)
    net.relu(net.relu(first))
    content = net.file(net.conv(net.pad(first, (1, 1), (1, 1)), 5, (3, 3), 1, VALID))
    graph = read_graph(content)
    assert simplified(graph)[1] == (
        "operators left out that no output depends on: 2",
        "PADs folded into the convolutions that read them: 1",
    )


def test_what_no_output_depends_on_is_without_unread() -> None:
    net = Net((1, 8, 8, 3))
    used = net.conv(net.input, 4)
    net.conv(net.conv(net.input, 4), 4)
    content = net.file(used)
    graph = without_unread(read_graph(content))
    assert names(graph) == ["CONV_2D"]
    assert outputs_of(write_graph(graph)) == outputs_of(content)


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
    graph = without_unread(with_static_shapes(read_graph(content)))
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
    assert found.done[0].startswith("computed shapes made constants, so that LiteRT")
    assert found.done[0].endswith(": 1")
    assert found.arena_after < found.arena_before


def test_a_shape_that_follows_from_an_input_stays() -> None:
    graph = read_graph(upsampled(from_data=True))
    assert with_static_shapes(graph).operators == graph.operators
