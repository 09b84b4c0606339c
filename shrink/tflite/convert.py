"""Conversion of Keras models to TFLite."""

from __future__ import annotations

import functools
import re
import tempfile
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import numpy as np
import tensorflow as tf
import tf_keras as keras
from tensorflow.core.framework import graph_debug_info_pb2
from tensorflow.lite.python import lite
from tensorflow.lite.python.optimize.calibrator import Calibrator
from tensorflow.python.checkpoint import functional_saver

from shrink.base.errors import ConversionError, DataError, ModelError, StageError
from shrink.base.types import Array
from shrink.tflite.edit import with_mended_scales, with_ordered_borders, with_ranges
from shrink.tflite.names import Named, ordered
from shrink.tflite.serving import (
    SIGNATURE,
    Serving,
    for_conversion,
    is_loop,
    names_of,
    serve_keras,
    serve_saved_model,
)

_HINT = "try scheme float32 first: it shows whether the model or the quantization is refused"
_FLOAT_HINT = (
    "no scheme can convert this model: replace the layer, or of a SavedModel give the Keras model "
    "that it was exported from"
)
_UNSUPPORTED = re.compile(r"^(?:Custom|Flex|TF Select) ops: (.+)$", re.MULTILINE)
_NOT_16X8 = re.compile(r"16x8-bit not yet supported for op: '(\w+)'")
_NOT_CALIBRATED = re.compile(
    r"recorded during calibration: Failed for tensor serving_default_(\w+)"
)
_LOCATION = re.compile(r'"([^"@]+)@__inference')


def explain(error: Exception, precision: str) -> StageError:
    """Return a `StageError` that says which operator of which layer was refused, and what to do.

    Args:
        error: what `TFLiteConverter.convert` raised.
        precision: what the model was being converted to, for the message.
    """
    text = str(error)
    if match := _UNSUPPORTED.search(text):
        return StageError(
            f"TFLite has no operator for {match.group(1).strip()}",
            subject=_layer(text),
            hint="replace this layer's operation by one that TFLite supports",
        )
    if match := _NOT_16X8.search(text):
        return StageError(
            f"the operator {match.group(1)} has no version with 16-bit activations",
            hint="use scheme static_wi8_ai8 or dynamic_wi8_afp32",
        )
    if precision == "static_int16" and (match := _NOT_CALIBRATED.search(text)):
        return StageError(
            f"the input {match.group(1)!r} has no range to calibrate, as it holds integers; with "
            "16-bit activations the TFLite converter does not take this model",
            hint="use scheme static_wi8_ai8 or dynamic_wi8_afp32: "
            "shrink quantize MODEL --scheme static_wi8_ai8",
        )
    return ConversionError(
        f"the TFLite converter failed on {precision}: {_reason(text) or brief(error)}",
        subject=_layer(text),
        hint=_FLOAT_HINT if precision == "float32" else _HINT,
    )


def _reason(text: str) -> str:
    """Return why, without the nested locations that MLIR puts before it; empty if it gives none."""
    lines = [line for line in text.splitlines() if "error: " in line and "loc(" in line]
    return lines[0].rpartition("): ")[2].removeprefix("error: ").strip()[:300] if lines else ""


def _layer(text: str) -> str | None:
    """Return the layer of the first location, "model/layer/Operator" or deeper."""
    match = _LOCATION.search(text)
    parts = match.group(1).split("/") if match else []
    return "/".join(parts[1:-1]) or None


def brief(error: Exception) -> str:
    """Return the first line of an error's text, or its type where it has none."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__


@contextmanager
def _replaced(owner: object, **values: object) -> Iterator[None]:
    """Give names of TensorFlow's own other values meanwhile."""
    own = {name: getattr(owner, name) for name in values}
    for name, value in values.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in own.items():
            setattr(owner, name, value)


@contextmanager
def forgetting_states() -> Iterator[None]:
    """Reset the variables of a model that the TFLite converter calibrates before each example.

    The converter resets them before the first one alone, so that each LSTM starts from where the
    example before left it, and ranges are those of other values than the model ever computes.
    Examples must have the shapes of the model's inputs.
    """
    feed = Calibrator._feed_tensors

    def feed_singly(
        self: Calibrator, examples: Callable[[], Iterable[object]], resize_input: bool
    ) -> None:
        for example in examples():
            feed(self, lambda example=example: [example], resize_input)

    with _replaced(Calibrator, _feed_tensors=feed_singly):
        yield


