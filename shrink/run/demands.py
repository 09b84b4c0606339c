"""What the steps of a run ask of its examples, for the first worker to look at; light."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from shrink.recipe.plan import Step


def demands_of(steps: Iterable[Step]) -> list[dict[str, Any]]:
    """Return what each of these steps asks, plain data for `shrink.stages.demands`.

    Examples are opened in workers alone: the first one looks at what later steps need, which
    would else be refused after the training before them.
    """
    return [
        {
            "stage": step.name,
            "classes": step.config.needs_classes,
            "class_weights": step.training.class_weights if step.config.reads_training else None,
        }
        for step in steps
        if step.config is not None
    ]
