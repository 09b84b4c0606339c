"""Recomputed activations: segments of a model whose inner outputs are not kept.

Activations inside a segment are forgotten after the forward pass and computed again in the
backward pass; those that cross a cut are kept (Chen et al. 2016, "Training deep nets with
sublinear memory cost"). The backward pass holds what crosses the cuts before the segment that it
is in, this segment's activations, and about as much for their gradients.

Gradients are those of the plain step: the second pass draws the same random numbers and leaves
moving statistics alone.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
import tf_keras as keras

from shrink.base.keras_internals import (
    calls_of,
    flat_inputs,
    is_functional,
    layers_of,
    mask_of,
    nodes_of,
    output_structure,
    own_state,
    plain_run,
    run_by,
    stateful_generator,
    takes_training,
)
from shrink.base.types import Tensors
from shrink.engine.batch_norm import Method, wrapped_batch_norms
from shrink.engine.exactness import Effect, forward_effects
from shrink.engine.randomness import Position, RandomSeeds
from shrink.graph.network import is_batch_norm


@contextmanager
def steps_in_order() -> Iterator[None]:
    """Let recurrent layers that are called in here begin no step before the last one ended.

    Keras allows 32 steps at a time, backwards, too, where the products of the weights' gradient
    wait for nothing and are then all held at once: an LSTM and a GRU of 128 units over 32 steps
    peaked at 10.5 MB in some processes, at 3.1 in others, and always do at 3.1 so.
    """
    v1 = tf.compat.v2.compat.v1  # where Keras takes it from
    while_loop = v1.while_loop

    def in_order(*arguments: object, **settings: object) -> Tensors:
        return while_loop(*arguments, **{**settings, "parallel_iterations": 1})

    v1.while_loop = in_order
    try:
        yield
    finally:
        v1.while_loop = while_loop


_MOST_SEGMENTS = 64
_FEWEST_STEPS = 2
_WITH_GRADIENTS = 2


@dataclass(frozen=True)
class Step:
    """A layer's call, in the order of execution.

    Attributes:
        inputs: names of the tensors that it takes.
        outputs: names of those that it gives.
        output_bytes: of all outputs, for one example.
        repeatable: whether it may be computed twice.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    output_bytes: int
    repeatable: bool = True


