"""A classifier's logits, also where the model ends in a softmax or a sigmoid."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import ModelError
from shrink.base.types import JsonObject
from shrink.graph.network import Call, Network, Ref, read_network, with_losses
from shrink.model.endings import Range, kind_of
from shrink.model.endings.computations import ranges_of_model

L = keras.layers

Switch = Callable[[], contextlib.AbstractContextManager[None]]
"""Leaves a final activation out for as long as its context lasts."""

_ACTIVATED = (
    *(L.Activation, L.Dense, L.EinsumDense, L.Conv1D, L.Conv2D, L.Conv3D, L.Conv1DTranspose),
    *(L.Conv2DTranspose, L.Conv3DTranspose, L.SeparableConv1D, L.SeparableConv2D),
    *(L.DepthwiseConv1D, L.DepthwiseConv2D, L.LocallyConnected1D, L.LocallyConnected2D),
)
"""Layers whose outputs are their activation of something; that of an LSTM is not."""

_PASSING = (
    *(L.Reshape, L.Flatten, L.Permute, L.Concatenate, L.RepeatVector, L.UpSampling1D),
    *(L.Cropping1D, L.Cropping2D, L.Cropping3D, L.Identity),
)
"""Layers that only move values: a softmax before them can be left out, as after them."""

_PASSING_FUNCTIONS = frozenset(
    {"reshape", "transpose_v2", "squeeze_v2", "expand_dims_v2", "concat", "identity"}
    | {"transpose", "squeeze", "expand_dims", "_slice_helper"}
)
_RANDOM = (L.Dropout, L.GaussianNoise, L.GaussianDropout, L.AlphaDropout)
_SMALLEST = float(np.finfo(np.float32).tiny)
_SMALLEST_REST = 2.0**-25
"""Half of the least difference of a float32 from 1: what a rest of 0 may have been."""


class LogProbabilities(keras.layers.Layer):
    """Logits of which a model's outputs are the probabilities.

    softmax(log p) is p, and a temperature makes of log p what it makes of the logits, which
    differ by a constant for each example. log p - log(1 - p) is the argument of a sigmoid.

    Args:
        kind: softmax or sigmoid.
    """

    def __init__(self, kind: str, **options: object) -> None:
        super().__init__(trainable=False, dtype="float32", **options)
        self.kind = kind
        self.supports_masking = True

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Return logits of probabilities, (n, ..., classes)."""
        probabilities = tf.cast(inputs, tf.float32)
        logarithm = tf.math.log(tf.maximum(probabilities, _SMALLEST))
        if self.kind == "softmax":
            return logarithm
        return logarithm - tf.math.log(tf.maximum(1.0 - probabilities, _SMALLEST_REST))

    def get_config(self) -> JsonObject:
        """Return how to make the layer again."""
        return {**super().get_config(), "kind": self.kind}


@contextlib.contextmanager
def logits_of(
    model: keras.Model,
    *final_activations: Sequence[str],
    from_logits: Sequence[bool] | None = None,
    exact: bool = False,
) -> Iterator[keras.Model]:
    """Yield a model that shares all weights with `model` and gives logits, (n, ..., classes).

    A softmax loses what it rounds to 0 or 1; its argument does not. Where the softmax can be left
    out it is, wherever it stands; within the block it is switched off, so `model` itself must not
    be called there. Else the logarithm of the probabilities is given (`LogProbabilities`), as of
    an average of several.

    Args:
        model: with one or several outputs.
        final_activations: names of the functions that turn logits into the model's outputs,
            softmax by default: one sequence for all outputs, or one for each, empty for an output
            that is given as it is.
        from_logits: whether each output is logits already; by default found out from the graph.
        exact: refuse where only the logarithm can be had.

    Raises:
        ModelError: an output is neither logits nor probabilities, or not `exact`.
    """
    each = final_activations or (("softmax",),)
    names = each * len(model.outputs) if len(each) == 1 else each
    ends = _Ends(model)
    tensors = []
    for index, (tensor, own) in enumerate(zip(model.outputs, names, strict=True)):
        known = None if from_logits is None else from_logits[index]
        tensors.append(_opened(ends, index, tensor, own, known, exact) if own else tensor)
    with contextlib.ExitStack() as switched:
        for switch in ends.switches.values():
            switched.enter_context(switch())
        logs = [t for t in tensors if isinstance(t, _Logarithm)]
        if not logs:
            yield model
            return
        outputs = [t.of_probabilities() if isinstance(t, _Logarithm) else t for t in tensors]
        opened = keras.Model(model.inputs, outputs if len(outputs) > 1 else outputs[0])
        yield with_losses(model, opened)


