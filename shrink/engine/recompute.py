"""Recomputed activations: segments of a model whose inner outputs are not kept.

Activations inside a segment are forgotten after the forward pass and computed again in the
backward pass; those that cross a cut are kept (Chen et al. 2016, "Training deep nets with
sublinear memory cost"). The backward pass holds what crosses the cuts before the segment that it
is in, this segment's activations, and about as much for their gradients. A convolution or dense
layer at the end of a segment is not computed again, as its gradient does not need its output.

Gradients are those of the plain step: the second pass draws the same random numbers and leaves
moving statistics alone.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections import defaultdict
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


_FEWEST_STEPS = 2
_WITH_GRADIENTS = 2
_PARTS = (4, 6, 8, 12, 16, 24, 32)
"""Numbers of parts to choose among."""
_FLOPS_PER_BYTE, _BYTES_PER_BYTE = 180.0, 12.0
"""What a kept byte is worth: floating-point operations of kernels, or bytes that are read and
written by other layers."""


@dataclass(frozen=True)
class Step:
    """A layer's call, in the order of execution.

    Attributes:
        inputs: names of the tensors that it takes.
        outputs: names of those that it gives.
        output_bytes: of all outputs, for one example.
        repeatable: whether it may be computed twice.
        price: of computing it again, in kept bytes.
        is_product: whether its gradient does not need its output.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    output_bytes: int
    repeatable: bool = True
    price: float = 0.0
    is_product: bool = False


def choose_segments(
    steps: Sequence[Step], number: int | None, outputs: Sequence[str] = ()
) -> list[range]:
    """Return the runs of steps to compute again, in order and disjoint.

    Args:
        steps: in the order of execution.
        number: each segment holds at most 1/number of all output bytes, or more if that gives a
            number of segments nearer to it; None for the number that holds least.
        outputs: names of tensors that are needed after the last step.

    Returns:
        Ranges of indices into `steps`. Steps that may not be repeated are in none of them, and
        split the segment that they would be in.
    """
    if len(steps) < 2 * _FEWEST_STEPS:
        return []
    last_use = {name: index for index, step in enumerate(steps) for name in step.inputs}
    last_use |= dict.fromkeys(outputs, len(steps))
    last = [max(last_use.get(n, i) for n in step.outputs) for i, step in enumerate(steps)]
    before = list(itertools.accumulate((step.output_bytes for step in steps), initial=0))

    def held(bounds: Sequence[int]) -> int:
        """Return the most bytes at a time: what crossed so far, a segment and its gradients."""
        kept = most = 0
        for start, stop in itertools.pairwise(bounds):
            most = max(most, kept + _WITH_GRADIENTS * (before[stop] - before[start]))
            kept += sum(steps[i].output_bytes for i in range(start, stop) if last[i] >= stop)
        return most

    if number is None:
        cuts = (_cheapest_cuts(steps, last, before[-1] / n) for n in _PARTS)
        return _repeatable_runs(steps, min(cuts, key=held))
    best: list[range] = []
    n = min(number, len(steps) // _FEWEST_STEPS)
    while n > len(best):  # with too many parts, only single steps remain
        found = _repeatable_runs(steps, _cheapest_cuts(steps, last, before[-1] / n))
        best = min(best, found, key=lambda runs: abs(len(runs) - number) if runs else math.inf)
        n -= 1
    return best


def _repeatable_runs(steps: Sequence[Step], bounds: Sequence[int]) -> list[range]:
    """Split segments at steps that may not be repeated; runs that are too short save nothing."""
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


def _cheapest_cuts(steps: Sequence[Step], last: Sequence[int], most_bytes: float) -> list[int]:
    """Return the bounds of segments with the least cost: a shortest path.

    Costs are bytes that leave a segment plus recomputed work.

    Args:
        steps: in the order of execution.
        last: the index of the last step that reads an output of each.
        most_bytes: of the outputs of a segment's steps.
    """
    first = [len(steps)] * len(steps)
    maker = {name: index for index, step in enumerate(steps) for name in step.outputs}
    ending, beginning = defaultdict[int, list[int]](list), defaultdict[int, list[int]](list)
    for index, step in enumerate(steps):
        for name in step.inputs:
            if name in maker:
                first[maker[name]] = min(first[maker[name]], index)
    for index, step in enumerate(steps):
        ending[last[index]].append(index)
        if step.is_product:
            beginning[first[index]].append(index)
    best = [(0.0, 0), *[(math.inf, 0)] * len(steps)]
    for start in range(len(steps)):
        inside, leaving, again = 0, 0, 0.0
        for index in range(start, len(steps)):
            step = steps[index]
            inside += step.output_bytes
            if inside > most_bytes and index > start:
                break
            leaving += step.output_bytes
            leaving -= sum(steps[i].output_bytes for i in ending[index] if i >= start)
            again += 0.0 if step.is_product else step.price
            again += sum(steps[i].price for i in beginning[index] if i >= start)
            paid = leaving + again if index > start else step.output_bytes
            best[index + 1] = min(best[index + 1], (best[start][0] + paid, start))
    bounds = [len(steps)]
    while bounds[-1]:
        bounds.append(best[bounds[-1]][1])
    return bounds[::-1]


_NOTHING = (
    "training.recompute: nothing is recomputed: the model has too few layers in a row without "
    "masks, integers, state or random numbers"
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
        recompute: `off`, `auto` for the number of segments that holds least, or about how many.
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
        recompute: into about how many segments; not off.
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
    sizes = [math.prod(size or 1 for size in output.shape[1:]) for output in outputs]
    output_bytes = sum(o.dtype.size * size for o, size in zip(outputs, sizes, strict=True))
    kernels = [math.prod(w.shape) for w in node.layer.weights if len(w.shape) > 1]
    flops = 2 * sum(sizes) * sum(kernels) / (outputs[0].shape[-1] or 1)
    linear = getattr(node.layer, "activation", None) in (None, keras.activations.linear)
    return Step(
        inputs=tuple(dict.fromkeys(map(str, node.flat_input_ids))),
        outputs=tuple(map(str, node.flat_output_ids)),
        output_bytes=output_bytes,
        price=max(flops / _FLOPS_PER_BYTE, output_bytes / _BYTES_PER_BYTE),
        is_product=linear and len(kernels) == 1,
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
