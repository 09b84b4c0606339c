"""What the steps of a run ask of its examples, for the first worker to look at; light."""

from __future__ import annotations

from collections.abc import Iterable

from shrink.contract.job import Demand
from shrink.recipe.plan import Step


def demands_of(steps: Iterable[Step]) -> tuple[Demand, ...]:
    """Return what each of these steps asks.

    Examples are opened in workers alone: the first one looks at what later steps need, which
    would else be refused after the training before them.
    """
    return tuple(
        Demand(
            step.name,
            step.config.needs_classes,
            step.training.class_weights if step.config.reads_training else None,
        )
        for step in steps
        if step.config is not None
    )
