"""The function of a model that the TFLite converter is given, and rewrites of the model before."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import ModelError
from shrink.base.keras_internals import is_functional, mask_of, parts_of
from shrink.base.types import Json, JsonObject, Tensors
from shrink.tflite.names import natural_order, output_names, signature_names

SIGNATURE = "serving_default"


@dataclass(frozen=True)
class Serving:
    """What the converter is given.

    Attributes:
        module: the object to save, which keeps alive what `function` needs.
        function: takes one dictionary of tensors, gives another.
        inputs: `tf.TensorSpec` of each input, in the model's order, with a batch of 1.
        outputs: names of what the function gives, in the model's order.
    """

    module: tf.Module
    function: tf.types.experimental.PolymorphicFunction
    inputs: tuple[tf.TensorSpec, ...]
    outputs: tuple[str, ...]


def serve_keras(model: keras.Model) -> Serving:
    """Return the inference function of a Keras model; inputs in the order of `model.inputs`.

    A single output is called output_0; several have the names of `model.output_names`.

    Raises:
        ModelError: a subclassed model, whose inputs are not known.
    """
    if not model.inputs:
        raise ModelError(
            "the model has no inputs of its own, as subclassed models do not",
            subject=model.name,
            hint="write it as a functional model: keras.Model(inputs, outputs)",
        )
    names = signature_names(model.input_names)
    specs = tuple(
        _spec(tensor.shape, tensor.dtype, name)
        for name, tensor in zip(names, model.inputs, strict=True)
    )

    returned_names = output_names(model.output_names)

    def serve(feed: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        arrays = [feed[name] for name in names]
        structure = tf.nest.pack_sequence_as(model.input, arrays)
        outputs = tf.nest.flatten(model(structure, training=False))
        return dict(zip(returned_names, outputs, strict=True))

    return Serving(tf.Module(), _function(serve, specs), specs, tuple(returned_names))


def serve_saved_model(folder: Path) -> Serving:
    """Return the serving signature of a SavedModel; inputs and outputs in the order of their names.

    Raises:
        ModelError: the folder is no SavedModel, or has no signature "serving_default".
    """
    module, signature = load_signature(folder)
    _, named = signature.structured_input_signature
    specs = tuple(
        _spec(named[name].shape, named[name].dtype, name) for name in natural_order(named)
    )
    outputs = natural_order(signature.structured_outputs)
    returned_names = output_names(outputs)

    def serve(feed: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        results = signature(**feed)
        return {name: results[own] for name, own in zip(returned_names, outputs, strict=True)}

    return Serving(module, _function(serve, specs), specs, tuple(returned_names))


def load_signature(folder: Path) -> tuple[tf.Module, tf.types.experimental.ConcreteFunction]:
    """Return a scanned SavedModel, which owns the variables, and its serving function.

    Raises:
        ModelError: the folder is no SavedModel, or has no signature "serving_default".
    """
    try:
        module = tf.saved_model.load(str(folder))
    except Exception as error:
        raise ModelError(
            f"cannot be loaded as a SavedModel: {str(error).splitlines()[0]}",
            subject=folder,
            hint="copy the whole folder again, variables/ too, or save the model again",
        ) from error
    if SIGNATURE not in module.signatures:
        raise ModelError(
            f"the SavedModel has no signature {SIGNATURE!r}",
            subject=folder,
            hint="save it with model.export(folder), or tf.saved_model.save(..., signatures=...)",
        )
    return module, module.signatures[SIGNATURE]


def _function(
    serve: Callable[[dict[str, tf.Tensor]], dict[str, tf.Tensor]], specs: tuple[tf.TensorSpec, ...]
) -> tf.types.experimental.PolymorphicFunction:
    return traced(serve, input_signature=[{spec.name: spec for spec in specs}])


def _spec(shape: tf.TensorShape, dtype: tf.DType, name: str) -> tf.TensorSpec:
    if shape.rank is None:
        raise ModelError("the input has no known shape", subject=name)
    return tf.TensorSpec([1, *shape[1:]], dtype, name=name)


def traced(
    function: Callable[..., Tensors], **options: object
) -> tf.types.experimental.PolymorphicFunction:
    """Return a `tf.function` in which Keras converts the `call` of layers that are not its own.

    AutoGraph turns an `if` of a tensor into a branch of the graph, where TensorFlow's status says
    so. `tf.function(autograph=False)` says no, to all that is called; with AutoGraph the function
    itself is converted too, which takes time and leaves generated source files in the temporary
    folder. TensorFlow has no public name for the status; without it, such layers are not traced.

    Args:
        function: branches on no tensor itself.
        options: of `tf.function`.
    """

    @functools.wraps(function)
    def inside(*args: Tensors, **named: Tensors) -> Tensors:
        with _converting():
            return function(*args, **named)

    return tf.function(inside, autograph=False, **options)


def _converting() -> contextlib.AbstractContextManager[object]:
    from tensorflow.python.autograph.core import ag_ctx

    context: contextlib.AbstractContextManager[object] = ag_ctx.ControlStatusCtx(
        ag_ctx.Status.ENABLED
    )
    return context


_CONVOLUTIONAL = (keras.layers.ConvLSTM1D, keras.layers.ConvLSTM2D, keras.layers.ConvLSTM3D)


def has_graph(layer: keras.layers.Layer) -> bool:
    """Tell functional and sequential models from subclassed ones, which cannot be cloned."""
    return isinstance(layer, keras.Model) and bool(is_functional(layer))


def names_of(model: keras.Model, chosen: Callable[[keras.layers.Layer], bool]) -> list[str]:
    """Return the names of a model's layers that are chosen, those of models in it with a path."""
    if not has_graph(model):
        return []
    names: list[str] = []
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            names += [f"{layer.name}/{name}" for name in names_of(layer, chosen)]
        elif chosen(layer):
            names.append(layer.name)
    return names


