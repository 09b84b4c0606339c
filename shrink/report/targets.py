"""What a gate may look at, by name; without the classes of a recipe, which only runs need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from shrink.base.figures import FIGURES, Figure, metric_figure, metric_names

DURATION = "duration_s"
Kind = Literal["figure", "drop", "rise", "duration"]


@dataclass(frozen=True)
class Target:
    """What a gate's name means.

    Args:
        kind: a figure itself, a metric's drop or rise against the baseline, or the run's duration.
        figure: the figure that is looked at.
    """

    kind: Kind
    figure: Figure

    @property
    def is_minimum(self) -> bool:
        """Whether the limit is the least that is allowed."""
        return self.kind == "figure" and self.figure.larger_is_better


def _targets() -> dict[str, Target]:
    targets = {name: Target("figure", figure) for name, figure in FIGURES.items()}
    metrics = [metric_figure(name) for name in metric_names()]
    targets.update({metric.name: Target("figure", metric) for metric in metrics})
    for metric in metrics:
        kind: Kind = "drop" if metric.larger_is_better else "rise"
        targets[f"{metric.name}_{kind}"] = Target(kind, metric)
    targets[DURATION] = Target("duration", Figure(DURATION, "latency", "s"))
    return targets


TARGETS: dict[str, Target] = _targets()
"""Every legal name of a gate."""