def takes_logarithm(model: keras.Model) -> bool:
    """Whether `logits_of` gave logarithms of probabilities for an output."""
    return any(isinstance(layer, LogProbabilities) for layer in model.layers)


@dataclass(frozen=True)
class _Logarithm:
    """An output of which the logarithm is taken."""

    tensor: tf.Tensor
    kind: str

    def of_probabilities(self) -> tf.Tensor:
        """Return logits of the output's probabilities, (n, ..., classes)."""
        return LogProbabilities(self.kind)(self.tensor)


def _opened(
    ends: _Ends,
    index: int,
    tensor: tf.Tensor,
    activations: Sequence[str],
    known: bool | None,
    exact: bool,
) -> tf.Tensor | _Logarithm:
    """Return an output's tensor, which gives logits once the ends are switched off."""
    if known:
        return tensor
    for kind in activations:
        if ends.switch_off(index, kind):
            return tensor
    if known is None:
        output_kind = kind_of(ends.ranges[index])
        if output_kind == "logits":
            return tensor
        if output_kind is None or exact:
            raise ModelError(
                f"the model {ends.model.name!r} ends in {ends.last(index)}; distillation needs "
                f"logits or a {' or '.join(activations)}",
                subject=ends.last_layer(index),
                hint="set task.from_logits to what its outputs are",
            )
    elif exact:
        raise ModelError("its outputs are probabilities of which no logits can be had")
    return _Logarithm(tensor, activations[0] if len(activations) == 1 else _kind(ends, index))


def _kind(ends: _Ends, index: int) -> str:
    return "softmax" if kind_of(ends.ranges[index]) == "softmax" else "sigmoid"


@dataclass
class _Ends:
    """The final activations of a model's outputs.

    Attributes:
        switches: what leaves each of them out for a while, by the layer's `id`.
    """

    model: keras.Model
    switches: dict[int, Switch] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.network: Network = read_network(self.model)
        self._makers = {ref.index: call for call in self.network.calls for ref in call.outputs}
        self._ranges: list[Range] | None = None

    @property
    def ranges(self) -> list[Range]:
        """The bounds of each output, before anything is switched off."""
        if self._ranges is None:
            self._ranges = ranges_of_model(self.model)
        return self._ranges

    def last_layer(self, index: int) -> str:
        """Return the name of the layer that gives an output."""
        call = self._makers.get(self.network.outputs[index].index)
        return self.model.name if call is None else str(call.layer.name)

    def last(self, index: int) -> str:
        """Return what an output ends in, in a word."""
        call = self._makers.get(self.network.outputs[index].index)
        activation = None if call is None else getattr(call.layer, "activation", None)
        name = getattr(activation, "__name__", None)
        return name or ("an input" if call is None else type(call.layer).__name__)

    def switch_off(self, index: int, kind: str) -> bool:
        """Leave out an output's final activation, and say whether that gives its logits."""
        ref = self.network.outputs[index]
        switches: list[tuple[Call, Switch]] = []
        path: list[Call] = []
        if not self._walk(ref, kind, switches, path) or self._is_shared(index, switches, path):
            return False
        plain = kind == "sigmoid" or (len(path) == 1 and _is_last_axis(path[0].layer))
        # Probabilities that were moved add up to 1 where the whole softmax was moved.
        if not plain and kind_of(self.ranges[index]) != "softmax":
            return False
        self.switches |= {id(call.layer): switch for call, switch in switches}
        return True

    def _walk(
        self, ref: Ref, kind: str, switches: list[tuple[Call, Switch]], path: list[Call]
    ) -> bool:
        call = self._makers.get(ref.index)
        if call is None:
            return False
        if isinstance(call.layer, _RANDOM):
            raise ModelError(
                f"the model {self.model.name!r} ends in {type(call.layer).__name__} after its "
                f"{kind}, of which no logits can be trained",
                subject=call.layer.name,
                hint="leave that layer out",
            )
        path.append(call)
        switch = _switch(call.layer, kind)
        if switch is not None:
            switches.append((call, switch))
            return True
        if not _is_passing(call.layer):
            return False
        return all(self._walk(each, kind, switches, path) for each in call.inputs)

    def _is_shared(
        self, index: int, switches: Sequence[tuple[Call, Switch]], path: Sequence[Call]
    ) -> bool:
        """Whether anything but this output depends on what would be left out."""
        on_path = {id(call) for call in path}
        refs = {ref.index for call in path for ref in call.outputs}
        switched = {id(call.layer) for call, _ in switches}
        for call in self.network.calls:
            if id(call) in on_path:
                continue
            if id(call.layer) in switched or any(ref.index in refs for ref in call.inputs):
                return True
        others = [r.index for i, r in enumerate(self.network.outputs) if i != index]
        return any(other in refs for other in others)


