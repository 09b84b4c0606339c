"""A .tflite file: read, inspected, changed and written.

`unpacked` gives the schema's objects, which edits change and `packed` writes. `read` gives frozen
views of them for everything that only looks. Both refuse corrupt and hostile files, and both give
operators their codes in the field that today's runtimes and tools read.
"""

from __future__ import annotations

import copy
import functools
import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

from shrink.base.errors import ModelError
from shrink.base.file_kinds import other_format
from shrink.base.types import Array

_IDENTIFIER = b"TFL3"
_AGAIN = "copy the file again, or convert the model again"
MALFORMED = (
    struct.error,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    OverflowError,
    MemoryError,
)
PLAN_ENTRY = "OfflineMemoryAllocation"
"""The metadata entry that says where activations lie; see `shrink.tflite.memory`."""


def corrupt(why: object) -> ModelError:
    """Return what is wrong with a .tflite file that is read, but is not what it should be."""
    return ModelError(f"the TFLite file is corrupt ({why})", hint=_AGAIN)


def names_of(enumeration: type) -> dict[int, str]:
    """Return the names of an enumeration of the schema by their numbers."""
    return {value: name for name, value in vars(enumeration).items() if isinstance(value, int)}


OPERATOR_NAMES = names_of(schema.BuiltinOperator)
_DTYPE_NAMES = names_of(schema.TensorType)
_ACTIVATION_NAMES = names_of(schema.ActivationFunctionType)
_LAST_OLD_CODE = schema.BuiltinOperator.PLACEHOLDER_FOR_GREATER_OP_CODES
_MOST_DIMENSIONS = 8


@dataclass(frozen=True)
class Sparsity:
    """Where the stored values of a sparse tensor belong, by rows of its last dimension traversed.

    Attributes:
        order: of the dimensions; all but the last are dense.
        starts: of each row among the values, and the end of the last, (rows + 1,).
        indices: of each value in its row, (values,).
    """

    order: tuple[int, ...]
    starts: Array
    indices: Array


_BITS = {
    **dict.fromkeys(("INT2",), 2),
    **dict.fromkeys(("INT4", "UINT4"), 4),
    **dict.fromkeys(("INT8", "UINT8", "BOOL", "FLOAT8_E4M3FN", "FLOAT8_E5M2"), 8),
    **dict.fromkeys(("INT16", "UINT16", "FLOAT16", "BFLOAT16"), 16),
    **dict.fromkeys(("INT64", "UINT64", "FLOAT64", "COMPLEX64"), 64),
    "COMPLEX128": 128,
}
"""Bits of a value; of all other types 32."""
_EMPTY = np.zeros(0, np.uint8)


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor of a subgraph; equal to itself alone.

    Attributes:
        name: as stored.
        shape: as stored; an unknown dimension is 1 here.
        dtype: the schema's name: FLOAT32, FLOAT16, INT8, INT4, ...
        scales: one per tensor or per channel; empty where the tensor is not quantized.
        zero_points: as many as scales.
        buffer: index of the file's buffer that holds its values.
        data: uint8 array of the stored bytes; empty for anything but a constant.
        sparse: the values are stored compressed, and `shape` is the dense one.
        sparsity: where they belong; None for other forms, such as blocks.
        variable: keeps its value between invocations.
        open_dimensions: whether a dimension other than the first is known only when the model
            runs; `shape` has a 1 there.
        quantized_dimension: along which scales go; that of a bias may be one that it has not.
        stored: the file's own description; None for a tensor that was added.
        no_alias: whether a memory plan must not place it inside another tensor.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    scales: tuple[float, ...] = ()
    zero_points: tuple[int, ...] = ()
    buffer: int = -1
    data: Array = field(default_factory=lambda: _EMPTY)
    sparse: bool = False
    variable: bool = False
    sparsity: Sparsity | None = None
    open_dimensions: bool = False
    quantized_dimension: int = 0
    stored: schema.TensorT | None = None
    no_alias: bool = False

    @property
    def constant(self) -> bool:
        """Whether the file holds its values."""
        return self.data.size > 0

    @property
    def elements(self) -> int:
        """The number of values of the dense tensor."""
        return math.prod(self.shape)

    @functools.cached_property
    def size_bytes(self) -> int:
        """The bytes of its dense values, without alignment."""
        return (self.elements * _BITS.get(self.dtype, 32) + 7) // 8

    @property
    def quantization(self) -> tuple[tuple[float, ...], tuple[int, ...]]:
        """Scales and zero points: values of two tensors with equal ones mean the same numbers."""
        return self.scales, self.zero_points


