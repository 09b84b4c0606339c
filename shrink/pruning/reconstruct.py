"""Outputs of a pruned model: solved for again by least squares, and checked.

Group by group, from the inputs on: the layers that read a group are given the activations of the
model as pruned so far, and have to reproduce their outputs in the unpruned model (as in ThiNet,
Luo et al. 2017, and He et al. 2017, "Channel Pruning for Accelerating Very Deep Neural
Networks"). Layers after them are solved for, too, at last: they make up for part of what was lost.
Labels are not needed.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import ModelError, StageError
from shrink.graph.groups import ChannelGraph, Group, Member
from shrink.graph.rebuild import Weights, masked, rebuild
from shrink.model.logits import logits_of
from shrink.pruning.allocation import Counts
from shrink.pruning.importance import Evidence, activations, calls, feed, l2, least_important
from shrink.pruning.lstsq import Fit, Moments, eliminate, fit

_CHUNK_BYTES = 64 * 1000**2


def can_unfold(layer: keras.layers.Layer) -> bool:
    """Whether the layer is a matrix product over patches of its input."""
    if type(layer) is keras.layers.Dense:
        return True
    if type(layer) is keras.layers.Conv1D:
        return layer.groups == 1 and layer.padding in ("valid", "same")
    return type(layer) is keras.layers.Conv2D and layer.groups == 1


def unfold(layer: keras.layers.Layer, x: np.ndarray, rows: int, seed: int) -> Iterator[np.ndarray]:
    """Yield (m, taps · channels) float32: patches of the layer's input, taps before channels.

    Row times `kernel.reshape(-1, outputs)` is the layer's output at that place, without bias.

    Args:
        layer: one that `can_unfold`.
        x: its input, (n, ..., channels).
        rows: the most patches per example, chosen by the seed.
    """
    random = np.random.default_rng(seed)
    per_example = x[0].nbytes * int(np.prod(layer.kernel.shape[:-2], dtype=np.int64))
    step = max(1, _CHUNK_BYTES // max(per_example, 1))
    chosen: np.ndarray | None = None
    for start in range(0, len(x), step):
        patches = _patches(layer, x[start : start + step])
        if chosen is None:
            count = patches.shape[1]
            chosen = random.choice(count, min(rows, count), replace=False)
        yield patches[:, chosen].reshape(-1, patches.shape[-1])


def _patches(layer: keras.layers.Layer, x: np.ndarray) -> np.ndarray:
    """Return (n, places, taps · channels)."""
    if isinstance(layer, keras.layers.Dense):
        return x.reshape(len(x), -1, x.shape[-1])
    if isinstance(layer, keras.layers.Conv1D):
        x = x[:, None]
    flat = [1] if x.ndim == 4 and len(layer.kernel_size) == 1 else []
    patches = tf.image.extract_patches(
        x,
        sizes=[1, *flat, *layer.kernel_size, 1],
        strides=[1, *flat, *layer.strides, 1],
        rates=[1, *flat, *layer.dilation_rate, 1],
        padding=layer.padding.upper(),
    ).numpy()
    return patches.reshape(len(x), -1, patches.shape[-1])


_ROWS = 30_000
_ROWS_PER_FEATURE = 5
# The moments of more features than these take gigabytes.
_MOST_FEATURES = 8192


@dataclass(frozen=True)
class Reconstruction:
    """Which channels go, and the weights of all layers afterwards, at their full size.

    Attributes:
        ranked: groups that no supported layer reads, and which went by their L2 norm.
    """

    removed: np.ndarray
    weights: Weights
    ranked: tuple[str, ...]


def least_squares(
    graph: ChannelGraph, counts: Counts, weights: Weights, x: Sequence[np.ndarray], seed: int
) -> Reconstruction:
    """Remove so many channels of each group, solving for the kernels from there on.

    Args:
        weights: of the unpruned model.
        x: examples, one array (n, ...) per input of the model.
        seed: decides which positions of the examples are used.
    """
    return _Solver(graph, weights, x, seed).solve(counts)


class _Solver:
    """Holds the unpruned model beside the one that is being pruned."""

    def __init__(
        self, graph: ChannelGraph, weights: Weights, x: Sequence[np.ndarray], seed: int
    ) -> None:
        self.graph = graph
        self.weights = {name: list(arrays) for name, arrays in weights.items()}
        self.first = weights
        self.x = x
        self.random = np.random.default_rng(seed)
        self.removed = np.array([], np.int64)
        self.solved: dict[str, int] = {}  # when, by layer
        everything = graph.keep(self.removed)
        self.unpruned = rebuild(graph, everything, weights)
        self.pruned = rebuild(graph, everything, weights)

    def solve(self, counts: Counts) -> Reconstruction:
        """Remove so many channels of each group, group by group."""
        ranked = []
        for group, count in zip(self.graph.groups, counts, strict=True):
            if not count:
                continue
            readers = [m for m in group.members if m.role == "input" and self._can_solve(m)]
            if readers:
                self._prune(readers, group, count)
            else:
                ranked.append(group.name)
                scores = l2(group, Evidence(self.weights, dict))
                self._remove(least_important(group, scores, count))
        self._catch_up()
        return Reconstruction(self.removed, self.weights, tuple(ranked))

    def _catch_up(self) -> None:
        """Solve, in order, for each layer that was solved for before one ahead of it, or never."""
        readers = {
            member.layer: (member, group)
            for group in self.graph.groups
            for member in group.members
            if member.role == "input" and self._can_solve(member)
        }
        latest = 0
        for layer in self.pruned.layers:
            if layer.name in readers and self.solved.get(layer.name, 0) < latest:
                member, group = readers[layer.name]
                if np.prod(layer.kernel.shape[:-1]) <= _MOST_FEATURES:
                    self._solve_again(member, group)
            latest = max(latest, self.solved.get(layer.name, 0))

    def _solve_again(self, member: Member, group: Group) -> None:
        (system,) = self._systems([member], group)
        if system.is_overdetermined():
            self._store(system, system.fit())
            self._refresh()

    def _can_solve(self, member: Member) -> bool:
        layer = self.pruned.get_layer(member.layer)
        return can_unfold(layer) and layer.weights[member.weight] is layer.kernel

    def _prune(self, readers: Sequence[Member], group: Group, count: int) -> None:
        """Remove the channels of a group that its readers can do without best."""
        systems = self._systems(readers, group)
        fits = [system.fit() for system in systems]
        removed = eliminate([f.problem for f in fits], count)
        for system, solved in zip(systems, fits, strict=True):
            self._store(system, solved)
        self._remove(group.channels[removed])

    def _systems(self, readers: Sequence[Member], group: Group) -> list[_System]:
        """Return the readers' systems with the activations of all examples."""
        systems = [_System(self, member, group) for member in readers]
        for batch in self._activations(readers):
            for system, pairs in zip(systems, batch, strict=True):
                system.add(pairs)
        return systems

    def _store(self, system: _System, solved: Fit) -> None:
        system.store(solved)
        self.solved[system.member.layer] = 1 + max(self.solved.values(), default=0)

    def _remove(self, channels: np.ndarray) -> None:
        self.removed = np.append(self.removed, channels)
        self._refresh()

    def _refresh(self) -> None:
        """Give the pruned model the weights as they are now."""
        values = masked(self.graph, self.graph.keep(self.removed), self.weights)
        for name, arrays in values.items():
            if arrays:
                self.pruned.get_layer(name).set_weights(arrays)

    def _activations(
        self, readers: Sequence[Member]
    ) -> Iterator[list[list[tuple[np.ndarray, np.ndarray]]]]:
        """Yield, per batch and reader, each call's input in the unpruned and the pruned model."""
        before, now = (
            activations(
                model, [t for member in readers for t in calls(model, member.layer)], self.x
            )
            for model in (self.unpruned, self.pruned)
        )
        counts = [len(calls(self.pruned, member.layer)) for member in readers]
        for both in zip(before, now, strict=True):
            pairs = iter(zip(*both, strict=True))
            yield [list(itertools.islice(pairs, count)) for count in counts]


