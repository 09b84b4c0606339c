"""Conversion of Python arguments (models, data, keys, paths) to what the command line takes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from shrink.api.results import Run, RunStage
from shrink.base.errors import DataError, ModelError, Position, RecipeError, hint_for
from shrink.base.foreign import Json, JsonObject
from shrink.base.removal import replacement
from shrink.data.config import DataConfig
from shrink.engine.config import TrainingConfig
from shrink.model.reference import expand_user
from shrink.recipe.data_reference import NamedData, located_section
from shrink.recipe.load import RawRecipe
from shrink.recipe.single import Sections
from shrink.stages import STAGES
from shrink.task.config import TaskConfig

if TYPE_CHECKING:
    from shrink.api.kinds import DataGiven, ModelGiven

RUNNING = ("output", "force", "no_cache", "trust_model", "quiet", "verbose")
"""Keys that say how to run, not what; those of the command line's flags."""
COMMON = (*RUNNING, "custom_objects")
TOOL = ("memory_limit", "trace", "trust_model", "custom_objects", "quiet")
"""Keys of `profile`."""
_NOT_KEYS = ("name", "from_", "training")
Keys: TypeAlias = Mapping[str, object]


def model_text(model: ModelGiven | object) -> str:
    """Return what the command line would call a model; one in memory is saved in the cache.

    Raises:
        ModelError: no model, or one that Keras cannot save.
    """
    if isinstance(model, str | os.PathLike):
        return os.fspath(model)
    if isinstance(model, RunStage):
        if model.artifact is None:
            raise ModelError("this stage has no artifact", subject=model.name)
        return str(model.artifact)
    if isinstance(model, Run):
        return str(model.folder if model.folder.is_dir() else model.artifact)
    from shrink.api.keras_models import is_keras_model, saved_model

    if is_keras_model(model):
        return str(saved_model(model))
    if callable(model) and hasattr(model, "__name__"):
        raise ModelError(
            "a function cannot be sent to a worker",
            subject=model.__name__,
            hint="call it, or name it as text: 'file.py:function'",
        )
    raise ModelError(
        f"a {type(model).__name__} is not a model",
        hint="give a Keras model, a path, 'file.py:function' or a Run",
    )


def data_named(data: DataGiven) -> str | NamedData | None:
    """Return what the command line would call data; arrays are written into the cache.

    Raises:
        DataError: it is none that can be used.
    """
    if data is None:
        return None
    if isinstance(data, str | os.PathLike):
        return os.fspath(data)
    if isinstance(data, Mapping) and "source" in data:
        raw = RawRecipe({"data": plain(data)}, {(): Position("data", 0, 0)})
        return NamedData(located_section(raw, Path("data")), {})
    from shrink.api.arrays import written

    path, keys = written(data)
    return NamedData({"source": "npz", "path": str(path), **keys}, {})


def path_of(path: object, key: str = "output") -> Path | None:
    """Return a path, `~` expanded; None for None.

    Raises:
        RecipeError: it is no path.
    """
    if path is None:
        return None
    if not isinstance(path, str | os.PathLike):
        raise RecipeError(f"a {type(path).__name__} is not a path", subject=key)
    return Path(expand_user(os.fspath(path)))


def given_settings(keys: Keys) -> Mapping[str, object]:
    """Return the keys of the recipe that `set` changes."""
    given = keys.get("set") or {}
    if not isinstance(given, Mapping):
        raise RecipeError(
            "expected a mapping of keys", subject="set", hint='for example {"train.epochs": 5}'
        )
    return given


def count_of(jobs: object) -> int:
    """Return how many runs go at a time."""
    if jobs is None:
        return 1
    if not isinstance(jobs, int) or jobs < 1:
        raise RecipeError(f"must be a whole number from 1, not {jobs!r}", subject="jobs")
    return jobs


def check_keywords(function: str, keys: Keys, known: Iterable[str]) -> None:
    """Raise `RecipeError` for a keyword that a function does not have."""
    for key in {*keys} - {*known}:
        instead = replacement(f"{function}.{key}")
        raise RecipeError(
            f"the key {key!r} was removed" if instead else f"unknown key {key!r}",
            subject=f"shrink.{function}",
            hint=instead or hint_for(key, [*known]),
        )


def verb_sections(kind: str, keys: Keys, *, skip: tuple[str, ...] = ()) -> Sections:
    """Return the keys of a verb by section: of the stage, of `training`, `data_...`, `task_...`.

    Args:
        kind: of the stage; `evaluate` has none.
        keys: as they were given, those of `COMMON` left out.
        skip: keys of the stage that are parameters.

    Raises:
        RecipeError: a key that there is not.
    """
    fields = STAGES[kind].model_fields if kind in STAGES else {}
    own = [key for key in fields if key not in (*_NOT_KEYS, *skip)]
    training = TrainingConfig.model_fields if "epochs" in own else ("seed",)
    paths: dict[str, tuple[str, ...]] = {key: (key,) for key in (*training, *own)}
    for section, config in (("data", DataConfig), ("task", TaskConfig)):
        paths |= {f"{section}_{key}": (section, key) for key in config.model_fields}
    whole = ("task",) if kind in STAGES else ("task", "gates")
    check_keywords(kind, keys, [*paths, *whole, *COMMON])
    found = Sections.of(kind, {paths[key]: plain(keys[key]) for key in keys if key in paths})
    for key in (key for key in whole if key in keys):
        value = plain(keys[key])
        if not isinstance(value, dict):
            raise RecipeError(f"expected a mapping, not a {type(value).__name__}", subject=key)
        (found.gates if key == "gates" else found.task).update(value)
    return found


def plain(value: object) -> Json:
    """Return a value as a recipe would have it: no paths, no numbers of NumPy, lists for tuples."""
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    scalar = getattr(value, "item", None)
    return scalar() if callable(scalar) and getattr(value, "shape", None) == () else value


def recipe_with_files(recipe: Mapping[str, object]) -> JsonObject:
    """Return a recipe whose models and arrays are files, as one that a file holds.

    Raises:
        ModelError, DataError: a model or data that cannot be used.
    """
    value: JsonObject = {**recipe}
    if "model" in value:
        value["model"] = model_text(value["model"])
    if "data" in value:
        named = data_named(value["data"])
        if not isinstance(named, NamedData):
            raise DataError(
                "data of a recipe is a section or arrays", hint="for example {'source': 'digits'}"
            )
        value["data"] = named.data
    if isinstance(value.get("stages"), list | tuple):
        value["stages"] = [_stage_with_files(stage) for stage in value["stages"]]
    return {key: plain(one) for key, one in value.items()}


def _stage_with_files(stage: Json) -> Json:
    """Return a stage whose teacher and student, where they are models in memory, are files."""
    if not isinstance(stage, Mapping):
        return stage
    return {
        kind: {key: _model_in(key, one) for key, one in settings.items()}
        if isinstance(settings, Mapping)
        else settings
        for kind, settings in stage.items()
    }


def _model_in(key: str, value: Json) -> Json:
    is_model = key in ("teacher", "student") and not isinstance(value, str | Mapping)
    return model_text(value) if is_model else value