def is_loop(layer: keras.layers.Layer) -> bool:
    """Whether a layer converts to a loop over steps. An LSTM is one operator of TFLite."""
    inner = _without_wrapper(layer)
    if not isinstance(inner, keras.layers.RNN) or inner.unroll:
        return False
    masked = any(mask_of(tensor) is not None for tensor in _given(layer))
    begun = any(len(tf.nest.flatten(node.input_tensors)) > 1 for node in layer.inbound_nodes)
    return masked or begun or not _is_one_operator(inner)


def can_be_unrolled(layer: keras.layers.Layer) -> bool:
    """Whether a layer's loop can be written as its steps one after the other."""
    known = is_loop(layer) and all(tensor.shape[1] for tensor in _given(layer))
    return known and not isinstance(_without_wrapper(layer), _CONVOLUTIONAL)


def _without_wrapper(layer: keras.layers.Layer) -> keras.layers.Layer:
    return layer.layer if isinstance(layer, keras.layers.Bidirectional) else layer


def _given(layer: keras.layers.Layer) -> list[tf.Tensor]:
    """Return the sequence that each call of a layer is given."""
    return [tf.nest.flatten(node.input_tensors)[0] for node in layer.inbound_nodes]


def _is_one_operator(layer: keras.layers.Layer) -> bool:
    """Whether TFLite has one operator for all steps of a recurrent layer."""
    kinds = (keras.activations.tanh, keras.activations.sigmoid)
    return (
        type(layer) is keras.layers.LSTM
        and (layer.activation, layer.recurrent_activation) == kinds
        and layer.use_bias
        and not layer.recurrent_dropout
        and not layer.return_state
    )


def unrolled(config: JsonObject) -> JsonObject:
    """Return the configuration of a recurrent layer, wrapped or not, with `unroll` set."""
    wrapped = [key for key in ("layer", "backward_layer") if key in config]
    if not wrapped:
        return {**config, "unroll": True}
    result = dict(config)
    for key in wrapped:
        result[key] = {**config[key], "config": unrolled(config[key]["config"])}
    return result