def constant_tensor(values: Array) -> Tensor:
    """Return a constant that is added to a file.

    Args:
        values: in its shape and type, such as int32.
    """
    data = np.frombuffer(np.ascontiguousarray(values).tobytes(), np.uint8)
    return Tensor("", values.shape, values.dtype.name.upper(), data=data)


@dataclass(frozen=True, eq=False)
class Operator:
    """An operator of a subgraph; equal to itself alone.

    Attributes:
        name: CONV_2D and so on, or the name of a custom operator.
        custom: whether it is a custom operator.
        inputs: indices of tensors of the subgraph; -1 for one left out.
        outputs: indices of tensors of the subgraph.
        subgraphs: that it runs: the condition and the body of a WHILE, the branches of an IF.
        options: the schema's object, such as Conv2DOptionsT; None where it has none.
        version: of its kernel.
        stored: the file's own operator; None for one that was added.
    """

    name: str
    custom: bool
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    subgraphs: tuple[int, ...] = ()
    options: Any = None
    version: int = 1
    stored: schema.OperatorT | None = None

    @property
    def fused_activation(self) -> str:
        """The schema's name of what is applied to the outputs, such as RELU6."""
        return _ACTIVATION_NAMES.get(getattr(self.options, "fusedActivationFunction", 0), "?")

    @property
    def axis(self) -> int:
        """Of a CONCATENATION, a GATHER and others that have one; else 0."""
        return int(getattr(self.options, "axis", 0))


