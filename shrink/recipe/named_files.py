"""Files that a recipe names beside its models, as absolute paths."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from shrink.base.errors import DataError, ModelError, RecipeError, ShrinkError
from shrink.base.foreign import JsonObject
from shrink.data.config import AugmentConfig, DataConfig
from shrink.data.slice_config import SliceConfig
from shrink.model.reference import exists, expand_user
from shrink.recipe.load import LoadedRecipe, RawRecipe

WithFunction = TypeVar("WithFunction", SliceConfig, AugmentConfig)


def located(loaded: LoadedRecipe) -> LoadedRecipe:
    """Return a recipe whose data, vocabulary and Python files have absolute paths.

    Raises:
        RecipeError, DataError, ModelError: a file is not there.
    """
    recipe = loaded.recipe
    own: JsonObject = {"data": located_data(recipe.data, loaded)}
    own["depends"] = recipe.depends and tuple(
        name if name.startswith("$") else str(_place(loaded, name, "depends", index))
        for index, name in enumerate(recipe.depends)
    )
    if recipe.custom_objects is not None:
        file = _place(loaded, recipe.custom_objects, "custom_objects", error=ModelError)
        own["custom_objects"] = str(file)
    return replace(loaded, recipe=recipe.model_copy(update=own))


def located_data(data: DataConfig, recipe: LoadedRecipe | RawRecipe) -> DataConfig:
    """Return the `data` section of a recipe with absolute paths.

    Raises:
        RecipeError, DataError: a file is not there.
    """

    def with_function(one: WithFunction, *keys: str | int) -> WithFunction:
        if one.function is None:
            return one
        file, _, name = one.function.rpartition(":")
        return one.model_copy(update={"function": f"{_place(recipe, file, *keys)}:{name}"})

    found: JsonObject = {}
    if data.path is not None:  # whether it is there, the source itself says
        found["path"] = str((recipe.folder("data", "path") / expand_user(data.path)).resolve())
    if data.slices is not None:
        pairs = enumerate(data.slices)
        found["slices"] = tuple(with_function(one, "data", "slices", n) for n, one in pairs)
    if data.augment is not None:
        found["augment"] = with_function(data.augment, "data", "augment", "function")
    if data.tokens is not None and data.tokens.vocabulary is not None:
        file = _place(
            recipe, data.tokens.vocabulary, "data", "tokens", "vocabulary", error=DataError
        )
        found["tokens"] = data.tokens.model_copy(update={"vocabulary": str(file)})
    return data.model_copy(update=found)


def _place(
    recipe: LoadedRecipe | RawRecipe,
    name: str,
    *keys: str | int,
    error: type[ShrinkError] = RecipeError,
) -> Path:
    path = (recipe.folder(*keys) / expand_user(name)).resolve()
    if not exists(path):
        raise error(
            f"no such file or folder: {path}",
            position=recipe.position(*keys),
            hint=f"relative paths start from {recipe.folder(*keys)}",
        )
    return path
