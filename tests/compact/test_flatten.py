"""RESHAPEs before dense layers are left out where the layer reads the same values without."""

from __future__ import annotations

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from shrink.compact.flatten import without_flattening
from shrink.compact.graph import read_graph, write_graph
from shrink.compact.sweep import swept
from shrink.compact.wheel import allocated_bytes
from tests.compact.runs import outputs_of
from tests.compact.toys import Net

_CODE, _KIND = schema.BuiltinOperator, schema.BuiltinOptions


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
    graph = swept(without_flattening(read_graph(content)))
    assert [operator.name for operator in graph.operators] == ["CONV_2D", "FULLY_CONNECTED"]
    rewritten = write_graph(graph)
    assert outputs_of(rewritten) == outputs_of(content)
    assert allocated_bytes(rewritten) < allocated_bytes(content)


@pytest.mark.parametrize("content", [flattened(keeps_dimensions=True), flattened(examples=2)])
def test_a_layer_that_reads_the_shape_keeps_its_reshape(content: bytes) -> None:
    names = [operator.name for operator in swept(without_flattening(read_graph(content))).operators]
    assert names == ["CONV_2D", "RESHAPE", "FULLY_CONNECTED"]


@pytest.mark.parametrize(
    "content", [flattened(rescaled=2.0), flattened(zero_point=3)], ids=["scale", "zero point"]
)
def test_values_of_another_scale_keep_their_reshape(content: bytes) -> None:
    graph = read_graph(content)
    found = swept(without_flattening(graph))
    assert [operator.inputs for operator in found.operators] == [
        operator.inputs for operator in graph.operators
    ]
    assert [one.name for one in found.operators] == ["CONV_2D", "RESHAPE", "FULLY_CONNECTED"]


def test_a_reshape_stays_for_another_operator_that_reads_it() -> None:
    content = flattened(read_again=True)
    graph = swept(without_flattening(read_graph(content)))
    convolution, reshape, dense, relu = graph.operators
    assert [one.name for one in (convolution, reshape, dense, relu)] == [
        "CONV_2D", "RESHAPE", "FULLY_CONNECTED", "RELU",
    ]  # fmt: skip
    assert dense.inputs[0] == convolution.outputs[0]
    assert relu.inputs[0] == reshape.outputs[0]
    assert outputs_of(write_graph(graph)) == outputs_of(content)
