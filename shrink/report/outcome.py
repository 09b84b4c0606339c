"""What the runner knows about one stage when the report is built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["done", "cached", "failed", "skipped"]


@dataclass(frozen=True)
class StageOutcome:
    """How one stage ended, and what its worker measured.

    Args:
        name: the stage's name in the run.
        kind: baseline, train, distill, prune, ...
        status: cached figures were measured by an earlier run; skipped stages never started.
        duration_s: seconds that the stage took when it was computed.
        measured: `at` and `machine` of the measurement.
        artifact: path relative to the run folder.
        sha256: hash of the artifact.
        previous: the stage whose artifact this one started from.
        result: the worker's result; any of the keys size, memory, metrics, examples, guess,
            training, latency, skipped, notes and warnings may be missing or None.
        scores: one score per test example, by metric, for intervals.
        error: `ShrinkError.to_dict()` of a failed stage.
    """

    name: str
    kind: str
    status: Status
    duration_s: float | None = None
    measured: Mapping[str, str] | None = None
    artifact: str | None = None
    sha256: str | None = None
    previous: str | None = None
    result: Mapping[str, Any] = field(default_factory=dict)
    scores: Mapping[str, Sequence[float]] = field(default_factory=dict)
    error: Mapping[str, Any] | None = None

    @property
    def complete(self) -> bool:
        """Whether there are figures, new or cached."""
        return self.status in ("done", "cached")