def for_conversion(
    model: keras.Model, *, to_integers: bool = False
) -> tuple[keras.Model, tuple[str, ...]]:
    """Return a model that converts well, with the same inputs, weights and outputs.

    - An average pooling that covers its whole input becomes a mean over height and width. TFLite's
      int8 AVERAGE_POOL_2D forces its output to keep the scale of its input; a MEAN has a scale of
      its own, and a mean of many values needs a finer one.
    - Layers of a mixed precision compute in float32, in which their weights are stored: TFLite
      has no kernels for float16 activations.
    - An UpSampling1D becomes the resize of a picture of one column: the converter would split it
      into all its steps and join them again, too many inputs for TFLite Micro's concatenation.
    - The steps of a GRU or another loop are written one after the other, to become integers: the
      converter's calibration crashes on loops. An LSTM is one operator of TFLite.
    - What `model.add_metric` counts, in variables that each call would write, is left out.

    Args:
        model: it is left untouched; a subclassed model, which cannot be cloned, stays as it is.
        to_integers: whether activations become integers.

    Returns:
        The model, `model` itself where there is nothing to rewrite, and a note per rewrite.
    """
    model = _without_metrics(model)
    notes = [
        f"{name}: average over the whole input written as a mean"
        for name in names_of(model, _covers_its_whole_input)
    ]
    notes += [
        f"{name}: rewritten as the resize of an image with one column"
        for name in names_of(model, _is_upsampling)
    ]
    if to_integers:
        loops = names_of(model, can_be_unrolled)
        notes += [f"{name}: steps unrolled for integers" for name in loops]
    if _has_mixed_precision(model):
        notes.append("converted to compute in float32, not in the mixed precision of training")
    if not notes:
        return model, ()
    try:
        clone = functools.partial(_clone, to_integers=to_integers)
        rewritten = keras.models.clone_model(model, clone_function=clone)
    except NotImplementedError as error:  # a custom layer without get_config
        return model, (f"converted as it is, as it cannot be cloned: {error}",)
    rewritten.set_weights(model.get_weights())
    return rewritten, tuple(notes)


def _without_metrics(model: keras.Model) -> keras.Model:
    if not has_graph(model) or not any(type(x).__name__ == "AddMetric" for x in model.layers):
        return model
    return keras.Model(model.input, model.output, name=model.name)


def _is_upsampling(layer: keras.layers.Layer) -> bool:
    return type(layer) is keras.layers.UpSampling1D


class _ResizingUpSampling1D(keras.layers.UpSampling1D):
    """Repeats each step of (n, steps, channels) `size` times, by a resize to the nearest."""

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Return (n, steps * size, channels)."""
        column = tf.expand_dims(inputs, 2)
        return tf.squeeze(keras.backend.resize_images(column, self.size, 1, "channels_last"), 2)


def _covers_its_whole_input(layer: keras.layers.Layer) -> bool:
    if not isinstance(layer, keras.layers.AveragePooling2D):
        return False
    return all(_covers(layer, node.input_shapes) for node in layer.inbound_nodes)


def _covers(layer: keras.layers.AveragePooling2D, shape: tuple[int | None, ...]) -> bool:
    first = 2 if layer.data_format == "channels_first" else 1
    output = layer.compute_output_shape(shape)
    dimensions = zip(
        layer.pool_size, shape[first : first + 2], output[first : first + 2], strict=True
    )
    # "same" padding adds zeros that the average leaves out, so a larger pool is still the mean.
    return all(
        length is not None and pool >= length and out == 1 for pool, length, out in dimensions
    )


def _clone(layer: keras.layers.Layer, *, to_integers: bool) -> keras.layers.Layer:
    if has_graph(layer):
        clone = functools.partial(_clone, to_integers=to_integers)
        return keras.models.clone_model(layer, clone_function=clone)
    if _covers_its_whole_input(layer):
        return keras.layers.GlobalAveragePooling2D(
            data_format=layer.data_format, keepdims=True, name=layer.name
        )
    config = _in_float32(layer.get_config())
    if _is_upsampling(layer):
        return _ResizingUpSampling1D.from_config(config)
    if to_integers and can_be_unrolled(layer):
        config = unrolled(config)
    return layer.__class__.from_config(config)


def _has_mixed_precision(model: keras.Model) -> bool:
    parts = parts_of(model)
    return has_graph(model) and any(part.compute_dtype != part.variable_dtype for part in parts)


def _in_float32(config: Json) -> Json:
    """Return a layer's configuration with every mixed policy, nested layers' too, as float32."""
    if isinstance(config, list | tuple):  # also TensorFlow's wrappers, which copy badly
        items = [_in_float32(item) for item in config]
        return tuple(items) if isinstance(config, tuple) else items
    if not isinstance(config, dict):
        return config
    return {
        key: "float32" if key == "dtype" and _is_mixed(value) else _in_float32(value)
        for key, value in config.items()
    }


def _is_mixed(dtype: Json) -> bool:
    """Tell a mixed policy, which a configuration holds by name or as a serialized object."""
    name = dtype.get("config", {}).get("name") if isinstance(dtype, dict) else dtype
    return isinstance(name, str) and name.startswith("mixed_")