def choose_segments(
    steps: Sequence[Step], number: int | None, outputs: Sequence[str] = ()
) -> list[range]:
    """Return the runs of steps to compute again, in order and disjoint.

    Args:
        steps: in the order of execution.
        number: how many segments; None for the number that holds least.
        outputs: names of tensors that are needed after the last step.

    Returns:
        Ranges of indices into `steps`. Steps that may not be repeated are in none of them, and
        split the segment that they would be in.
    """
    if len(steps) < 2 * _FEWEST_STEPS:
        return []
    crossing = _crossing_bytes(steps, outputs)
    before = list(itertools.accumulate((step.output_bytes for step in steps), initial=0))

    def cuts(count: int) -> list[int]:
        """Return `count` - 1 cuts, near equal parts of the bytes, where least cross."""
        found = [0]
        for part in range(1, count):
            target, reach = before[-1] * part / count, before[-1] / (2 * count)
            after_last = range(found[-1] + 1, len(steps))
            near = [index for index in after_last if abs(before[index] - target) <= reach]
            if near:
                found.append(min(near, key=lambda i: (crossing[i], abs(before[i] - target))))
        return [*found, len(steps)]

    def held(bounds: Sequence[int]) -> int:
        """Return the most bytes at a time: what crossed so far, a segment and its gradients."""
        kept = itertools.accumulate(crossing[start] for start in bounds[:-1])
        inside = (before[b] - before[a] for a, b in itertools.pairwise(bounds))
        return max(k + _WITH_GRADIENTS * own for k, own in zip(kept, inside, strict=True))

    most = min(_MOST_SEGMENTS, len(steps) // _FEWEST_STEPS)
    counts = range(2, most + 1) if number is None else [min(number, most)]
    bounds = min(map(cuts, counts), key=held)
    # Steps that may not be repeated split a segment; runs that are too short save nothing.
    groups = (
        (repeatable, list(run))
        for start, stop in itertools.pairwise(bounds)
        for repeatable, run in itertools.groupby(
            range(start, stop), key=lambda index: steps[index].repeatable
        )
    )
    return [
        range(run[0], run[-1] + 1)
        for repeatable, run in groups
        if repeatable and len(run) >= _FEWEST_STEPS
    ]


def _crossing_bytes(steps: Sequence[Step], outputs: Sequence[str]) -> list[int]:
    """Return for each index before a step the bytes that are made before and used after it."""
    last_use = {name: index for index, step in enumerate(steps) for name in step.inputs}
    last_use |= {name: len(steps) for name in outputs}
    crossing = [0] * (len(steps) + 1)
    for made, step in enumerate(steps):
        for name in step.outputs:
            for index in range(made + 1, last_use.get(name, made) + 1):
                crossing[index] += step.output_bytes // len(step.outputs)
    return crossing


_NOTHING = (
    "training.recompute: no segment of the model can be recomputed; segments with masks, integers, "
    "state or random numbers cannot"
)


class _Replaying(threading.local):
    """Whether this thread (each replica has its own) computes a segment again."""

    now = False


_REPLAYING = _Replaying()


@contextmanager
def recomputed(
    model: keras.Model, recompute: str | int, seeds: RandomSeeds | None
) -> Iterator[list[str]]:
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
    # The functional model with the most layers that no other one calls with masked inputs.
    networks = [
        network
        for network in (model, *layers_of(model))
        if is_functional(network)
        and not any(
            mask_of(tensor) is not None
            for node in calls_of(network)
            if not node.is_input
            for tensor in tf.nest.flatten(node.keras_inputs)
        )
    ]
    network = max(networks, key=lambda network: len(nodes_of(network)), default=None)
    run = None if network is None else SegmentedRun(network, recompute, seeds)
    if network is None or run is None or not run.segments:
        yield [_NOTHING]
        return

    def in_first_pass(add_update: Method) -> Method:
        """Let batch normalisation update its moving statistics in the first pass alone."""
        return lambda update: None if _REPLAYING.now else add_update(update)

    with wrapped_batch_norms(network, "add_update", in_first_pass), run_by(network, run):
        yield []


class SegmentedRun:
    """Calls the layers of a functional model, in place of tf-keras.

    Args:
        network: the model.
        recompute: into how many segments; not off.
        seeds: where random layers draw from.

    Attributes:
        segments: runs of `nodes` that are computed again.
        nodes: the model's calls of layers, in the order of execution.
    """

    def __init__(
        self, network: keras.Model, recompute: str | int, seeds: RandomSeeds | None
    ) -> None:
        self._network = network
        self._plain = plain_run(network)
        self._seeds = seeds
        self.nodes = [node for node in nodes_of(network) if not node.is_input]
        self._kept = [str(id(output)) for output in network.outputs]
        effects = forward_effects(network)
        self._steps = [_step(node, seeds, effects) for node in self.nodes]
        number = None if recompute == "auto" else int(recompute)
        self.segments = choose_segments(self._steps, number, self._kept)

    def __call__(
        self, inputs: Tensors, training: bool | None = None, mask: Tensors = None
    ) -> Tensors:
        """Run the model; in training, so that segments are forgotten."""
        if training is not True:
            return self._plain(inputs, training=training, mask=mask)
        network = self._network
        given = zip(network.inputs, flat_inputs(network, inputs), strict=True)
        values = {str(id(own)): value for own, value in given}
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
        return tf.nest.pack_sequence_as(output_structure(network), outputs)

    def _run_segment(self, segment: range, values: dict[str, tf.Tensor]) -> None:
        """Run a segment whose inner outputs are computed again in the backward pass."""
        inside = [self._steps[index] for index in segment]
        made = {name for step in inside for name in step.outputs}
        takes = list(
            dict.fromkeys(name for step in inside for name in step.inputs if name not in made)
        )
        used = {name for step in self._steps[segment.stop :] for name in step.inputs}
        used.update(self._kept)
        gives = [name for step in inside for name in step.outputs if name in used]
        seeds, first, position = self._seeds, True, None

        def forward(tensors: Sequence[tf.Tensor]) -> tuple[tf.Tensor, ...]:
            inner = dict(zip(takes, tensors, strict=True))
            for index in segment:
                _run_node(self.nodes[index], inner)
            return tuple(inner[name] for name in gives)

        def run(*tensors: tf.Tensor) -> tuple[tf.Tensor, ...]:
            nonlocal first, position
            if first:
                first, position = False, None if seeds is None else seeds.position
                return forward(tensors)
            # Weights are read, and cast to half precision, when the replay begins.
            with _replaying(seeds, position), tf.control_dependencies(tensors):
                return forward(tensors)

        results = tf.recompute_grad(run)(*(values[name] for name in takes))
        values.update(zip(gives, tf.nest.flatten(results), strict=True))


@contextmanager
def _replaying(seeds: RandomSeeds | None, position: Position | None) -> Iterator[None]:
    """Draw what the first pass drew, and leave moving statistics alone."""
    _REPLAYING.now = True
    try:
        with nullcontext() if seeds is None or position is None else seeds.drawing_again(position):
            yield
    finally:
        _REPLAYING.now = False


def _run_node(node: Any, values: dict[str, tf.Tensor]) -> None:
    """Call a layer as the functional model would, in training."""
    names = [str(name) for name in node.flat_input_ids]
    # tf-keras takes one tensor off a list for each use.
    arguments, keywords = node.map_arguments({n: [values[n]] * names.count(n) for n in names})
    if takes_training(node.layer) and keywords.get("training") is None:
        keywords = {**keywords, "training": True}
    outputs = tf.nest.flatten(node.layer(*arguments, **keywords))
    values.update(zip(map(str, node.flat_output_ids), outputs, strict=True))


def _step(
    node: Any, seeds: RandomSeeds | None, effects: Mapping[keras.layers.Layer, Collection[Effect]]
) -> Step:
    outputs, inputs = tf.nest.flatten(node.outputs), tf.nest.flatten(node.keras_inputs)
    # Masks are lost inside a segment, and integers have no gradient.
    passed_on = all(
        tensor.dtype.is_floating and mask_of(tensor) is None for tensor in (*inputs, *outputs)
    )
    layers = (node.layer, *layers_of(node.layer))
    return Step(
        inputs=tuple(dict.fromkeys(map(str, node.flat_input_ids))),
        outputs=tuple(map(str, node.flat_output_ids)),
        output_bytes=sum(
            output.dtype.size * math.prod(size or 1 for size in output.shape[1:])
            for output in outputs
        ),
        repeatable=passed_on
        and all(_is_repeatable(layer, seeds, effects.get(layer, ())) for layer in layers),
    )


def _is_repeatable(
    layer: keras.layers.Layer, seeds: RandomSeeds | None, effects: Collection[Effect]
) -> bool:
    """Whether a second pass gives the same and changes nothing."""
    if is_batch_norm(layer):
        return not layer.renorm
    if seeds is not None and stateful_generator(layer) is not None:
        return True
    # A loss that a layer adds would lose its gradient; state of its own would move twice.
    adds_loss = getattr(layer, "activity_regularizer", None) is not None
    return not (effects or adds_loss or own_state(layer))
