"""An artifact run in LiteRT, in this process: real numbers in and out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from shrink.base.errors import DataError, ModelError
from shrink.base.types import Array
from shrink.tflite.litert_twin import litert_twin
from shrink.tflite.memory import lifetimes, live_bytes
from shrink.tflite.model import PLAN_ENTRY, Operator, Subgraph, read, read_metadata, values
from shrink.tflite.names import Named, ordered

Arrays = list[Array]

_THREADS = 2
WITH_XNNPACK, BUILT_IN = "AUTO", "BUILTIN_WITHOUT_DEFAULT_DELEGATES"
"""Kernels of LiteRT, by its names of operator resolvers."""


@dataclass(frozen=True)
class TensorDetail:
    """An input or output of an artifact.

    Attributes:
        name: its name in the signature, else the tensor's; numbered where two would be alike.
        shape: as stored in the file, batch first.
        dtype: of the tensor itself.
        scale: of the quantization `real = scale * (stored - zero_point)`; 0.0 where there is none.
        zero_point: see `scale`.
        index: of the tensor in the file's first subgraph.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    scale: float
    zero_point: int
    index: int = -1


class Session:
    """An interpreter that runs up to `batch` examples in one invocation.

    Args:
        content: the .tflite file.
        batch: rows per invocation; None keeps the file's own.

    Raises:
        ModelError: no TFLite model, or one that cannot be resized or run.
    """

    def __init__(self, content: bytes, batch: int | None = None) -> None:
        try:
            self._interpreter = allocated(content, threads=_THREADS, batch=batch)
            self._describe()
        except RuntimeError as error:
            raise _cannot_prepare(error, content) from error
        except ValueError as error:  # or names that are no UTF-8
            raise ModelError(f"not a TFLite model: {_brief(error)}") from error
        self.batch = self.inputs[0].shape[0] if self.inputs and self.inputs[0].shape else 1

    def _describe(self) -> None:
        signatures = self._interpreter._get_full_signature_list()
        self.signatures = tuple(signatures)
        names = next(iter(signatures.values())) if len(signatures) == 1 else {}
        inputs = self._interpreter.get_input_details()
        stored = self._interpreter.get_output_details()
        self.output_positions = tuple(_in_model_order(stored, names.get("outputs", {})))
        outputs = [stored[position] for position in self.output_positions]
        self._input_indices = [detail["index"] for detail in inputs]
        self._output_indices = [detail["index"] for detail in outputs]
        self.inputs = described(inputs, names.get("inputs", {}))
        self.outputs = described(outputs, names.get("outputs", {}))

    def run(self, arrays: Arrays) -> Arrays:
        """Return the outputs of 1 to `batch` examples, one array (n, ...) each; see `dequantize`.

        With a batch of 1, an output without an axis for the batch is the example's: the converter
        writes the statistics of a layer normalisation so.

        Raises:
            ModelError: a kernel failed, or the outputs do not have one row per example.
        """
        count = len(arrays[0])
        for index, array, detail in zip(self._input_indices, arrays, self.inputs, strict=True):
            rows = np.minimum(np.arange(self.batch), count - 1)  # the last one again and again
            self._interpreter.set_tensor(index, quantize(array, detail)[rows])
        # Recurrent layers keep their state between invocations, and examples are independent.
        self._interpreter.reset_all_variables()
        try:
            self._interpreter.invoke()
        except (RuntimeError, ValueError) as error:
            raise ModelError(f"LiteRT cannot run the model: {_brief(error)}") from error
        raw = [self._interpreter.get_tensor(index) for index in self._output_indices]
        if self.batch == 1:
            raw = [o if o.shape[:1] == (1,) else o[None] for o in raw]
        if any(not output.shape or len(output) != self.batch for output in raw):
            raise ModelError("an output does not have one row per example")
        return [dequantize(o[:count], d) for o, d in zip(raw, self.outputs, strict=True)]


