"""What a recipe of a detector cannot have: refused before anything is computed."""

from __future__ import annotations

from collections.abc import Iterable

from shrink.base.errors import RecipeError
from shrink.recipe.load import LoadedRecipe
from shrink.stages.base import StageConfig
from shrink.stages.distill.config import DistillConfig
from shrink.stages.prune.config import PruneConfig


def check_detector(stages: Iterable[StageConfig], loaded: LoadedRecipe) -> None:
    """Raise `RecipeError` where a recipe with `task.decode` asks for a teacher.

    Args:
        stages: the configuration of every stage, in the recipe's order.
        loaded: the recipe's file, for the place of what is wrong.
    """
    recipe = loaded.recipe
    if recipe.task.decode is None:
        return
    for index, stage in enumerate(stages):
        if isinstance(stage, DistillConfig):
            raise RecipeError(
                "a detector cannot be distilled",
                position=loaded.position("stages", index, stage.kind),
                hint="train the smaller detector on the boxes",
            )
        if isinstance(stage, PruneConfig) and stage.teacher is not None:
            raise RecipeError(
                "a detector cannot be fine-tuned with a teacher",
                position=loaded.position("stages", index, stage.kind, "teacher"),
                hint="leave out prune.teacher",
            )
