"""Files that a recipe names beside its models, as absolute paths."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from shrink.base.errors import DataError, ModelError, RecipeError
from shrink.base.foreign import JsonObject
from shrink.model.reference import exists, expand_user
from shrink.recipe.load import LoadedRecipe, Path_


def located(loaded: LoadedRecipe) -> LoadedRecipe:
    """Return a recipe whose data, vocabulary and Python files have absolute paths.

    Raises:
        RecipeError, DataError, ModelError: a file is not there.
    """
    recipe, data = loaded.recipe, loaded.recipe.data
    found: JsonObject = {}
    if data.path is not None:
        found["path"] = str((loaded.folder("data", "path") / expand_user(data.path)).resolve())
    if data.slices is not None:
        found["slices"] = tuple(
            one
            if (file := one.function_file(loaded.folder("data", "slices"))) is None
            else one.at(_python_file(loaded, file, ("data", "slices", index)))
            for index, one in enumerate(data.slices)
        )
    if data.augment is not None:
        file = data.augment.function_file(loaded.folder("data", "augment"))
        if file is not None:
            place = ("data", "augment", "function")
            found["augment"] = data.augment.at(str(_python_file(loaded, file, place)))
    if data.tokens is not None and data.tokens.vocabulary is not None:
        file = (loaded.folder("data", "tokens") / expand_user(data.tokens.vocabulary)).resolve()
        if not file.is_file():
            raise DataError(
                "there is no such vocabulary",
                position=loaded.position("data", "tokens", "vocabulary"),
                hint="data.tokens.vocabulary names a text file, relative to the recipe; without "
                "it the vocabulary is learned from the training split",
            )
        found["tokens"] = data.tokens.model_copy(update={"vocabulary": str(file)})
    own: JsonObject = {"data": data.model_copy(update=found)}
    if recipe.depends is not None:
        own["depends"] = tuple(_depended(loaded, n, one) for n, one in enumerate(recipe.depends))
    if recipe.custom_objects is not None:
        path = (loaded.folder("custom_objects") / expand_user(recipe.custom_objects)).resolve()
        if path.suffix != ".py" or not exists(path):
            raise ModelError(
                "custom_objects: no such Python file",
                subject=path,
                hint="name a .py file beside the recipe; a model's file.py:function needs none",
            )
        own["custom_objects"] = str(path)
    return replace(loaded, recipe=recipe.model_copy(update=own))


def _python_file(loaded: LoadedRecipe, file: Path, place: Path_) -> Path:
    if not exists(file):
        raise RecipeError(
            f"no such Python file: {file}",
            position=loaded.position(*place),
            hint="function: file.py:function, the file relative to the recipe",
        )
    return file


def _depended(loaded: LoadedRecipe, index: int, name: str) -> str:
    path = (loaded.folder("depends") / expand_user(name)).resolve()
    if name.startswith("$"):
        return name
    if not exists(path):
        raise RecipeError(
            f"no such file or folder: {path}",
            position=loaded.position("depends", index),
            hint="depends names files and folders relative to the recipe, and environment "
            "variables as $NAME",
        )
    return str(path)