@contextmanager
def _calibrated_to(
    ranges: Mapping[str, tuple[float, float]], floats: Collection[str]
) -> Iterator[None]:
    """Let the TFLite converter use these ranges of tensors, and leave operators float, by name."""
    calibrate = Calibrator.calibrate

    def calibrate_some(self: Calibrator, examples: Callable[[], Iterable[object]]) -> bytes:
        return with_ranges(bytes(calibrate(self, examples)), ranges)

    quantize = functools.partial(lite._mlir_quantize, denylisted_nodes=list(floats))
    with _replaced(Calibrator, calibrate=calibrate_some), _replaced(lite, _mlir_quantize=quantize):
        yield


def _not_loaded() -> AbstractContextManager[None]:
    """Let `tf.lite.TFLiteConverter` convert a SavedModel without loading it in Python.

    The converter's C++ reads the folder. Its Python loads it twice beside that, with all variables
    and functions: to list signatures, and for a debug info that nothing reads.
    """
    debug_info = graph_debug_info_pb2.GraphDebugInfo()
    loaded = SimpleNamespace(signatures={SIGNATURE: None}, graph_debug_info=debug_info)
    return _replaced(lite, _load=lambda *_: loaded)


def _not_saved_again() -> AbstractContextManager[None]:
    """Let `tf.saved_model.save` leave out of the graph what would save its variables once more.

    What restores them stays: the converter runs it. The variables themselves are written anyway.
    """
    saver = functional_saver.MultiDeviceSaver
    return _replaced(saver, _traced_save=lambda _, prefix, *others, **named: tf.identity(prefix))


Precision = Literal["float32", "float16", "dynamic_int8", "static_int8", "static_int16"]

_IO_TYPES = {
    "static_int8": {"float32": tf.float32, "int8": tf.int8, "uint8": tf.uint8},
    "static_int16": {"float32": tf.float32, "int16": tf.int16},
}
_OPERATOR_SETS = {
    "static_int8": tf.lite.OpsSet.TFLITE_BUILTINS_INT8,
    "static_int16": (tf.lite.OpsSet.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8),
}


@dataclass(frozen=True)
class Conversion:
    """A converted model.

    Attributes:
        content: the flatbuffer, as it is stored in a .tflite file.
        notes: what was rewritten on the way, one sentence each.
    """

    content: bytes
    notes: tuple[str, ...]


def convert(
    model: keras.Model | str | Path,
    precision: Precision,
    calibration: Iterable[Named] = (),
    input_type: str = "float32",
    output_type: str = "float32",
    *,
    dense_per_tensor: bool = False,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    floats: Collection[str] = (),
) -> Conversion:
    """Convert a model to TFLite, with a batch of 1 and static shapes.

    Args:
        model: a tf_keras model with any number of inputs and outputs, or the path of a SavedModel
            folder. The artifact has one signature, "serving_default", with the names of the Keras
            inputs and outputs, or those of the SavedModel's signature; a single output is called
            output_0. The file has them in the model's order, those of a SavedModel sorted.
        precision: what weights and activations become. The static ones need `calibration`.
        calibration: representative examples, each a float32 array with a batch of 1 for every
            model input, by the input's name in the signature.
        input_type, output_type: "float32", "int8", "uint8", or with static_int16 "int16".
        dense_per_tensor: whether each dense layer's integer weights share one scale.
        ranges: of activations by their tensor's name in the float32 file, for static_int8, in place
            of those that calibration finds.
        floats: names of tensors in the float32 file whose operators stay float, for static_int8.

    Raises:
        ModelError: the SavedModel cannot be loaded, or an input has dimensions of unknown size.
        StageError: the converter refused the model, or the calibration examples do not match it.
    """
    notes: tuple[str, ...] = ()
    traced = isinstance(model, str | Path)
    if isinstance(model, str | Path):
        serving = serve_saved_model(Path(model))
    else:
        model, notes = for_conversion(model, to_integers=precision in _OPERATOR_SETS)
        if precision in _OPERATOR_SETS:
            _refuse_loops(model)
        serving = serve_keras(model)
    _refuse_unknown_dimensions(serving)
    with tempfile.TemporaryDirectory(prefix="shrink-convert-") as folder:
        _save(serving, folder)
        with _not_loaded():
            converter = tf.lite.TFLiteConverter.from_saved_model(folder)
        _configure(converter, precision, input_type, output_type)
        converter._experimental_disable_per_channel_quantization_for_dense_layers = dense_per_tensor
        # A SavedModel's loops over steps were traced for any batch; here it is 1.
        converter._experimental_default_to_single_batch_in_tensor_list_ops = traced
        if precision in _OPERATOR_SETS:
            # Some conversions read the examples twice, which an iterator does not survive.
            repeatable = list(calibration) if isinstance(calibration, Iterator) else calibration
            converter.representative_dataset = lambda: _feeds(serving, repeatable)
        calibrated = _calibrated_to(ranges or {}, floats)
        with _not_loaded(), forgetting_states(), calibrated:
            content = _run(converter, precision)
        return Conversion(_mended(content, serving), notes)


