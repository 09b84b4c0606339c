"""Checks of distillation settings against data and task, before anything is computed."""

from __future__ import annotations

from collections.abc import Iterable

from shrink.base.errors import RecipeError
from shrink.recipe.load import LoadedRecipe
from shrink.stages.base import StageConfig
from shrink.stages.distill.config import DistillConfig

_LOSSES = ("auto", "output_mse")


def check_distillation(stages: Iterable[StageConfig], loaded: LoadedRecipe) -> None:
    """Raise `RecipeError` where a detector is distilled as if its outputs were classes.

    Or where the teacher's outputs for augmented examples, which differ in every epoch, are cached.

    Args:
        stages: the configuration of every stage, in the recipe's order.
        loaded: the recipe's file, for the place of what is wrong.
    """
    for index, stage in enumerate(stages):
        if not isinstance(stage, DistillConfig):
            continue
        if stage.teacher_cache == "on" and loaded.recipe.data.augment is not None:
            raise RecipeError(
                "teacher_cache is on, and data.augment changes the examples in every epoch",
                position=loaded.position("stages", index, stage.kind, "teacher_cache"),
                hint="set distill.teacher_cache to auto, or leave out data.augment",
            )
        if loaded.recipe.task.decode is None:
            continue
        wrong = {
            "loss": None if stage.loss in _LOSSES else f"loss {stage.loss} is for classes",
        }
        for key, why in wrong.items():
            if why is not None:
                raise RecipeError(
                    f"a detector is distilled otherwise: {why}",
                    position=loaded.position("stages", index, stage.kind, key),
                    hint=f"leave out distill.{key}; distill.loss is auto or output_mse",
                )
