"""Mend the scales that the converter gives LSTMs and reversed tensors in integers.

Each of these kernels has a demand that the converter does not meet:

- The int8 LSTM writes the hidden state, read by the scale of an intermediate tensor, as output and
  as state: the three are one quantization. Where a concatenation or an addition gives the output
  another one, the converter leaves the others as they were, and every value is off by a factor.
- Its tanh knows cells in fixed point of 0 to 6 integer bits, scales of 2^-15 to 2^-9. Cells below
  0.5 get 2^-16, for which it computes nothing; above 64 the kernel refuses.
- REVERSE_V2 copies codes. Where a concatenation gives its output another scale, they mean other
  values; other operators that copy are converted right.

Source: TensorFlow 2.21, tensorflow/lite/kernels/unidirectional_sequence_lstm.cc, lstm_eval.cc and
reverse.cc.
"""

from __future__ import annotations

from typing import Any

from ai_edge_litert import schema_py_generated as schema

from shrink.tflite.edit import add_tensor_like, operator_code, packed, unpacked

_LSTMS = {schema.BuiltinOperator.LSTM, schema.BuiltinOperator.UNIDIRECTIONAL_SEQUENCE_LSTM}
_REVERSE = schema.BuiltinOperator.REVERSE_V2
_PROJECTION, _STATE, _CELL = 16, 18, 19
_HIDDEN = 4
_CELL_SCALES = 2.0**-15, 2.0**-9


def with_mended_scales(content: bytes) -> bytes:
    """Return the model with scales by which LSTMs and reversals compute what was meant.

    Args:
        content: the .tflite file; returned as it is where it has no such operator.
    """
    root = schema.Model.GetRootAs(content)
    codes = {root.OperatorCodes(i).BuiltinCode() for i in range(root.OperatorCodesLength())}
    if not codes & {*_LSTMS, _REVERSE}:
        return content
    model = unpacked(content)
    for graph in model.subgraphs:
        for operator in list(graph.operators):
            code = model.operatorCodes[operator.opcodeIndex].builtinCode
            if code in _LSTMS:
                _mend_lstm(graph, operator)
            elif code == _REVERSE:
                _mend_reverse(model, graph, operator)
    return packed(model)


def _mend_lstm(graph: Any, operator: Any) -> None:
    state, cell = (graph.tensors[operator.inputs[place]] for place in (_STATE, _CELL))
    if cell.type != schema.TensorType.INT16:
        return
    low, high = _CELL_SCALES
    cell.quantization.scale = [min(max(float(cell.quantization.scale[0]), low), high)]
    output = graph.tensors[operator.outputs[0]]
    state.quantization = output.quantization
    if operator.inputs[_PROJECTION] < 0:
        graph.tensors[operator.intermediates[_HIDDEN]].quantization = output.quantization


def _mend_reverse(model: Any, graph: Any, operator: Any) -> None:
    """Requantize what is reversed where input and output have different scales."""
    source = graph.tensors[operator.inputs[0]]
    output = graph.tensors[operator.outputs[0]]
    if _scale(source) == _scale(output):
        return
    requantized = add_tensor_like(graph, operator.inputs[0], ";requantized")
    graph.tensors[requantized].quantization = output.quantization
    quantize = schema.OperatorT()
    # Version 2: from integers to integers.
    quantize.opcodeIndex = operator_code(model, schema.BuiltinOperator.QUANTIZE, version=2)
    quantize.inputs, quantize.outputs = [operator.inputs[0]], [requantized]
    operator.inputs = [requantized, *operator.inputs[1:]]
    graph.operators.insert(graph.operators.index(operator), quantize)


def _scale(tensor: Any) -> tuple[list[float], list[int]] | None:
    found = tensor.quantization
    if found is None or found.scale is None:
        return None
    return list(found.scale), list(found.zeroPoint)