@dataclass(frozen=True, eq=False)
class Subgraph:
    """Tensors, operators in order of execution, and the indices of inputs and outputs."""

    tensors: tuple[Tensor, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    def is_activation(self, index: int) -> bool:
        """Whether an operator's input or output is a tensor of the arena."""
        return index >= 0 and not self.tensors[index].constant

    def activations(self, indices: Iterable[int]) -> list[int]:
        """Return those of an operator's inputs or outputs that are tensors of the arena."""
        return [index for index in indices if self.is_activation(index)]

    def used(self) -> list[int]:
        """Return the indices of the tensors that inputs, outputs and operators name, in order."""
        named = {*self.inputs, *self.outputs}
        for operator in self.operators:
            named.update(operator.inputs, operator.outputs)
        return sorted(named - {-1})


def unpacked(content: bytes) -> schema.ModelT:
    """Return a file as the schema's objects, whose attributes can be changed.

    Converters of before 2021 wrote an operator's code into the deprecated field alone. It is
    copied: ai-edge-quantizer and TFLite Micro read the new field, and take a 0 there for ADD.

    Raises:
        ModelError: the content is truncated, corrupt, or no TFLite model.
    """
    if content[4:8] != _IDENTIFIER:
        raise ModelError("not a TFLite model: the identifier TFL3 is missing", hint=_AGAIN)
    try:
        counted = _CountedStrings(content)
        counted.budget = _Budget(content)
        _check_lengths(schema.Model.GetRootAs(counted, 0), counted.budget)
        model = schema.ModelT.InitFromPackedBuf(counted, 0)
        for buffer in model.buffers or []:
            if buffer.offset > 1:  # behind the flatbuffer, as ai-edge-quantizer and files > 2 GB do
                if buffer.offset + buffer.size > len(content):
                    raise ValueError("a buffer lies beyond the end")
                buffer.data = np.frombuffer(content, np.uint8, buffer.size, buffer.offset)
                buffer.offset = buffer.size = 0
        for code in model.operatorCodes or []:
            code.builtinCode = max(code.builtinCode, code.deprecatedBuiltinCode)
        if not model.subgraphs:
            raise ValueError("it holds no subgraph")
    except MALFORMED as error:
        raise _cut_short(error) from error
    return model


def _cut_short(error: Exception) -> ModelError:
    short = isinstance(error, struct.error)
    why = "an offset points beyond its end" if short else error
    return ModelError(f"the TFLite file is cut short or corrupt ({why})", hint=_AGAIN)


class _Budget:
    """Elements left to read: in a corrupt file lengths can be anything and vectors overlap."""

    def __init__(self, content: bytes) -> None:
        self._left = 8 * len(content)

    def spend(self, elements: int) -> None:
        """Raise `ValueError` where more elements were read than the file can hold."""
        self._left -= elements
        if self._left < 0:
            raise ValueError("its vectors are longer than the file")


class _CountedStrings(bytes):
    """A file of which strings alone are sliced, and copied: any number of tables can share one."""

    budget: _Budget

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            self.budget.spend(len(range(*key.indices(len(self)))))
        return super().__getitem__(key)


_TABLES = {
    "Model": ("OperatorCodes", "Subgraphs", "Buffers", "Metadata", "SignatureDefs"),
    "SubGraph": ("Tensors", "Operators"),
    "Tensor": ("VariantTensors",),
    "SignatureDef": ("Inputs", "Outputs"),
    "SparsityParameters": ("DimMetadata",),
}
"""Vectors of tables by the table that has them; those of numbers are views of the file."""


def _check_lengths(table: Any, budget: _Budget) -> None:
    """Raise `ValueError` where unpacking a table would make more objects than the file can hold."""
    for vector in _TABLES.get(type(table).__name__, ()):
        count = getattr(table, vector + "Length")()
        budget.spend(count)
        for index in range(count):
            child = getattr(table, vector)(index)
            if isinstance(child, schema.SubGraph | schema.Tensor | schema.SignatureDef):
                _check_lengths(child, budget)
            if isinstance(child, schema.Tensor) and child.Sparsity() is not None:
                _check_lengths(child.Sparsity(), budget)


class _AlignedBuilder(flatbuffers.Builder):
    """Aligns bytes as the schema asks (`force_align: 16`), which the generated code leaves out."""

    def StartVector(self, elemSize: int, numElems: int, alignment: int) -> int:
        """Begin a vector; a vector of bytes is a buffer of values."""
        return super().StartVector(elemSize, numElems, 16 if elemSize == 1 else alignment)


def packed(model: schema.ModelT, plan: schema.MetadataT | None = None) -> bytes:
    """Return the file of the schema's objects.

    A memory plan is right for the very tensors and operators that it was made for: any edit
    removes it.

    Args:
        model: the objects.
        plan: the metadata entry of a plan that is right for them.
    """
    used = {tensor.buffer for graph in model.subgraphs for tensor in graph.tensors or []}
    others = [one for one in model.metadata or [] if text(one.name) != PLAN_ENTRY]
    entries = others if plan is None else [*others, plan]
    used |= {one.buffer for one in entries}
    for one in model.metadata or []:
        if one.buffer not in used:
            model.buffers[one.buffer].data = None
    model.metadata = entries
    builder = _AlignedBuilder(1024)
    builder.Finish(model.Pack(builder), _IDENTIFIER)
    return bytes(builder.Output())


def text(name: bytes | str | None) -> str:
    """Return a name of the file, in which anything can stand."""
    return name if isinstance(name, str) else (name or b"").decode("utf-8", "replace")


def read(content: bytes) -> tuple[Subgraph, ...]:
    """Return the subgraphs of a .tflite file; the first one is the model's entry.

    Raises:
        ModelError: the content is truncated, corrupt, or no TFLite model.
    """
    return _unchanged(content)[1]


def opened(content: bytes) -> tuple[schema.ModelT, tuple[Subgraph, ...]]:
    """Return a file as the schema's objects, and views of its subgraphs.

    Raises:
        ModelError: the content is truncated, corrupt, or no TFLite model.
    """
    model = unpacked(content)
    views = _Views(model, _Budget(content))
    try:
        return model, tuple(map(views.subgraph, model.subgraphs))
    except MALFORMED as error:
        raise _cut_short(error) from error


_REMEMBERED_BYTES = 1 << 24
"""Files up to this size are unpacked once for several readers in a row, which change nothing."""
_opened_again = functools.lru_cache(maxsize=2)(opened)


def _unchanged(content: bytes) -> tuple[schema.ModelT, tuple[Subgraph, ...]]:
    return (_opened_again if len(content) <= _REMEMBERED_BYTES else opened)(content)


def read_file(path: Path) -> tuple[Subgraph, ...]:
    """Return the subgraphs of the .tflite file at `path`; see `read`."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ModelError(f"cannot be read: {error.strerror}", subject=path) from error
    if content[4:8] != _IDENTIFIER and (other := other_format(path)):
        raise ModelError(f"not a TFLite model: {other}", subject=path, hint=_AGAIN)
    return read(content)


def read_metadata(content: bytes, name: str) -> list[bytes]:
    """Return what the metadata entries of a name hold; few files have more than one.

    Raises:
        ModelError: the content is truncated, corrupt, or no TFLite model.
    """
    model = _unchanged(content)[0]
    try:
        buffers = [one.buffer for one in model.metadata or [] if text(one.name) == name]
        return [_data(model, buffer).tobytes() for buffer in buffers]
    except MALFORMED as error:
        raise _cut_short(error) from error


class _Views:
    """Views of a model's subgraphs, read with a budget: numbers can overlap as tables can."""

    def __init__(self, model: schema.ModelT, budget: _Budget) -> None:
        self._model = model
        self._budget = budget

    def subgraph(self, graph: schema.SubGraphT) -> Subgraph:
        tensors = graph.tensors or []
        count = len(tensors)
        return Subgraph(
            tensors=tuple(map(self._tensor, tensors)),
            operators=tuple(self._operator(operator, count) for operator in graph.operators or []),
            inputs=self._indices(graph.inputs, count),
            outputs=self._indices(graph.outputs, count),
        )

    def _operator(self, operator: schema.OperatorT, tensors: int) -> Operator:
        code = self._model.operatorCodes[operator.opcodeIndex]
        custom = code.builtinCode == schema.BuiltinOperator.CUSTOM
        name = OPERATOR_NAMES.get(code.builtinCode, str(code.builtinCode))
        return Operator(
            name=text(code.customCode) if custom else name,
            custom=custom,
            inputs=self._indices(operator.inputs, tensors),
            outputs=self._indices(operator.outputs, tensors),
            subgraphs=self._called(operator.builtinOptions),
            options=operator.builtinOptions,
            version=code.version,
            stored=operator,
        )

    def _called(self, options: object) -> tuple[int, ...]:
        if isinstance(options, schema.WhileOptionsT):
            called = (options.condSubgraphIndex, options.bodySubgraphIndex)
        elif isinstance(options, schema.IfOptionsT):
            called = (options.thenSubgraphIndex, options.elseSubgraphIndex)
        else:
            return ()
        if any(not 0 <= index < len(self._model.subgraphs) for index in called):
            raise ValueError("an operator runs a subgraph that does not exist")
        return called

    def _tensor(self, tensor: schema.TensorT) -> Tensor:
        shape = self._numbers(tensor.shape)
        if any(size < 0 for size in shape):
            raise ValueError("a tensor has a negative dimension")
        stored = tensor.quantization
        scaled = stored is not None and stored.scale is not None and len(stored.scale) > 0
        return Tensor(
            name=text(tensor.name),
            shape=shape,
            dtype=_DTYPE_NAMES[tensor.type],
            scales=tuple(map(float, self._numbers(stored.scale))) if scaled else (),
            zero_points=self._numbers(stored.zeroPoint) if scaled else (),
            buffer=tensor.buffer,
            data=_data(self._model, tensor.buffer),
            sparse=tensor.sparsity is not None,
            variable=bool(tensor.isVariable),
            sparsity=self._sparsity(tensor.sparsity, shape),
            open_dimensions=any(size < 0 for size in self._numbers(tensor.shapeSignature)[1:]),
            quantized_dimension=int(stored.quantizedDimension) if scaled else 0,
            stored=tensor,
        )

    def _sparsity(
        self, stored: schema.SparsityParametersT | None, shape: tuple[int, ...]
    ) -> Sparsity | None:
        if stored is None:
            return None
        order = self._numbers(stored.traversalOrder)
        levels = stored.dimMetadata or []
        dense, compressed = schema.DimensionType.DENSE, schema.DimensionType.SPARSE_CSR
        if [one.format for one in levels] != [dense] * (len(shape) - 1) + [compressed]:
            return None
        if len(shape) > _MOST_DIMENSIONS:
            raise ValueError(f"a sparse tensor has {len(shape)} dimensions")
        starts, indices = (
            np.array(self._numbers(vector.values), np.int64)
            for vector in (levels[-1].arraySegments, levels[-1].arrayIndices)
        )
        if sorted(order) != list(range(len(shape))):
            raise ValueError("a sparse tensor does not name each of its dimensions once")
        rows = math.prod(shape[axis] for axis in order[:-1])
        steps = np.diff(starts)
        if len(starts) != rows + 1 or starts[0] or np.any(steps < 0) or starts[-1] != len(indices):
            raise ValueError("the rows of a sparse tensor do not follow each other")
        if np.any(indices < 0) or np.any(indices >= shape[order[-1]]):
            raise ValueError("a sparse tensor has values beyond its dimensions")
        return Sparsity(order, starts, indices)

    def _numbers(self, stored: Any) -> tuple[int, ...]:
        if stored is None or isinstance(
            stored, int
        ):  # the generated code has 0 for an empty vector
            return ()
        self._budget.spend(len(stored))
        return tuple(np.asarray(stored).tolist())

    def _indices(self, stored: Any, tensors: int) -> tuple[int, ...]:
        indices = self._numbers(stored)
        if any(not -1 <= index < tensors for index in indices):
            raise ValueError("an operator names a tensor that does not exist")
        return indices


def _data(model: schema.ModelT, buffer: int) -> Array:
    data = model.buffers[buffer].data
    return np.zeros(0, np.uint8) if data is None else np.asarray(data, np.uint8)


def add_tensor_like(graph: schema.SubGraphT, index: int, suffix: str) -> int:
    """Add a copy of a tensor to a subgraph of an unpacked model.

    Args:
        graph: the subgraph.
        index: of the tensor to copy; the copy has its buffer, type, shape and quantization.
        suffix: what the copy's name has more, for quantizers tell tensors apart by their names.

    Returns:
        The copy's index.
    """
    added = copy.copy(graph.tensors[index])
    added.name = (added.name or b"") + suffix.encode()
    graph.tensors.append(added)
    return len(graph.tensors) - 1


def drop_unread_tensors(model: schema.ModelT) -> None:
    """Remove the tensors that nothing names, and what their buffers hold.

    TFLite Micro gives even such tensors a place in its arena.
    """
    for number, graph in enumerate(model.subgraphs):
        signatures = [one for one in model.signatureDefs or [] if one.subgraphIndex == number]
        maps = [one for s in signatures for one in (*(s.inputs or []), *(s.outputs or []))]
        lists = [(graph, "inputs"), (graph, "outputs")] + [
            (operator, name)
            for operator in graph.operators
            for name in ("inputs", "outputs", "intermediates")
            if getattr(operator, name) is not None
        ]
        named = {int(index) for owner, name in lists for index in getattr(owner, name)}
        kept = sorted((named | {one.tensorIndex for one in maps}) - {-1})
        place = {old: new for new, old in enumerate(kept)} | {-1: -1}
        graph.tensors = [graph.tensors[index] for index in kept]
        for owner, name in lists:
            moved = [place[int(index)] for index in getattr(owner, name)]
            setattr(owner, name, np.array(moved, np.int32))
        for one in maps:
            one.tensorIndex = place[one.tensorIndex]
    named = {tensor.buffer for graph in model.subgraphs for tensor in graph.tensors}
    named |= {one.buffer for one in model.metadata or []}
    for index, buffer in enumerate(model.buffers):
        if index not in named:
            buffer.data = None


def add_buffer(model: schema.ModelT, data: Array | None = None) -> int:
    """Add a buffer to an unpacked model, and return its index.

    Args:
        model: the model.
        data: what it holds; None for nothing yet.
    """
    buffer = schema.BufferT()
    if data is not None:
        buffer.data = np.frombuffer(np.ascontiguousarray(data).tobytes(), np.uint8)
    model.buffers.append(buffer)
    return len(model.buffers) - 1


def operator_code(model: schema.ModelT, builtin: int, version: int) -> int:
    """Return the index of an operator's code in an unpacked model, added where it has none.

    Args:
        model: the model.
        builtin: the operator, of `BuiltinOperator`.
        version: of the operator that is needed; a lower one that is there is raised.
    """
    for index, code in enumerate(model.operatorCodes):
        if code.builtinCode == builtin:
            code.version = max(code.version, version)
            return index
    model.operatorCodes.append(new_code(builtin, version))
    return len(model.operatorCodes) - 1


def new_code(builtin: int, version: int, custom: str = "") -> schema.OperatorCodeT:
    """Return the code of an operator, in the field that all runtimes read and the one before it."""
    code = schema.OperatorCodeT()
    code.builtinCode, code.deprecatedBuiltinCode = builtin, min(builtin, _LAST_OLD_CODE)
    code.version, code.customCode = version, custom or None
    return code


def normalized(content: bytes) -> bytes:
    """Return a file of any age in the form that quantizers take; the same one where it has it.

    - Operator codes stand in the new field; see `unpacked`.
    - A float16 constant behind DEQUANTIZE is the float32 constant that comes out of it, and a
      constant behind DENSIFY is dense. Runtimes compute both once, when they load a file.

    Raises:
        ModelError: the content is truncated, corrupt, or no TFLite model.
    """
    model, graphs = opened(content)
    given = schema.Model.GetRootAs(content, 0)
    old = any(
        code.builtinCode and not given.OperatorCodes(index).BuiltinCode()
        for index, code in enumerate(model.operatorCodes)
    )
    folded = [_fold_constants(model, *pair) for pair in zip(graphs, model.subgraphs, strict=True)]
    if any(folded):
        drop_unread_tensors(model)
    return packed(model) if old or any(folded) else content


_FOLDED = {("DEQUANTIZE", "FLOAT16"), ("DENSIFY", "FLOAT32"), ("DENSIFY", "FLOAT16")}


def _fold_constants(model: schema.ModelT, view: Subgraph, graph: schema.SubGraphT) -> bool:
    """Store what conversions of constants write, and leave the conversions out.

    Args:
        model: that is changed.
        view: of a subgraph as it was read.
        graph: the subgraph, which is changed.
    """
    constants: dict[int, Array] = {}
    buffers: dict[tuple[int, str], int] = {}
    origin = {index: tensor.buffer for index, tensor in enumerate(view.tensors)}
    kept = []
    for operator, stored in zip(view.operators, graph.operators or [], strict=True):
        source = operator.inputs[0] if operator.inputs else -1
        tensor = view.tensors[source]
        found = constants.get(source)
        if found is None and source >= 0 and tensor.constant:
            found = values(tensor)
        folds = (operator.name, tensor.dtype) in _FOLDED
        if not folds or found is None or set(operator.outputs) & set(view.outputs):
            kept.append(stored)
            continue
        output = operator.outputs[0]
        dtype = np.float32 if operator.name == "DEQUANTIZE" else found.dtype
        constants[output] = found.astype(dtype)
        origin[output] = origin[source]
        place = (origin[source], np.dtype(dtype).name)
        if place not in buffers:
            buffers[place] = add_buffer(model, constants[output])
        graph.tensors[output].buffer = buffers[place]
    if len(kept) == len(view.operators):
        return False
    graph.operators = kept
    return True


_MOST_DENSE_BYTES = 1 << 28
_NUMPY = {
    "FLOAT32": "<f4",
    "FLOAT16": "<f2",
    "FLOAT64": "<f8",
    "INT8": "i1",
    "UINT8": "u1",
    "INT16": "<i2",
    "INT32": "<i4",
    "INT64": "<i8",
}


def values(tensor: Tensor) -> Array | None:
    """Return a constant's values, flat, those that are not stored as 0.

    Returns:
        None for a type that numpy does not know, for sparse tensors of forms other than rows, and
        for those that take more than 256 MiB.
    """
    stored, sparsity = stored_values(tensor), tensor.sparsity
    if stored is None or not tensor.sparse:
        return stored
    too_large = tensor.elements * stored.itemsize > _MOST_DENSE_BYTES
    if sparsity is None or too_large or len(stored) != len(sparsity.indices):
        return None
    traversed = [tensor.shape[axis] for axis in sparsity.order]
    dense = np.zeros((len(sparsity.starts) - 1, traversed[-1]), stored.dtype)
    rows = np.repeat(np.arange(len(dense)), np.diff(sparsity.starts))
    dense[rows, sparsity.indices] = stored
    return dense.reshape(traversed).transpose(np.argsort(sparsity.order)).reshape(-1)


def stored_values(tensor: Tensor) -> Array | None:
    """Return the values that are stored, flat: of a sparse tensor those other than 0."""
    if tensor.dtype == "INT4":
        low, high = tensor.data & 0x0F, tensor.data >> 4
        nibbles = np.stack([low, high], axis=1).reshape(-1)[: tensor.elements].astype(np.int8)
        return np.where(nibbles > 7, nibbles - 16, nibbles)
    if tensor.dtype not in _NUMPY:
        return None
    dtype = np.dtype(_NUMPY[tensor.dtype])
    whole = tensor.data.size - tensor.data.size % dtype.itemsize
    return np.frombuffer(tensor.data[:whole].tobytes(), dtype)