def quantize(array: Array, detail: TensorDetail) -> Array:
    """Return real numbers as a tensor stores them: rounded half to even, clipped to its dtype."""
    if not detail.scale:
        return array.astype(detail.dtype)
    limits = np.iinfo(detail.dtype)
    stored = np.rint(array / np.float32(detail.scale)) + detail.zero_point
    return np.clip(stored, limits.min, limits.max).astype(detail.dtype)


def dequantize(array: Array, detail: TensorDetail) -> Array:
    """Return the numbers that stored values stand for: of integers float64, else float32.

    In float32 the product with the scale is rounded: logits of two examples that differ by one
    constant, and so have the same probabilities, would no longer do so.
    """
    if not detail.scale:
        return array.astype(np.float32)
    return (array.astype(np.float64) - detail.zero_point) * float(detail.scale)


def allocated(
    model: bytes | str, kernels: str = "", threads: int = 1, batch: int | None = None
) -> Interpreter:
    """Return an allocated interpreter.

    Args:
        model: a .tflite file, or its path, which LiteRT maps into memory.
        kernels: the name of an operator resolver; by default XNNPACK, and the built-in kernels for
            a graph that it refuses.
        threads: that it uses.
        batch: rows per invocation; None keeps the file's own.

    Raises:
        ValueError: no TFLite model.
        RuntimeError: no kernels run it, or not with this batch.
    """
    given = {"model_content": model} if isinstance(model, bytes) else {"model_path": model}
    for each in [kernels] if kernels else [WITH_XNNPACK, BUILT_IN]:
        interpreter = Interpreter(
            **given, num_threads=threads, experimental_op_resolver_type=OpResolverType[each]
        )
        if batch is not None:
            for detail in interpreter.get_input_details():
                interpreter.resize_tensor_input(detail["index"], [batch, *detail["shape"][1:]])
        try:
            interpreter.allocate_tensors()
            break
        except RuntimeError:
            if each != WITH_XNNPACK or kernels:
                raise
    return interpreter


def _cannot_prepare(error: RuntimeError, content: bytes) -> ModelError:
    """Return what LiteRT says, in fewer words where it lacks a custom operator."""
    custom = re.search(r"unresolved custom op: (.+?)\. See", _brief(error))
    if custom is None:
        graph = read(content)[0]
        if flex := sorted({o.name for o in graph.operators if o.name.startswith("Flex")}):
            return ModelError(
                f"LiteRT has no kernels for operators of TensorFlow: {', '.join(flex)}",
                hint="replace their layers, and convert the model without SELECT_TF_OPS",
            )
        opened = [graph.tensors[i].name for i in graph.inputs if graph.tensors[i].open_dimensions]
        hint = "convert the model again with an input of a fixed shape" if opened else None
        why = f" (the shape of {', '.join(opened)} is open)" if opened else ""
        return ModelError(f"LiteRT cannot prepare the model{why}: {_brief(error)}", hint=hint)
    return ModelError(
        f"LiteRT has no kernel for the custom operator {custom[1]}",
        hint="`shrink inspect FILE` lists its operators; give the file as it was before it was "
        "compiled for a device, or the Keras model",
    )


def described(
    details: Sequence[dict[str, Any]], signature: dict[str, int]
) -> tuple[TensorDetail, ...]:
    """Return inputs or outputs as LiteRT describes them; arrays go by their names, made unique."""
    by_index = {index: name for name, index in signature.items()}
    names = [by_index.get(detail["index"], plain_name(detail["name"])) for detail in details]
    if len(set(names)) < len(names):
        names = [f"{name}_{position}" for position, name in enumerate(names)]
    return tuple(
        TensorDetail(
            name=name,
            shape=tuple(int(size) for size in detail["shape"]),
            dtype=np.dtype(detail["dtype"]),
            scale=float(detail["quantization"][0]),
            zero_point=int(detail["quantization"][1]),
            index=int(detail["index"]),
        )
        for detail, name in zip(details, names, strict=True)
    )


