"""What a run goes on from: the baseline that the first run of its line began with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shrink.base.figures import FIGURES
from shrink.report.deltas import stage_delta


@dataclass(frozen=True)
class Chain:
    """The first baseline of a line of runs.

    Attributes:
        origin: its `run` and `stage`, and its figures in the groups of a report's stage.
        scores: one score per test example, by metric; empty where they are not known.
        same_examples: whether it was measured on the test examples of this run.
    """

    origin: Mapping[str, Any]
    scores: Mapping[str, Sequence[float]] = field(default_factory=dict)
    same_examples: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return what the report says of it, as plain data."""
        return {"origin": dict(self.origin), "same_examples": self.same_examples}

    def delta(
        self, stage: Mapping[str, Any], scores: Mapping[str, Sequence[float]]
    ) -> dict[str, Any]:
        """Return the differences of a complete stage to the origin, as `delta` has them.

        Metrics have an interval where both were measured on the same examples.
        """
        groups = ("metrics", *(figure.group for figure in FIGURES.values()))
        # No stage has this name: one that is called like the origin is still another.
        base: dict[str, Any] = {"name": None, **{group: self.origin.get(group) for group in groups}}
        return stage_delta(stage, base, scores, self.scores if self.same_examples else {})
