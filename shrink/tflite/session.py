"""One LiteRT interpreter with a fixed batch and one thread, float32 in and out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from shrink.base.errors import ModelError

Arrays = list[np.ndarray[Any, Any]]

_WITH_DELEGATES = OpResolverType.AUTO
_WITHOUT_DELEGATES = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES


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
            self._interpreter = _allocated(content, batch, _WITH_DELEGATES)
        except RuntimeError:
            # The XNNPACK delegate refuses some graphs that the built-in kernels run.
            try:
                self._interpreter = _allocated(content, batch, _WITHOUT_DELEGATES)
            except RuntimeError as error:
                raise ModelError(f"LiteRT cannot prepare the model: {_brief(error)}") from error
        try:
            self._describe()
        except ValueError as error:  # names that are no UTF-8
            raise ModelError(f"not a TFLite model: {_brief(error)}") from error
        self.batch = self.inputs[0].shape[0] if self.inputs and self.inputs[0].shape else 1

    def _describe(self) -> None:
        signatures = self._interpreter._get_full_signature_list()
        names = next(iter(signatures.values())) if len(signatures) == 1 else {}
        inputs = self._interpreter.get_input_details()
        stored = self._interpreter.get_output_details()
        self.output_places = tuple(_in_model_order(stored, names.get("outputs", {})))
        outputs = [stored[place] for place in self.output_places]
        self._input_indices = [detail["index"] for detail in inputs]
        self._output_indices = [detail["index"] for detail in outputs]
        self.inputs = _details(inputs, names.get("inputs", {}))
        self.outputs = _details(outputs, names.get("outputs", {}))

    def run(self, arrays: Arrays) -> Arrays:
        """Return the float32 outputs of 1 to `batch` examples, one array (n, ...) per output.

        With a batch of 1, an output without an axis for the batch is the example's: the converter
        writes the statistics of a layer normalisation so.

        Raises:
            ModelError: a kernel failed, or the outputs do not have one row per example.
        """
        count = len(arrays[0])
        for index, array, detail in zip(self._input_indices, arrays, self.inputs, strict=True):
            self._interpreter.set_tensor(index, _padded(quantize(array, detail), self.batch))
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


def quantize(array: np.ndarray[Any, Any], detail: TensorDetail) -> np.ndarray[Any, Any]:
    """Return real numbers as a tensor stores them: rounded half to even, clipped to its dtype."""
    if not detail.scale:
        return array.astype(detail.dtype)
    limits = np.iinfo(detail.dtype)
    stored = np.rint(array / np.float32(detail.scale)) + detail.zero_point
    return np.clip(stored, limits.min, limits.max).astype(detail.dtype)


def dequantize(array: np.ndarray[Any, Any], detail: TensorDetail) -> np.ndarray[Any, Any]:
    """Return the float32 numbers that a tensor's stored values stand for."""
    if not detail.scale:
        return array.astype(np.float32)
    return (array.astype(np.float32) - detail.zero_point) * np.float32(detail.scale)


def _allocated(content: bytes, batch: int | None, resolver: Any) -> Interpreter:
    try:
        interpreter = Interpreter(
            model_content=content,
            num_threads=1,
            experimental_op_resolver_type=resolver,
        )
        if batch is not None:
            for detail in interpreter.get_input_details():
                shape = [batch, *detail["shape"][1:]]
                interpreter.resize_tensor_input(detail["index"], shape)
        interpreter.allocate_tensors()
    except ValueError as error:
        raise ModelError(f"not a TFLite model: {_brief(error)}") from error
    return interpreter


def _details(details: list[Any], signature: dict[str, int]) -> tuple[TensorDetail, ...]:
    """Return what inputs or outputs are; arrays go by their names, so that these are unique."""
    by_index = {index: name for name, index in signature.items()}
    names = [by_index.get(detail["index"], _plain(detail["name"])) for detail in details]
    if len(set(names)) < len(names):
        names = [f"{name}_{place}" for place, name in enumerate(names)]
    return tuple(_detail(*pair) for pair in zip(details, names, strict=True))


def _plain(tensor: str) -> str:
    """Return a tensor's name without what TensorFlow's savers put around it."""
    return re.sub(r":\d+$", "", tensor.removeprefix("serving_default_"))


def _detail(detail: dict[str, Any], name: str) -> TensorDetail:
    scale, zero_point = detail["quantization"]
    return TensorDetail(
        name=name,
        shape=tuple(int(side) for side in detail["shape"]),
        dtype=np.dtype(detail["dtype"]),
        scale=float(scale),
        zero_point=int(zero_point),
        index=int(detail["index"]),
    )


def _in_model_order(details: list[Any], names: dict[str, int]) -> list[int]:
    """Return the places of outputs by the number in their names output_0, output_1, ..."""
    numbers = {
        index: int(found.group(1))
        for name, index in names.items()
        if (found := re.fullmatch(r"output_(\d+)", name))
    }
    places = list(range(len(details)))
    if {detail["index"] for detail in details} != set(numbers):
        return places
    return sorted(places, key=lambda place: numbers[details[place]["index"]])


def _padded(array: np.ndarray[Any, Any], batch: int) -> np.ndarray[Any, Any]:
    missing = batch - len(array)
    return np.concatenate([array, np.repeat(array[-1:], missing, axis=0)]) if missing else array


def _brief(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
