"""Metrics of an artifact on some examples."""

from __future__ import annotations

from dataclasses import dataclass, field

from shrink.base.bootstrap import Resampled
from shrink.base.errors import DataError
from shrink.base.types import Array
from shrink.contract.details import Confusion
from shrink.contract.result import Evidence
from shrink.task.slices import Sliced


@dataclass(frozen=True)
class Evaluation:
    """Metrics of an artifact on the test split.

    Attributes:
        metrics: each metric over the elements that count, None where it is not defined on these;
            `loss` is the task's loss.
        scores: of metrics that are means each example's part, in the split's order, float64 (n,):
            see `shrink.base.scores.output.pool`.
        examples: number of examples.
        resampled: what intervals of the other metrics are computed from.
        undefined: by metric, why it is None.
        sliced: what slices score, where they were asked for.
        confusion: of each output of classes.
        by_output: of several outputs, each metric of each that it is averaged over, by its place.
        ties: elements for which several classes have the highest output, and all that accuracy
            counts.
    """

    metrics: dict[str, float | None]
    scores: dict[str, Array]
    examples: int
    resampled: dict[str, Resampled] = field(default_factory=dict)
    undefined: dict[str, str] = field(default_factory=dict)
    sliced: Sliced = field(default_factory=Sliced)
    confusion: tuple[Confusion, ...] = ()
    by_output: dict[int, dict[str, float | None]] = field(default_factory=dict)
    ties: tuple[int, int] = (0, 0)

    @property
    def evidence(self) -> dict[str, Evidence]:
        """What the intervals of every metric are computed from."""
        means = {name: values.tolist() for name, values in self.scores.items()}
        return {**means, **self.resampled, **self.sliced.evidence}

    def defined(self, name: str) -> float:
        """Return a metric that something is chosen by.

        Raises:
            DataError: it is not defined on these examples.
        """
        value = self.metrics[name]
        if value is None:
            raise DataError(
                f"{name} is not defined on these examples: {self.undefined.get(name)}",
                subject="task.metrics",
                hint="add examples of every class, or choose by another metric: task.monitor",
            )
        return value
