"""What a quantization starts from: a Keras model or a float .tflite file."""

from __future__ import annotations

import functools
from pathlib import Path

import tf_keras as keras

from shrink.errors import ModelError
from shrink.tflite.convert import Conversion, convert
from shrink.tflite.flatbuffer import quantized_operators, weights


class FloatModel:
    """A float model in both forms, as far as there are both.

    Args:
        model: the Keras model; None where the float .tflite file is all there is.
        content: that file.
    """

    def __init__(self, model: keras.Model | None = None, content: bytes = b"") -> None:
        self.model = model
        self._content = content

    @functools.cached_property
    def float32(self) -> Conversion:
        """The float32 .tflite model, converted once."""
        if self.model is None:
            return Conversion(self._content, ())
        return convert(self.model, "float32")

    @property
    def converted(self) -> Conversion | None:
        """`float32`, where something has asked for it; None spares a conversion."""
        known: Conversion | None = self.__dict__.get("float32")
        return known if self.model is not None else self.float32


def read_float_tflite(path: Path) -> FloatModel:
    """Return the model of a float .tflite file.

    Raises:
        ModelError: it cannot be read, or it is quantized already.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ModelError(f"cannot be read: {error.strerror}", subject=path) from error
    if count := quantized_operators(content):
        raise ModelError(
            f"this .tflite file is quantized already: {count} of its operators work on integers",
            subject=path,
            hint="give a float .tflite file, or the Keras model that it was made from",
        )
    if any(tensor.sparse for tensor in weights(content)):
        raise ModelError(
            "this .tflite file leaves out the zeros of its kernels, which are not weights then",
            subject=path,
            hint="give the file without `sparse: true`, or the Keras model that it was made from",
        )
    return FloatModel(content=content)
