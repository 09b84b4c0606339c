"""Where to cut a network for gradient checkpointing: arithmetic on sizes, no tensors.

Activations inside a segment are forgotten after the forward pass and computed again in the
backward pass; those that cross a cut are kept (Chen et al. 2016, "Training deep nets with
sublinear memory cost"). The backward pass holds what crosses the cuts before the segment that it
is in, this segment's activations, and about as much for their gradients.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

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
    steps: Sequence[Step], wanted: int | None, kept: Sequence[str] = ()
) -> list[range]:
    """Return the runs of steps to compute again, in order and disjoint.

    Args:
        steps: in the order of execution.
        wanted: how many segments; None for the number that holds least.
        kept: names of tensors that are needed after the last step.

    Returns:
        Ranges of indices into `steps`. Steps that may not be repeated are in none of them, and
        split the segment that they would be in.
    """
    if len(steps) < 2 * _FEWEST_STEPS:
        return []
    crossing = _crossing_bytes(steps, kept)
    most = min(_MOST_SEGMENTS, len(steps) // _FEWEST_STEPS)
    counts = range(2, most + 1) if wanted is None else [min(wanted, most)]
    cuts = min(
        (_cuts(steps, crossing, count) for count in counts), key=lambda c: _held(steps, crossing, c)
    )
    bounds = [0, *cuts, len(steps)]
    pieces = [range(a, b) for a, b in itertools.pairwise(bounds)]
    return [part for piece in pieces for part in _repeatable(steps, piece)]


def _crossing_bytes(steps: Sequence[Step], kept: Sequence[str]) -> list[int]:
    """Return for each place before a step the bytes that are made before and used after it."""
    last_use = {name: index for index, step in enumerate(steps) for name in step.inputs}
    last_use |= {name: len(steps) for name in kept}
    crossing = [0] * (len(steps) + 1)
    for made, step in enumerate(steps):
        for name in step.outputs:
            for place in range(made + 1, last_use.get(name, made) + 1):
                crossing[place] += step.output_bytes // len(step.outputs)
    return crossing


def _cuts(steps: Sequence[Step], crossing: Sequence[int], count: int) -> list[int]:
    """Return the places of `count` - 1 cuts, near equal parts of the bytes, where least cross."""
    done, before = 0, []
    for step in steps:
        before.append(done)
        done += step.output_bytes
    cuts: list[int] = []
    for number in range(1, count):
        target, reach = done * number / count, done / (2 * count)
        last = cuts[-1] if cuts else 0
        near = [i for i in range(last + 1, len(steps)) if abs(before[i] - target) <= reach]
        if near:
            cuts.append(min(near, key=lambda i: (crossing[i], abs(before[i] - target))))
    return cuts


def _held(steps: Sequence[Step], crossing: Sequence[int], cuts: Sequence[int]) -> int:
    """Return the most bytes at a time: what crossed so far, and a segment with its gradients."""
    most = kept = 0
    for start, stop in itertools.pairwise([0, *cuts, len(steps)]):
        kept += crossing[start]
        inside = sum(step.output_bytes for step in steps[start:stop])
        most = max(most, kept + _WITH_GRADIENTS * inside)
    return most


def _repeatable(steps: Sequence[Step], piece: range) -> list[range]:
    """Return the runs of repeatable steps in a piece, without those that are too short to help."""
    runs: list[range] = []
    start = piece.start
    for index in [*piece, piece.stop]:
        if index == piece.stop or not steps[index].repeatable:
            if index - start >= _FEWEST_STEPS:
                runs.append(range(start, index))
            start = index + 1
    return runs
