"""The model that quantization starts from: a Keras model or a float .tflite file."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import InternalError, ModelError
from shrink.quantization.calibration import Ranges
from shrink.tflite.convert import Conversion, convert
from shrink.tflite.interpreter import load
from shrink.tflite.model import normalized, text, unpacked
from shrink.tflite.names import Named, ordered, output_names, signature_names
from shrink.tflite.weights import check_float


class FloatModel:
    """A float model in both forms, as far as there are both.

    Args:
        model: the Keras model; None where the float .tflite file is all there is.
        content: that file.

    Attributes:
        ranges: of the activations that a training under rounding settled, here or elsewhere, by
            tensor of `float32`.
        bounds: ranges that tensors of `float32` saturate at on purpose, by name.
        floats: names of the tensors of `float32` whose operators stay float in static schemes.
        untrained: whether only sizes matter, as the model's values were never trained.
        measured: those that calibration found, by the bits of the activations, once it has.
    """

    def __init__(self, model: keras.Model | None = None, content: bytes = b"") -> None:
        self.model = model
        self.ranges: Ranges = {}
        self.bounds: Ranges = {}
        self.floats: frozenset[str] = frozenset()
        self.untrained = False
        self.measured: dict[int, Ranges] = {}
        self._content = content

    @functools.cached_property
    def float32(self) -> Conversion:
        """The float32 .tflite model, converted once."""
        if self.model is None:
            return Conversion(self._content, ())
        return convert(self.model, "float32")

    def border_names(self) -> tuple[list[str], list[str]]:
        """Return the signature names of inputs and of outputs, in the model's order."""
        if self.model is not None:
            inputs = signature_names(self.model.input_names)
            return inputs, output_names(self.model.output_names)
        runner = load(self._content)
        return list(runner.input_names), [detail.name for detail in runner.output_details]

    def keras_outputs(self, inputs: Named) -> list[np.ndarray]:
        """Return the outputs (n, ...) of the Keras model, in its order, for inputs by name."""
        if self.model is None:
            raise InternalError("there is no Keras model to ask")
        arrays = ordered(inputs, signature_names(self.model.input_names))
        structure = tf.nest.pack_sequence_as(self.model.input, arrays)
        outputs = tf.nest.flatten(self.model(structure, training=False))
        return [np.asarray(output) for output in outputs]

    @property
    def converted(self) -> Conversion | None:
        """`float32`, where it was converted before; None spares a conversion."""
        known: Conversion | None = self.__dict__.get("float32")
        return known if self.model is not None else self.float32


def read_float_tflite(path: Path) -> FloatModel:
    """Return the model of a float .tflite file of any age, with float32 weights.

    Raises:
        ModelError: it cannot be read, or it is quantized already.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ModelError(f"cannot be read: {error.strerror}", subject=path) from error
    content = normalized(content)
    check_float(content, path)
    signatures = unpacked(content).signatureDefs or []
    if len({one.subgraphIndex for one in signatures}) > 1:
        raise ModelError(
            f"this .tflite file holds {len(signatures)} models, one for each signature: "
            f"{', '.join(text(one.signatureKey) for one in signatures)}",
            subject=path,
            hint="convert each signature to a file of its own, and quantize these",
        )
    return FloatModel(content=content)
