"""What stages took when they were computed, and what such stages would take in another run."""

from __future__ import annotations

from typing import Literal

from shrink.contract.record import record


@record
class StageTiming:
    """What one computed stage took, and what its work was.

    Attributes:
        kind: of the stage.
        variant: its method or scheme; empty where it has neither.
        work: multiplications of the stage, about: MACs of the recipe's model times examples;
            None where one of them is not known.
        weights_bytes: of the recipe's model as float32; None where it is not known.
        duration_s: seconds from the start of the worker to its end.
        start_s: of these, neither the stage itself nor its measuring: what no work changes.
        train_s: of these, the updates of its training; None where they are not known.
        host_peak_bytes: the most resident memory of the process; None where it was not read.
        macs: of the recipe's model.
        train, test: examples of these splits.
    """

    kind: str
    variant: str = ""
    work: float | None = None
    weights_bytes: int | None = None
    duration_s: float
    start_s: float = 0.0
    train_s: float | None = None
    host_peak_bytes: int | None = None
    macs: int | None = None
    train: int | None = None
    test: int | None = None


Basis = Literal["same_step", "scaled", "same_kind", "none"]
"""What an estimate rests on: the same step; others of its kind, scaled to this one's work; such
as they are, where the work is not known; or nothing."""


@record
class Estimate:
    """What a stage would take if it was computed now.

    Attributes:
        duration_s: seconds; None where nothing is known.
        low_s, high_s: between which it probably lies.
        host_peak_bytes: the most resident memory of its process; None likewise.
        basis: what it rests on.
        records: how many earlier stages that is.
        why: the same for people; the reason where there is no estimate.
    """

    duration_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    host_peak_bytes: int | None = None
    basis: Basis = "none"
    records: int = 0
    why: str


@record
class PreviewRow:
    """What a run would do with a stage.

    Attributes:
        name: of the stage.
        status: `cached`, `compute`, or in sweeps `shared`: computed by another run.
        why: it is computed.
        estimate: what computing it takes; of a cached stage, what it took.
    """

    name: str
    status: Literal["cached", "compute", "shared"]
    why: str
    estimate: Estimate