def _is_passing(layer: keras.layers.Layer) -> bool:
    if isinstance(layer, L.UpSampling2D):
        return layer.interpolation == "nearest"
    function = getattr(layer, "function", None)
    if function is not None and not isinstance(layer, L.Lambda):
        return function.__name__ in _PASSING_FUNCTIONS
    return isinstance(layer, _PASSING)


def _is_last_axis(layer: keras.layers.Layer) -> bool:
    """Whether a softmax layer is over the last axis, as that of an activation is."""
    return getattr(layer, "axis", -1) == -1 and getattr(layer, "function", None) is None


def _switch(layer: keras.layers.Layer, kind: str) -> Switch | None:
    """Return what leaves a final activation out for a while, None where the layer has none."""
    inner = layer.layer if isinstance(layer, L.TimeDistributed) else layer
    if kind == "softmax" and type(inner) is L.Softmax:
        return lambda: _without_softmax(inner)
    function = getattr(inner, "function", None)
    if function is not None and not isinstance(inner, L.Lambda):
        if not _computes(function, kind):
            return None
        return lambda: _replaced(inner, "function", lambda x, *_, **__: x)
    keras_own = type(inner).__module__.startswith("tf_keras.")
    if keras_own and isinstance(inner, _ACTIVATED) and _computes(inner.activation, kind):
        return lambda: _replaced(inner, "activation", keras.activations.linear)
    return None


def _computes(function: Callable[..., tf.Tensor] | None, kind: str) -> bool:
    """Whether a function is a softmax or a sigmoid, whatever its name."""
    if function is None or function is keras.activations.linear:
        return False
    x = np.array([[-1.5, 0.25, 2.0], [3.0, -0.5, 1.0]], np.float32)
    expected = 1 / (1 + np.exp(-x))
    if kind == "softmax":
        expected = np.exp(x) / np.exp(x).sum(axis=-1, keepdims=True)
    try:
        with tf.init_scope():
            values = np.asarray(function(tf.constant(x)))
    except Exception:  # a function of other arguments is neither
        return False
    return values.shape == x.shape and bool(np.allclose(values, expected, rtol=1e-5))


@contextlib.contextmanager
def _replaced(
    owner: keras.layers.Layer, name: str, value: Callable[..., tf.Tensor]
) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextlib.contextmanager
def _without_softmax(layer: keras.layers.Softmax) -> Iterator[None]:
    def call(inputs: tf.Tensor, mask: tf.Tensor | None = None) -> tf.Tensor:
        if mask is None:
            return inputs
        return inputs + (1.0 - tf.cast(mask, inputs.dtype)) * inputs.dtype.min

    layer.__dict__["call"] = call
    try:
        yield
    finally:
        del layer.__dict__["call"]
