"""The smallest model that LiteRT runs: what it costs to run any model at all."""

from __future__ import annotations

import flatbuffers
from ai_edge_litert import schema_py_generated as schema

_SCHEMA_VERSION = 3


def one_op_model() -> bytes:
    """Return a .tflite file of one RELU on one float32 number."""
    graph = schema.SubGraphT()
    graph.tensors = [_tensor("input"), _tensor("output")]
    graph.inputs, graph.outputs = [0], [1]
    graph.operators = [_relu()]
    code = schema.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.RELU
    model = schema.ModelT()
    model.version = _SCHEMA_VERSION
    model.operatorCodes, model.subgraphs, model.buffers = [code], [graph], [schema.BufferT()]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())


def _tensor(name: str) -> schema.TensorT:
    tensor = schema.TensorT()
    tensor.name, tensor.shape, tensor.type = name, [1, 1], schema.TensorType.FLOAT32
    tensor.buffer = 0
    return tensor


def _relu() -> schema.OperatorT:
    operator = schema.OperatorT()
    operator.opcodeIndex, operator.inputs, operator.outputs = 0, [0], [1]
    return operator