def plain_name(tensor: str) -> str:
    """Return a tensor's name without what TensorFlow's savers put around it."""
    return re.sub(r":\d+$", "", tensor.removeprefix("serving_default_"))


def _in_model_order(details: Sequence[dict[str, Any]], names: dict[str, int]) -> list[int]:
    """Return the positions of outputs by the number in their names output_0, output_1, ..."""
    numbers = {
        index: int(match.group(1))
        for name, index in names.items()
        if (match := re.fullmatch(r"output_(\d+)", name))
    }
    positions = list(range(len(details)))
    if {detail["index"] for detail in details} != set(numbers):
        return positions
    return sorted(positions, key=lambda position: numbers[details[position]["index"]])


def _brief(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


# A row that was run in a batch may differ from the row alone by rounding only.
_RELATIVE_TOLERANCE = 1e-3
_MOST_ARENA_BYTES = 512_000_000


class Runner:
    """An artifact that is ready to run.

    Attributes:
        input_details: name, shape, dtype, scale and zero point, in the artifact's order of inputs,
            which need not be the Keras model's; arrays are given by name.
        output_details: likewise, in the order of the numbers that their signature's names end in;
            artifacts made by `shrink.tflite.convert` have the Keras order.
        output_positions: the position of each of these among the outputs of the file.
    """

    def __init__(self, content: bytes) -> None:
        self._content = litert_twin(content)  # of a file that only TFLite Micro runs as it is
        self._single = self._batched = Session(self._content)
        if len(found := self._single.signatures) > 1:
            raise ModelError(
                f"the .tflite file has {len(found)} signatures ({', '.join(found)}), and does not "
                "say which is the model",
                hint="convert one of the model's functions alone",
            )
        graphs = read(self._content)
        graph = graphs[0]
        self._resizable = not _has_fixed_batch(self._content, graphs)
        cells = ((0, graph.tensors[i].size_bytes, *life) for i, life in lifetimes(graph).items())
        live = max(live_bytes(cells, len(graph.operators)))
        self._most_rows = max(1, _MOST_ARENA_BYTES // max(live, 1))
        self.input_details: tuple[TensorDetail, ...] = self._single.inputs
        self.output_details: tuple[TensorDetail, ...] = self._single.outputs
        self.output_positions: tuple[int, ...] = self._single.output_positions

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs, in the artifact's order."""
        return tuple(detail.name for detail in self.input_details)

    def predict(self, inputs: Named | Array, batch_size: int = 250) -> list[Array]:
        """Return the outputs for n examples, an array (n, ...) for each; see `dequantize`.

        Args:
            inputs: an array (n, ...) for each input by its name, or the array of the only input.
                Integer inputs are quantized from it: rounded half to even, then clipped.
            batch_size: the number of examples per invocation, where the graph can be resized; fewer
                where activations take more than 512 MB.

        Raises:
            DataError: names or shapes of the arrays are not those of the artifact's inputs.
            ModelError: the artifact fails while running.
        """
        arrays = ordered(inputs, self.input_names)
        count = self._check(arrays)
        if count == 0:
            return [np.zeros((0, *d.shape[1:]), np.float32) for d in self.output_details]
        # A power of two fits several small counts: proving a batch costs more than filling it up.
        session = self._session(arrays, min(batch_size, 1 << (count - 1).bit_length()))
        starts = range(0, count, session.batch)
        chunks = [session.run([a[i : i + session.batch] for a in arrays]) for i in starts]
        return [np.concatenate(column) for column in zip(*chunks, strict=True)]

    def _session(self, arrays: Arrays, batch: int) -> Session:
        """Return a session of `batch` rows that is proven on these rows; of fewer rows otherwise.

        How many it has depends on this call alone, not on earlier ones.
        """
        batch = min(batch, self._most_rows)
        if batch <= self._single.batch or not self._resizable:
            return self._single
        if self._batched.batch != batch:
            try:
                session = Session(self._content, batch)
                self._resizable = _agrees(session, self._single, [one[:batch] for one in arrays])
            except ModelError:  # it cannot be resized, or not run so: it still runs as it was made
                self._resizable = False
            if not self._resizable:
                return self._single
            self._batched = session
        return self._batched

    def _check(self, arrays: Arrays) -> int:
        for array, detail in zip(arrays, self.input_details, strict=True):
            if array.shape[1:] != detail.shape[1:] or len(array) != len(arrays[0]):
                raise DataError(
                    f"an array of shape {array.shape} does not suit the artifact's input "
                    f"{detail.shape}",
                    subject=detail.name,
                )
        return len(arrays[0])


def _has_fixed_batch(content: bytes, graphs: Sequence[Subgraph]) -> bool:
    """Whether a file is for the batch that it has, whatever LiteRT makes of another one.

    A memory plan is for tensors of one size. In a file that runs in row tiles, every SLICE
    names the one example that it takes rows of: of four it would take the first, and what it is
    added to would hide that.
    """
    if read_metadata(content, PLAN_ENTRY):
        return True
    return any(
        _takes_one(graph, operator)
        for graph in graphs
        for operator in graph.operators
        if operator.name == "SLICE" and len(operator.inputs) == 3
    )


def _takes_one(graph: Subgraph, operator: Operator) -> bool:
    source, size = graph.tensors[operator.inputs[0]], graph.tensors[operator.inputs[2]]
    sizes = values(size) if size.constant else None
    return source.shape[:1] == (1,) and sizes is not None and sizes.flat[0] == 1


def load(content_or_path: bytes | str | Path) -> Runner:
    """Return a `Runner` for a .tflite file or its content.

    Raises:
        ModelError: the file is missing, is no TFLite model, or no kernel can run it.
    """
    if isinstance(content_or_path, bytes):
        return Runner(content_or_path)
    try:
        content = Path(content_or_path).read_bytes()
    except OSError as error:
        raise ModelError(f"cannot be read: {error.strerror}", subject=content_or_path) from error
    return Runner(content)


def _agrees(batched: Session, single: Session, arrays: Arrays) -> bool:
    """Tell whether the first and the last row come out of a batch as they do alone.

    A reshape with a constant batch can survive a resize and mix the rows.
    """
    together = batched.run(arrays)
    for row in {0, len(arrays[0]) - 1}:
        alone = single.run([a[row : row + 1] for a in arrays])
        for mixed, right, detail in zip(together, alone, single.outputs, strict=True):
            largest = float(np.abs(right[np.isfinite(right)]).max(initial=0))
            slack = _RELATIVE_TOLERANCE * largest + detail.scale
            if mixed.shape[1:] != right.shape[1:] or not np.allclose(
                mixed[row], right[0], rtol=0, atol=slack + 1e-6, equal_nan=True
            ):
                return False
    return True


def random_values(
    rng: np.random.Generator, shape: Sequence[int], dtype: np.dtype[Any] | type
) -> Array:
    """Return made-up values of an input as it is stored, (n, ...), for the same seed the same.

    Integers of up to 16 bits take any number of their type: noise, and for pictures smooth fields
    in turn with it. Real numbers lie in [0, 1), and other types, which may hold indices, are 0 or
    1.
    """
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        return rng.random(shape).astype(dtype)
    if dtype.itemsize > 2 or dtype.kind not in "iu":
        return rng.integers(0, 2, shape).astype(dtype)
    limits = np.iinfo(dtype.name)
    drawn = rng.integers(limits.min, limits.max + 1, shape)
    if len(shape) == 4:
        rows, columns = np.mgrid[0 : shape[1], 0 : shape[2]]
        middle, reach = (limits.max + limits.min) / 2, (limits.max - limits.min) / 2
        for place in range(0, shape[0], 2):
            a, b, c, level = rng.normal(size=4)
            field = np.sin(a * rows / 4 + b) * np.cos(c * columns / 4) + level / 2
            drawn[place] = np.clip(middle + reach * field[:, :, None], limits.min, limits.max)
    return drawn.astype(dtype)
