"""Imported activation ranges, assigned to the tensors of the TFLite file."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import InternalError
from shrink.contract.trained_range import TrainedRange
from shrink.graph.network import read_network
from shrink.quantization.aware_model import N_PROBE, Flat, flat_model, ranges_by_value
from shrink.quantization.calibration import Batches, Ranges
from shrink.quantization.source import FloatModel
from shrink.tflite.names import ordered, signature_names


def ranges_of_file(source: FloatModel, trained: Sequence[TrainedRange], batches: Batches) -> Ranges:
    """Return the trained ranges by the names of the tensors of the float file.

    Tensors are matched by their values: the converter fuses layers, and names what they become as
    it likes. Ranges of what the file does not hold are left out. A range that does not hold 0,
    which integers have to, is widened to it.

    Args:
        source: of a Keras model.
        trained: by the model's layers.
        batches: calibration examples; a few of the first batch are run.
    """
    if source.model is None:
        raise InternalError("there is no Keras model that the ranges could belong to")
    flat = flat_model(read_network(source.model))
    plain = flat.model
    by_layer = {name: one for one in trained if (name := _name(one, flat)) is not None}
    if not by_layer:
        return {}
    few = {name: array[:N_PROBE] for name, array in next(iter(batches)).items()}
    ours = _outputs(plain, list(by_layer), few)
    ranges = {name: (min(one.low, 0.0), max(one.high, 0.0)) for name, one in by_layer.items()}
    return ranges_by_value(source.float32.content, few, ours, ranges)


def _name(one: TrainedRange, flat: Flat) -> str | None:
    """Return the layer of the flat model that gives what a range is of."""
    first, last = flat.parts.get(one.layer, (one.layer, one.layer))
    name = first if one.before_activation else last
    return name if any(layer.name == name for layer in flat.model.layers) else None


def _outputs(
    plain: keras.Model, names: Sequence[str], few: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    tensors = [plain.get_layer(name).get_output_at(0) for name in names]
    arrays = ordered(few, signature_names(plain.input_names))
    structure = tf.nest.pack_sequence_as(plain.input, arrays)
    values = tf.nest.flatten(keras.Model(plain.input, tensors)(structure, training=False))
    return {n: np.asarray(value, np.float32) for n, value in zip(names, values, strict=True)}
