"""What a recipe of a detector cannot have: refused before anything is computed."""

from __future__ import annotations

from collections.abc import Iterable

from shrink.base.errors import RecipeError
from shrink.recipe.load import LoadedRecipe
from shrink.stages.base import StageConfig
from shrink.stages.distill.config import DistillConfig

_LOSSES = ("auto", "output_mse")


def check_detector(stages: Iterable[StageConfig], loaded: LoadedRecipe) -> None:
    """Raise `RecipeError` where a recipe with `task.decode` distils as if outputs were classes.

    Args:
        stages: the configuration of every stage, in the recipe's order.
        loaded: the recipe's file, for the place of what is wrong.
    """
    if loaded.recipe.task.decode is None:
        return
    for index, stage in enumerate(stages):
        if not isinstance(stage, DistillConfig):
            continue
        wrong = {
            "loss": None if stage.loss in _LOSSES else f"loss {stage.loss} is for classes",
            "cache_dtype": "cache_dtype topk is for one class among several"
            if stage.cache_dtype == "topk"
            else None,
            "output_weights": "output_weights is of losses by output, and auto has one of all"
            if stage.output_weights and stage.loss == "auto"
            else None,
        }
        for key, why in wrong.items():
            if why is not None:
                raise RecipeError(
                    f"a detector is distilled otherwise: {why}",
                    position=loaded.position("stages", index, stage.kind, key),
                    hint=f"leave out distill.{key}; distill.loss is auto or output_mse",
                )
