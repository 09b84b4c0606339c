"""Edits of a .tflite file.

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

from collections.abc import Mapping, Sequence

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from shrink.base.types import Array
from shrink.tflite.model import (
    PLAN_ENTRY,
    add_buffer,
    add_tensor_like,
    drop_unread_tensors,
    operator_code,
    packed,
    read,
    read_metadata,
    text,
    unpacked,
    values,
)

_LARGEST_HALF = 65504
_STORED = {schema.TensorType.FLOAT32: "<f4", schema.TensorType.INT32: "<i4"}


def with_constants(content: bytes, constants: Mapping[tuple[int, int], Array]) -> bytes:
    """Return the model with other values for some constants of its first subgraph.

    A constant that several operators share changes for the named operator alone.

    Args:
        content: the .tflite file.
        constants: by index of the operator and position among its inputs, the new values in the
            stored shape; float32, or int32 for a constant of that type.
    """
    model = unpacked(content)
    graph = model.subgraphs[0]
    for (operator, position), array in constants.items():
        index = int(graph.operators[operator].inputs[position])
        stored = _STORED[graph.tensors[index].type]
        data = np.frombuffer(np.ascontiguousarray(array, stored).tobytes(), np.uint8)
        if _shared(model, graph, index):
            index = _add_copy(model, graph, index)
            inputs = list(graph.operators[operator].inputs)
            inputs[position] = index
            graph.operators[operator].inputs = inputs
        model.buffers[graph.tensors[index].buffer].data = data
    return packed(model)


def with_exact_constants(half: bytes, full: bytes) -> tuple[bytes, int]:
    """Store float16 constants as float32 where rounding them costs most.

    These are constants that shift or scale channels, such as the mean of a normalization: 100,000
    becomes 65,504, and 60,000 moves by up to 16. Kernels beyond 65,504 stay float32, too.

    Args:
        half: a file whose constants are float16 behind DEQUANTIZE, as TensorFlow converts.
        full: the same model in float32.

    Returns:
        The file, and how many constants it stores as float32 now.
    """
    exact: dict[tuple[str, tuple[int, ...]], list[Array]] = {}
    for tensor in (t for graph in read(full) for t in graph.tensors):
        if tensor.constant and tensor.dtype == "FLOAT32" and (found := values(tensor)) is not None:
            exact.setdefault((tensor.name, tensor.shape), []).append(found)
    model, kept = unpacked(half), 0
    for view, graph in zip(read(half), model.subgraphs, strict=True):
        affine = {
            index
            for operator in view.operators
            if operator.name in {"ADD", "SUB", "MUL", "DIV"}
            for index in operator.inputs
        }
        operators = []
        for operator, stored in zip(view.operators, graph.operators or [], strict=True):
            source = view.tensors[operator.inputs[0]] if operator.inputs else None
            rounded = values(source) if source is not None and source.constant else None
            operators.append(stored)
            if source is None or rounded is None or operator.name != "DEQUANTIZE":
                continue
            shifts = operator.outputs[0] in affine and source.elements == (*source.shape, 1)[-1]
            if source.dtype != "FLOAT16" or not (shifts or np.abs(rounded).max() >= _LARGEST_HALF):
                continue
            same = [
                found
                for found in exact.get((source.name, source.shape), [])
                if np.array_equal(
                    np.clip(found, -_LARGEST_HALF, _LARGEST_HALF).astype(np.float16), rounded
                )
            ]
            if same:
                graph.tensors[operator.outputs[0]].buffer = add_buffer(model, same[0])
                operators.pop()
                kept += 1
        graph.operators = operators
    if not kept:
        return half, 0
    drop_unread_tensors(model)
    return packed(model), kept


def exposing(content: bytes, tensors: Sequence[int]) -> bytes:
    """Return the model with these tensors of its first subgraph as its outputs.

    Operators that none of them needs are left out. Inputs keep the names that the signature gives
    them; with several signatures, or none, only those of their tensors.

    Args:
        content: the .tflite file.
        tensors: indices, each once, of activations (not of constants).
    """
    model = unpacked(content)
    graph = model.subgraphs[0]
    needed = set(tensors)
    operators = []
    for operator in reversed(graph.operators):
        if needed & set(operator.outputs):
            needed |= set(operator.inputs)
            operators.append(operator)
    graph.operators = operators[::-1]
    graph.outputs = list(tensors)
    model.signatureDefs = _only_signature(model)
    for signature in model.signatureDefs:
        signature.outputs = [_named_tensor(f"output_{n}", i) for n, i in enumerate(tensors)]
    return packed(model)


def with_ordered_borders(content: bytes, inputs: Sequence[str], outputs: Sequence[str]) -> bytes:
    """Return the model with inputs and outputs in the order of these names of its signature.

    The converter sorts them by rules of its own; a microcontroller knows them by number alone.

    Args:
        content: a .tflite file with one signature, which has every name.
        inputs: names of the inputs, each once.
        outputs: names of the outputs, each once; what several names mean stands there once.
    """
    model = unpacked(content)
    graph = model.subgraphs[0]
    for signature in _only_signature(model):
        orders = []
        for names, tensors in ((inputs, signature.inputs), (outputs, signature.outputs)):
            known = {text(one.name): int(one.tensorIndex) for one in tensors}
            orders.append(list(dict.fromkeys(known[name] for name in names if name in known)))
        before = (list(graph.inputs), list(graph.outputs))
        same_tensors = all(sorted(a) == sorted(b) for a, b in zip(before, orders, strict=True))
        if same_tensors and list(before) != orders:
            graph.inputs, graph.outputs = orders
            return packed(model)
    return content


def _only_signature(model: schema.ModelT) -> list[schema.SignatureDefT]:
    """Return the signature of the first subgraph where it is the only one, else none."""
    signatures = model.signatureDefs or []
    return list(signatures) if len(signatures) == 1 and not signatures[0].subgraphIndex else []


def _named_tensor(name: str, index: int) -> schema.TensorMapT:
    named = schema.TensorMapT()
    named.name, named.tensorIndex = name, index
    return named


def without_constant_names(content: bytes) -> bytes:
    """Return the model without the names of constants, which no runtime reads: 50 bytes each.

    Activations keep theirs, by which forms of a model are compared and layers are found; so do the
    constants of the last operators, for a converter names a model's outputs after nothing.

    Args:
        content: the .tflite file.
    """
    model = unpacked(content)
    for graph in model.subgraphs:
        last = [o for o in graph.operators if set(o.outputs) & set(graph.outputs)]
        kept = {i for operator in last for i in operator.inputs}
        for index, tensor in enumerate(graph.tensors):
            data = model.buffers[tensor.buffer].data
            if index not in kept and data is not None and len(data):
                tensor.name = None
    return packed(model)


def with_metadata(content: bytes, name: str, data: bytes) -> bytes:
    """Return the model with a metadata entry, which runtimes pass over.

    A memory plan stays: no tensor changes.

    Args:
        content: the .tflite file.
        name: of the entry; one that is there already is replaced.
        data: its content.
    """
    model = unpacked(content)
    entry = schema.MetadataT()
    entry.name, entry.buffer = name, add_buffer(model, np.frombuffer(data, np.uint8))
    plan = next((one for one in model.metadata or [] if one.name == PLAN_ENTRY.encode()), None)
    others = [one for one in model.metadata or [] if one.name != name.encode()]
    model.metadata = [*others, entry]
    return packed(model, plan)


def without_plan(content: bytes) -> bytes:
    """Return the model without its memory plan; as it is where it has none."""
    return packed(unpacked(content)) if read_metadata(content, PLAN_ENTRY) else content


def _shared(model: schema.ModelT, graph: schema.SubGraphT, index: int) -> bool:
    """Whether a constant has a second reader, or its values a second tensor."""
    readers = sum(list(operator.inputs).count(index) for operator in graph.operators)
    buffer = graph.tensors[index].buffer
    holders = sum(tensor.buffer == buffer for g in model.subgraphs for tensor in g.tensors)
    return readers > 1 or holders > 1


def _add_copy(model: schema.ModelT, graph: schema.SubGraphT, index: int) -> int:
    """Add a constant with a buffer of its own, which has no values yet; return its index."""
    added = add_tensor_like(graph, index, f";{len(graph.tensors)}")
    graph.tensors[added].buffer = add_buffer(model)
    return added


_LSTMS = {schema.BuiltinOperator.LSTM, schema.BuiltinOperator.UNIDIRECTIONAL_SEQUENCE_LSTM}
_REVERSE = schema.BuiltinOperator.REVERSE_V2
_PROJECTION, _STATE, _CELL = 16, 18, 19
_HIDDEN = 4
_CELL_SCALES = 2.0**-15, 2.0**-9


def with_ranges(content: bytes, ranges: Mapping[str, tuple[float, float]]) -> bytes:
    """Return a calibrated float model with other ranges of the tensors that are named."""
    if not ranges:
        return content
    model = unpacked(content)
    for tensor in (tensor for graph in model.subgraphs for tensor in graph.tensors):
        range_ = ranges.get(text(tensor.name))
        if range_ is not None and tensor.quantization is not None:
            tensor.quantization.min = [min(range_[0], 0.0)]
            tensor.quantization.max = [max(range_[1], 0.0)]
    return packed(model)


def with_mended_scales(content: bytes) -> bytes:
    """Return the model with scales by which LSTMs and reversals compute what was meant.

    Args:
        content: the .tflite file; returned as it is where it has no such operator.
    """
    model = unpacked(content)
    if not {code.builtinCode for code in model.operatorCodes} & {*_LSTMS, _REVERSE}:
        return content
    for graph in model.subgraphs:
        for operator in list(graph.operators):
            code = model.operatorCodes[operator.opcodeIndex].builtinCode
            if code in _LSTMS:
                _mend_lstm(graph, operator)
            elif code == _REVERSE:
                _mend_reverse(model, graph, operator)
    return packed(model)


def _mend_lstm(graph: schema.SubGraphT, operator: schema.OperatorT) -> None:
    state, cell = (graph.tensors[operator.inputs[position]] for position in (_STATE, _CELL))
    if cell.type != schema.TensorType.INT16:
        return
    low, high = _CELL_SCALES
    cell.quantization.scale = [min(max(float(cell.quantization.scale[0]), low), high)]
    output = graph.tensors[operator.outputs[0]]
    state.quantization = output.quantization
    if operator.inputs[_PROJECTION] < 0:
        graph.tensors[operator.intermediates[_HIDDEN]].quantization = output.quantization


def _mend_reverse(
    model: schema.ModelT, graph: schema.SubGraphT, operator: schema.OperatorT
) -> None:
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


def _scale(tensor: schema.TensorT) -> tuple[list[float], list[int]] | None:
    quantization = tensor.quantization
    if quantization is None or quantization.scale is None:
        return None
    return list(quantization.scale), list(quantization.zeroPoint)
