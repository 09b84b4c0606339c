"""Progress that a worker reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Phase:
    """A part of the work begins, of which no share is known."""

    name: str


@dataclass(frozen=True)
class Share:
    """So much of something counted is done."""

    name: str
    done: int
    total: int


@dataclass(frozen=True)
class Progress:
    """How far a training is; epochs and steps count from 1.

    Attributes:
        epoch: that is under way, or at its end.
        epochs: of the run.
        step: that was made last.
        steps: of an epoch.
        examples_per_s: in this epoch so far; None before the second step.
        metrics: of the epoch so far, with the loss.
        epoch_end: whether the epoch is complete; metrics of the validation split are there then.
        continued: whether nothing was trained yet, and the step is a checkpoint's.
    """

    epoch: int
    epochs: int
    step: int
    steps: int
    examples_per_s: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    epoch_end: bool = False
    continued: bool = False


@dataclass(frozen=True)
class Printed:
    """Lines that the worker and its libraries printed, into its log."""

    lines: tuple[str, ...]


Activity = Phase | Share | Progress | Printed