class _System:
    """The least-squares system of one layer that reads a group."""

    def __init__(self, solver: _Solver, member: Member, group: Group) -> None:
        self.solver = solver
        self.member = member
        self.layer = solver.pruned.get_layer(member.layer)
        self.rows = max(1, _ROWS // len(solver.x[0]))
        use = solver.graph.layers[member.layer].weights[member.weight]
        keep = solver.graph.keep(solver.removed)
        labels = {axis.role: axis.labels for axis in use.axes}
        self.alive = np.flatnonzero(keep[labels["input"]])
        self.outputs = np.flatnonzero(keep[labels["output"]])
        self.taps = int(np.prod(self.layer.kernel.shape[:-2], dtype=np.int64))
        self.blocks = [self._columns(positions) for positions in member.positions]
        width = self.taps * len(self.alive)
        self.moments = Moments(width, len(self.outputs))

    def _columns(self, positions: np.ndarray) -> np.ndarray:
        inside = np.flatnonzero(np.isin(self.alive, positions))
        return (np.arange(self.taps)[:, None] * len(self.alive) + inside).ravel()

    def add(self, pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> None:
        """Add the rows of a batch, given each call's input in the unpruned and the pruned model."""
        kernel = self.solver.first[self.member.layer][self.member.weight]
        flat = kernel.reshape(-1, kernel.shape[-1])[:, self.outputs]
        for one, other in pairs:
            seed = int(self.solver.random.integers(2**31))
            for rows_before, rows_now in zip(
                unfold(self.layer, one, self.rows, seed),
                unfold(self.layer, other, self.rows, seed),
                strict=True,
            ):
                grid = rows_now.reshape(len(rows_now), self.taps, -1)[:, :, self.alive]
                self.moments.add(grid.reshape(len(grid), -1), rows_before @ flat)

    def is_overdetermined(self) -> bool:
        """Whether there are so many rows that what they ask for holds for other examples, too."""
        return self.moments.rows >= _ROWS_PER_FEATURE * len(self.moments.x)

    def fit(self) -> Fit:
        """Return the least-squares problem at its solution with every channel."""
        kernel = self._kernel()[:, self.alive][:, :, self.outputs]
        start = kernel.reshape(self.taps * len(self.alive), -1)
        return fit(self.moments, start, self.blocks, intercept=self.layer.bias is not None)

    def store(self, solved: Fit) -> None:
        """Write the solution into the solver's weights."""
        arrays = self.solver.weights[self.member.layer]
        kernel = self._kernel().copy()
        solution = solved.problem.solution.reshape(self.taps, len(self.alive), -1)
        kernel[np.ix_(np.arange(self.taps), self.alive, self.outputs)] = solution
        shape = arrays[self.member.weight].shape
        arrays[self.member.weight] = kernel.reshape(shape).astype(np.float32)
        if self.layer.bias is not None:
            index = next(i for i, w in enumerate(self.layer.weights) if w is self.layer.bias)
            bias = self.solver.first[self.member.layer][index].copy()
            bias[self.outputs] += solved.intercept()
            arrays[index] = bias

    def _kernel(self) -> np.ndarray:
        kernel = self.solver.weights[self.member.layer][self.member.weight]
        return kernel.reshape(self.taps, kernel.shape[-2], kernel.shape[-1])


TOLERANCE = 1e-4
"""Largest difference, relative to the largest output, that rounding may explain."""


def check_same(masked: keras.Model, rebuilt: keras.Model, x: Sequence[np.ndarray]) -> float:
    """Return the largest relative difference of the outputs, before a final softmax.

    Args:
        masked: the model at its full size, with everything removed at zero.
        rebuilt: the smaller model.
        x: examples, one array per input.

    Raises:
        StageError: the difference is more than rounding.
    """
    difference = max(_differences(_outputs(masked, x), _outputs(rebuilt, x)))
    if not difference <= TOLERANCE:
        raise StageError(
            f"the rebuilt model's outputs differ from the masked one's by {difference:.1e}",
            subject="prune",
            hint="exclude layers one by one with prune.exclude to find the layer, "
            "and please report this",
        )
    return difference


def _outputs(model: keras.Model, x: Sequence[np.ndarray]) -> list[np.ndarray]:
    with contextlib.ExitStack() as stack:
        before = model
        # Without logits, as after a sigmoid, the outputs themselves have to do.
        with contextlib.suppress(ModelError):
            before = stack.enter_context(logits_of(model, exact=True))
        outputs = before(feed(before, x), training=False)
        return [np.asarray(y, np.float64) for y in tf.nest.flatten(outputs)]


def _differences(expected: Sequence[np.ndarray], actual: Sequence[np.ndarray]) -> list[float]:
    return [
        float(np.max(np.abs(a - b)) / (np.max(np.abs(a)) or 1.0))
        for a, b in zip(expected, actual, strict=True)
    ]