def _mended(content: bytes, serving: Serving) -> bytes:
    """Return a converted file with scales as they were meant, and borders in the model's order."""
    content = with_mended_scales(content)
    if len(serving.inputs) > 1 or len(serving.outputs) > 1:
        names = [spec.name for spec in serving.inputs]
        content = with_ordered_borders(content, names, serving.outputs)
    return content


def _save(serving: Serving, folder: str) -> None:
    try:
        # Of a function that is not concrete yet the saver would trace the model again.
        concrete = serving.function.get_concrete_function()
        serving.module.captured = concrete.variables
        with _not_saved_again():
            tf.saved_model.save(serving.module, folder, signatures=concrete)
    except (ValueError, TypeError, AssertionError) as error:
        raise StageError(
            f"the model cannot be exported with a batch of 1: {brief(error)}",
            hint="build it for any batch size, without state between batches",
        ) from error


def _configure(
    converter: tf.lite.TFLiteConverter, precision: str, input_type: str, output_type: str
) -> None:
    if precision != "float32":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if precision == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if precision in _OPERATOR_SETS:
        converter.target_spec.supported_ops = [_OPERATOR_SETS[precision]]
        converter.inference_input_type = _io_type(precision, input_type)
        converter.inference_output_type = _io_type(precision, output_type)


def _io_type(precision: str, name: str) -> tf.DType:
    legal = _IO_TYPES[precision]
    if name not in legal:
        raise StageError(
            f"a {precision} artifact cannot have {name} inputs or outputs",
            hint=f"set input_type and output_type to one of {', '.join(legal)}",
        )
    return legal[name]


def _feeds(serving: Serving, calibration: Iterable[Named]) -> Iterator[dict[str, Array]]:
    count = 0
    for count, sample in enumerate(calibration, 1):
        yield _feed(serving, sample, count)
    if not count:
        raise StageError(
            "there are no calibration examples",
            hint="raise quantize.calibration_samples, or use scheme dynamic_wi8_afp32",
        )


def _feed(serving: Serving, sample: Named, number: int) -> dict[str, Array]:
    try:
        arrays = ordered(sample, [spec.name for spec in serving.inputs])
    except DataError as error:
        raise StageError(f"calibration example {number}: {error.message}") from error
    feed = {}
    for spec, array in zip(serving.inputs, arrays, strict=True):
        if tuple(array.shape) != tuple(spec.shape) or not np.isfinite(array).all():
            raise StageError(
                f"calibration example {number} does not suit: finite values of shape "
                f"{tuple(spec.shape)} are needed, and its shape is {tuple(array.shape)}",
                subject=spec.name,
                hint="shrink data check",
            )
        feed[spec.name] = array.astype(spec.dtype.as_numpy_dtype)
    return feed


def _refuse_loops(model: keras.Model) -> None:
    if names := names_of(model, is_loop):
        raise StageError(
            "the converter's calibration crashes on a loop over steps, and these cannot be written "
            "one after the other: their number is open, or the layer is convolutional",
            subject=names[0],
            hint="use scheme dynamic_wi8_afp32, or build the model for a fixed number of steps",
        )


def _refuse_unknown_dimensions(serving: Serving) -> None:
    for spec in serving.inputs:
        if not spec.shape.is_fully_defined():
            raise ModelError(
                f"the input has the shape {tuple(spec.shape)}: an artifact needs every dimension "
                "fixed",
                subject=spec.name,
                hint="keras.models.clone_model(model, keras.Input((96, 96, 3))) with the shape "
                "that is meant, set_weights of the old one, and save that",
            )


def _run(converter: tf.lite.TFLiteConverter, precision: str) -> bytes:
    with warnings.catch_warnings():
        # The converter's calibration uses an interpreter that TensorFlow itself has deprecated.
        warnings.filterwarnings("ignore", message=r"(?s).*tf\.lite\.Interpreter is deprecated")
        try:
            return bytes(converter.convert())
        except StageError:
            raise
        except Exception as error:
            # The converter raises its own type, RuntimeError, ValueError, KeyError and others.
            raise explain(error, precision) from error
