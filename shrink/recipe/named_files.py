"""Files that a recipe names beside its models, as absolute paths."""

from __future__ import annotations

from pathlib import Path

from shrink.base.errors import DataError, ModelError, RecipeError
from shrink.data.config import AugmentConfig
from shrink.data.slice_config import SliceConfig
from shrink.data.token_config import TokensConfig
from shrink.model.reference import exists, expand_user
from shrink.recipe.load import LoadedRecipe


def data_path(loaded: LoadedRecipe) -> Path | None:
    """Return where the data of a recipe are; None where it names no path."""
    path = loaded.recipe.data.path
    if path is None:
        return None
    return (loaded.folder("data", "path") / expand_user(path)).resolve()


def slices(loaded: LoadedRecipe) -> tuple[SliceConfig, ...] | None:
    """Return the slicings of a recipe, the files of functions made absolute.

    Raises:
        RecipeError: there is no such file.
    """
    listed, folder = loaded.recipe.data.slices, loaded.folder("data", "slices")
    if listed is None:
        return None
    found = []
    for index, one in enumerate(listed):
        file = one.function_file(folder)
        if file is not None and not exists(file):
            raise RecipeError(
                f"no such Python file: {file}",
                position=loaded.position("data", "slices", index),
                hint="function: file.py:function, the file relative to the recipe",
            )
        found.append(one if file is None else one.at(file))
    return tuple(found)


def augment(loaded: LoadedRecipe) -> AugmentConfig | None:
    """Return the changes to training examples, the file of a function made absolute.

    Raises:
        RecipeError: there is no such file.
    """
    config = loaded.recipe.data.augment
    file = None if config is None else config.function_file(loaded.folder("data", "augment"))
    if config is None or file is None:
        return config
    if not exists(file):
        raise RecipeError(
            f"no such Python file: {file}",
            position=loaded.position("data", "augment", "function"),
            hint="function: file.py:function, the file relative to the recipe",
        )
    return config.at(str(file))


def tokens(loaded: LoadedRecipe) -> TokensConfig | None:
    """Return how a recipe makes ids of texts, the vocabulary's file made absolute.

    Raises:
        DataError: there is no such file.
    """
    config = loaded.recipe.data.tokens
    if config is None or config.vocabulary is None:
        return config
    file = loaded.folder("data", "tokens") / expand_user(config.vocabulary)
    if not file.is_file():
        raise DataError(
            "there is no such vocabulary",
            position=loaded.position("data", "tokens", "vocabulary"),
            hint="data.tokens.vocabulary names a text file, relative to the recipe; without it the "
            "vocabulary is learned from the training split",
        )
    return config.model_copy(update={"vocabulary": str(file.resolve())})


def depends(loaded: LoadedRecipe) -> tuple[str, ...]:
    """Return what `depends` of a recipe names, files and folders made absolute.

    Raises:
        RecipeError: there is no such file or folder.
    """
    folder, found = loaded.folder("depends"), []
    for index, name in enumerate(loaded.recipe.depends or ()):
        path = (folder / expand_user(name)).resolve()
        if not name.startswith("$") and not exists(path):
            raise RecipeError(
                f"no such file or folder: {path}",
                position=loaded.position("depends", index),
                hint="depends names files and folders relative to the recipe, and environment "
                "variables as $NAME",
            )
        found.append(name if name.startswith("$") else str(path))
    return tuple(found)


def custom_objects(loaded: LoadedRecipe) -> Path | None:
    """Return the Python file with a model's own layers, if a recipe names one.

    Raises:
        ModelError: there is no such file.
    """
    text = loaded.recipe.custom_objects
    if text is None:
        return None
    path = (loaded.folder("custom_objects") / expand_user(text)).resolve()
    if path.suffix != ".py" or not exists(path):
        raise ModelError(
            "custom_objects: no such Python file",
            subject=path,
            hint="name a .py file beside the recipe; a model's file.py:function needs none",
        )
    return path
