"""What a recipe's training leaves to be learnt again, by its keys, before anything is trained.

A model that is cut forgets, the more the smaller it becomes, and its updates teach it again: what
is left falls by the same part with each update, as learning curves do at their beginning. It says
which points are hopeless with so few updates, until trained ones say it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from shrink.base.foreign import JsonObject
from shrink.base.metrics import metric_of
from shrink.contract.report import DataSet
from shrink.recipe.plan import Plan
from shrink.search.expected_size import share_of_pruned, share_of_student

_UPDATES = 200.0
"""After so many, a share 1/e is left of what was to be learnt."""
_GUESSED = {"roc_auc": 0.5}
"""Of metrics whose least value is not that of guessing."""
_SHARED = ("accuracy", "balanced_accuracy")
"""Metrics that guessing gives one part of, of as many as there are classes."""


@dataclass(frozen=True)
class Taught:
    """What training on a search's data can do.

    Attributes:
        examples: of the training split; 0 where they are not known, and nothing is expected.
        guess: the metric of a guess; None where it is not known, likewise.
    """

    examples: int = 0
    guess: float | None = None

    def unlearnt(self, plan: Plan) -> float:
        """Return about which part of the way to guessing a plan's model stays behind, 0 to 1."""
        if not self.examples or self.guess is None:
            return 0.0
        behind = 0.0
        for step in plan.steps:
            if step.config is None or step.name == plan.baseline.name:
                continue
            forgotten = _forgotten(step.kind, step.config.model_dump(mode="json"))
            batches = math.ceil(self.examples / step.training.global_batch_size)
            behind = 1 - (1 - behind) * (1 - forgotten)
            behind *= math.exp(-step.epochs * batches / _UPDATES)
        return behind


NOTHING_KNOWN = Taught()


def taught_by(data: DataSet | None, metric: str) -> Taught:
    """Return what training can do.

    Args:
        data: of the baseline's report.
        metric: the main one.
    """
    examples = None if data is None else (data.examples or {}).get("train")
    if data is None or not examples:
        return NOTHING_KNOWN
    return Taught(examples, guess_of(metric, data.classes or ()))


def guess_of(metric: str, classes: Sequence[str]) -> float | None:
    """Return about what a guess has of a metric; None where nothing is known of it."""
    known = metric_of(metric)
    if known is None or not known.info.higher_is_better or known.info.range is None:
        return None
    if known.name in _SHARED:
        return 1 / len(classes) if classes else None
    least = _GUESSED.get(known.name, known.info.range[0])
    return least if math.isfinite(least) else None


def _forgotten(kind: str, config: JsonObject) -> float:
    """Return which part of what a model knows a stage takes, before it trains."""
    if kind == "distill":
        student = config.get("student")
        if not isinstance(student, dict):
            return 0.0
        # Cut without solving for the kernels that read what is left, little is kept.
        return 1 - share_of_student(student) ** 2 if student.get("inherit") else 1.0
    if kind == "prune":
        return (1 - share_of_pruned(config, leaves_out=True)) ** 2
    return 0.0
