"""Gradient checkpointing: less memory for activations, for a second forward pass of each segment.

Chen et al. 2016, "Training deep nets with sublinear memory cost". Gradients are those of the
plain step: the second pass draws the same random numbers and leaves moving statistics alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import tensorflow as tf

from shrink.engine.batch_norm import is_batch_norm, layers_of, wrapped_batch_norms
from shrink.engine.forward_effects import Effect, forward_effects
from shrink.engine.randomness import RandomSeeds, draws_from_seeds
from shrink.engine.segments import Step, choose_segments

_NOTHING = (
    "training.recompute: no part of the model can be computed twice; parts with masks, integers, a"
    " state or random numbers of their own cannot"
)


class _Replaying(threading.local):
    """Whether this thread (each replica has its own) computes a segment again."""

    now = False


_REPLAYING = _Replaying()


@contextmanager
def recomputed(model: Any, recompute: str | int, seeds: RandomSeeds | None) -> Iterator[list[str]]:
    """Let a functional model forget activations while it is traced in here, for training.

    Of a model with models in it, the one with the most layers is cut.

    Args:
        model: a functional model; its inference stays as it is.
        recompute: `off`, `auto` for the number of segments that holds least, or a number.
        seeds: where its random layers draw from, if they do.

    Yields:
        Sentences that say why nothing or less is forgotten.
    """
    if recompute == "off":
        yield []
        return
    network = _largest_network(model)
    run = None if network is None else SegmentedRun(network, recompute, seeds)
    if network is None or run is None or not run.segments:
        yield [_NOTHING]
        return
    with _steady_statistics(network):
        network._run_internal_graph = run
        try:
            yield []
        finally:
            del network._run_internal_graph


class SegmentedRun:
    """Stands in for `_run_internal_graph` of a tf-keras functional model.

    Args:
        network: the model.
        recompute: into how many segments; not off.
        seeds: where random layers draw from.

    Attributes:
        segments: runs of `nodes` that are computed again.
        nodes: the model's calls of layers, in the order of execution.
    """

    def __init__(self, network: Any, recompute: str | int, seeds: RandomSeeds | None) -> None:
        self._network = network
        self._plain = network._run_internal_graph
        self._seeds = seeds
        self.nodes = _ordered_nodes(network)
        self._kept = [str(id(output)) for output in network.outputs]
        effects = forward_effects(network)
        self._steps = [_step(node, seeds, effects) for node in self.nodes]
        wanted = None if recompute == "auto" else int(recompute)
        self.segments = choose_segments(self._steps, wanted, self._kept)

    def __call__(self, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        """Run the model; in training, so that segments are forgotten."""
        if training is not True:
            return self._plain(inputs, training=training, mask=mask)
        network = self._network
        flat = network._flatten_to_reference_inputs(inputs)
        values = {
            str(id(x)): network._conform_to_reference_input(y, ref_input=x)
            for x, y in zip(network.inputs, flat, strict=True)
        }
        index = 0
        starts = {segment.start: segment for segment in self.segments}
        while index < len(self.nodes):
            segment = starts.get(index)
            if segment is None:
                _run_node(self.nodes[index], values)
                index += 1
            else:
                self._run_segment(segment, values)
                index = segment.stop
        outputs = [values[name] for name in self._kept]
        return tf.nest.pack_sequence_as(network._nested_outputs, outputs)

    def _run_segment(self, segment: range, values: dict[str, Any]) -> None:
        takes, gives = self._interface(segment)
        function = self._repeated(segment, takes, gives)
        results = tf.recompute_grad(function)(*(values[name] for name in takes))
        values.update(zip(gives, tf.nest.flatten(results), strict=True))

    def _interface(self, segment: range) -> tuple[list[str], list[str]]:
        """Return the names of the tensors that a segment takes, and of those used after it."""
        inside = [self._steps[index] for index in segment]
        made = {name for step in inside for name in step.outputs}
        takes = dict.fromkeys(name for step in inside for name in step.inputs if name not in made)
        later = {name for step in self._steps[segment.stop :] for name in step.inputs}
        gives = [name for step in inside for name in step.outputs if name in {*later, *self._kept}]
        return list(takes), gives

    def _repeated(
        self, segment: range, takes: Sequence[str], gives: Sequence[str]
    ) -> Callable[..., tuple[Any, ...]]:
        """Return the segment as a function whose calls after the first one are replays."""
        place: Any = None

        def run(*tensors: Any) -> tuple[Any, ...]:
            nonlocal place
            if place is None:
                place = self._seeds.place if self._seeds is not None else ()
                return forward(tensors)
            # Weights are read, and cast to half precision, when the replay begins.
            with _replaying(self._seeds, place), tf.control_dependencies(tensors):
                return forward(tensors)

        def forward(tensors: Sequence[Any]) -> tuple[Any, ...]:
            values = dict(zip(takes, tensors, strict=True))
            for index in segment:
                _run_node(self.nodes[index], values)
            return tuple(values[name] for name in gives)

        return run


@contextmanager
def _replaying(seeds: RandomSeeds | None, place: Any) -> Iterator[None]:
    """Draw what the first pass drew, and leave moving statistics alone."""
    _REPLAYING.now = True
    try:
        with nullcontext() if seeds is None else seeds.drawing_again(place):
            yield
    finally:
        _REPLAYING.now = False


def _steady_statistics(network: Any) -> AbstractContextManager[None]:
    """Let batch normalisation update its moving statistics in the first pass alone."""
    return wrapped_batch_norms(network, "add_update", _once)


def _once(add_update: Any) -> Any:
    return lambda update: None if _REPLAYING.now else add_update(update)


def _run_node(node: Any, values: dict[str, Any]) -> None:
    """Call a layer as the functional model would, in training."""
    names = [str(name) for name in node.flat_input_ids]
    # tf-keras takes one tensor off a list for each use.
    arguments, keywords = node.map_arguments({n: [values[n]] * names.count(n) for n in names})
    if node.layer._expects_training_arg and keywords.get("training") is None:
        keywords = {**keywords, "training": True}
    outputs = tf.nest.flatten(node.layer(*arguments, **keywords))
    values.update(zip(map(str, node.flat_output_ids), outputs, strict=True))


def _ordered_nodes(network: Any) -> list[Any]:
    depths = sorted(network._nodes_by_depth, reverse=True)
    nodes = [node for depth in depths for node in network._nodes_by_depth[depth]]
    return [node for node in nodes if not node.is_input]


def _step(node: Any, seeds: RandomSeeds | None, effects: Mapping[Any, Collection[Effect]]) -> Step:
    outputs = tf.nest.flatten(node.outputs)
    inputs = tf.nest.flatten(node.keras_inputs)
    parts = (node.layer, *layers_of(node.layer))
    return Step(
        inputs=tuple(dict.fromkeys(map(str, node.flat_input_ids))),
        outputs=tuple(map(str, node.flat_output_ids)),
        output_bytes=sum(_bytes_of(output) for output in outputs),
        repeatable=all(_is_passed_on(tensor) for tensor in (*inputs, *outputs))
        and all(_is_repeatable(layer, seeds, effects.get(layer, ())) for layer in parts),
    )


def _bytes_of(tensor: Any) -> int:
    size = tensor.dtype.size
    for side in tensor.shape[1:]:
        size *= side or 1
    return int(size)


def _is_passed_on(tensor: Any) -> bool:
    """Whether a tensor is the same inside a segment: masks are lost, integers have no gradient."""
    return bool(tensor.dtype.is_floating) and getattr(tensor, "_keras_mask", None) is None


def _is_repeatable(layer: Any, seeds: RandomSeeds | None, effects: Collection[Effect]) -> bool:
    """Whether a second pass gives the same and changes nothing."""
    if is_batch_norm(layer):
        return not layer.renorm
    if seeds is not None and draws_from_seeds(layer):
        return True
    # A loss that a layer adds would lose its gradient; state of its own would move twice.
    adds_loss = getattr(layer, "activity_regularizer", None) is not None
    return not (effects or adds_loss or layer._non_trainable_weights)


def _largest_network(model: Any) -> Any:
    """Return the functional model with the most layers; None where masks come into it."""
    networks = [layer for layer in (model, *layers_of(model)) if hasattr(layer, "_nodes_by_depth")]
    networks = [network for network in networks if not _is_masked(network)]
    return max(networks, key=lambda network: len(network._nodes_by_depth), default=None)


def _is_masked(network: Any) -> bool:
    """Whether a model is called with masked inputs by another one."""
    calls = [node for node in network._inbound_nodes if not node.is_input]
    inputs = tf.nest.flatten([node.keras_inputs for node in calls])
    return any(getattr(tensor, "_keras_mask", None) is not None for tensor in inputs)
