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
from shrink.recipe.plan import Plan, Step
from shrink.search.expected_size import share_of_pruned, share_of_student

_UPDATES = 200.0
"""After so many, a share 1/e is left of what was to be learnt."""
_SHARED = ("accuracy", "balanced_accuracy")
"""Metrics that guessing gives one part of, of as many as there are classes."""
_GUESSED = {"roc_auc": 0.5, "map": 0.0}


@dataclass(frozen=True)
class Relearning:
    """What training on a search's data brings back.

    Attributes:
        examples: of the training split; 0 where they are not known, and nothing is expected.
        guess: the metric of a guess; None where it is not known, likewise.
    """

    examples: int = 0
    guess: float | None = None

    def behind(self, plan: Plan) -> float:
        """Return about which part of the way to guessing a plan's last model stays, 0 to 1."""
        if not self.examples or self.guess is None:
            return 0.0
        found: dict[str, float] = {}
        for step in plan.steps:
            source = step.inputs["model"].step
            lost = 0.0 if source is None else found.get(source, 0.0)
            if step.name != plan.baseline.name:
                batches = math.ceil(self.examples / step.training.global_batch_size)
                lost = 1 - (1 - lost) * (1 - _forgotten(step))
                lost *= math.exp(-step.epochs * batches / _UPDATES)
            found[step.name] = lost
        return found[plan.finals[-1]]


NOTHING_KNOWN = Relearning()


def relearning_on(data: DataSet | None, metric: str) -> Relearning:
    """Return what training brings back.

    Args:
        data: of the baseline's report.
        metric: the main one.
    """
    examples = None if data is None else (data.examples or {}).get("train")
    if data is None or not examples:
        return NOTHING_KNOWN
    return Relearning(examples, guess_of(metric, data.classes or ()))


def guess_of(metric: str, classes: Sequence[str]) -> float | None:
    """Return about what a guess has of a metric; None where nothing is known of it."""
    known = metric_of(metric)
    if known is None:
        return None
    if known.name in _SHARED:
        return 1 / len(classes) if classes else None
    return _GUESSED.get(known.name)


def _forgotten(step: Step) -> float:
    """Return which part of what a model knows a stage takes, before it trains."""
    config: JsonObject = {} if step.config is None else step.config.model_dump(mode="json")
    if step.kind == "distill":
        student, reference = config.get("student"), step.inputs["model"].reference
        if isinstance(student, dict) and student.get("inherit"):
            # Cut without solving for the kernels that read what is left, little is kept.
            return 1 - share_of_student(student) ** 2
        is_built = reference is not None and reference.function is not None
        return 1.0 if isinstance(student, dict) or is_built else 0.0
    if step.kind == "prune":
        return (1 - share_of_pruned(config, leaves_out=True)) ** 2
    return 0.0
