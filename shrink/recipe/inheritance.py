"""Keys that a recipe inherits from its model's record, and contradictions between the two."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from shrink.base.errors import DataError, ModelError, ReportWarning, listed
from shrink.base.fields import Config
from shrink.base.foreign import Json, JsonObject
from shrink.contract.details import Usage
from shrink.contract.usage import read_usage, stale_record, vocabulary_file
from shrink.data.config import (
    NO_DATA,
    AudioConfig,
    DataConfig,
    NormalizeConfig,
    SeriesConfig,
    TokensConfig,
    inherited_keys,
)
from shrink.model.reference import ModelReference
from shrink.recipe.load import LoadedRecipe

DIFFERS = "differs-from-record"
_MOST_NAMES = 10


@dataclass(frozen=True)
class Inherited:
    """A recipe with what its model's record says.

    Attributes:
        loaded: the recipe, filled in.
        usage: the record; None where there is none.
        keys: of the recipe that the record gave, such as `data.normalize`.
        warnings: what the recipe states otherwise.
        of: whose record it is, the recipe's model or a student.
    """

    loaded: LoadedRecipe
    usage: Usage | None = None
    keys: tuple[str, ...] = ()
    warnings: tuple[ReportWarning, ...] = ()
    of: str = "model"


def inherit(loaded: LoadedRecipe, reference: ModelReference) -> Inherited:
    """Return a recipe with the preprocessing, classes, vocabulary and decoding of its model.

    What the recipe states is kept; a warning tells where the record says something else.

    Raises:
        DataError: the recipe's classes cannot be those of the model's outputs.
    """
    usage = read_usage(reference.path) if reference.trained else None
    if usage is None and reference.trained:
        return Inherited(loaded, warnings=stale_record(reference.path))
    if usage is None or usage.data is None or loaded.recipe.data.source == NO_DATA:
        return Inherited(loaded, usage)
    recipe = loaded.recipe
    recorded = _recorded(usage, recipe.data, reference.path)
    _check_classes(recipe.data.classes, usage.labels, loaded)
    filled, given = _filled(recipe.data, recorded)
    warnings = _differences(recipe.data, recorded, usage)
    task, decode = recipe.task, usage.decode
    if task.decode is None and decode is not None and ".py:" not in str(decode.get("name")):
        task = type(task).model_validate({**task.model_dump(exclude_none=True), "decode": decode})
        given = (*given, "task.decode")
    recipe = recipe.model_copy(update={"data": filled, "task": task})
    return Inherited(replace(loaded, recipe=recipe), usage, given, warnings)


def check_named(
    loaded: LoadedRecipe, role: str, reference: ModelReference
) -> tuple[ReportWarning, ...]:
    """Compare a recipe's data with the record of a teacher or student that another run made.

    Classes and front ends that are found in the data are compared by the first worker
    (`shrink.stages.demands`). A teacher's inputs are normalized as in its own run.

    Args:
        loaded: the recipe, filled in.
        role: of the step's input; `model` is the student.
        reference: the artifact.

    Returns:
        A warning where a student was made with another normalization.

    Raises:
        DataError: the student tells other classes apart.
        ModelError: it was made with another vocabulary or front end than the recipe states.
    """
    usage, data = read_usage(reference.path), loaded.recipe.data
    if usage is None:
        return stale_record(reference.path)
    if usage.data is None or data.source == NO_DATA:
        return ()
    called = "student" if role == "model" else "teacher"
    recorded = _recorded(usage, data, reference.path)
    stated = data.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    for key in ("audio", "tokens"):
        own, value = stated.get(key), recorded.get(key)
        if isinstance(own, dict) and isinstance(value, dict):
            merged = _merged(value, own)
            if not _same(key, merged, value):
                raise ModelError(
                    f"data.{key} is {_shown(merged)}, and the {called} was made with "
                    f"{_shown(value)}",
                    subject=reference.path,
                    hint=f"leave data.{key} out, or name a {called} that was made with it",
                )
    if called == "teacher":
        return ()
    _check_classes(data.classes, usage.labels, loaded)
    own, made = stated.get("normalize"), recorded.get("normalize")
    return () if _same("normalize", own, made) else (_differs("normalize", own, made, called),)


def _recorded(usage: Usage, data: DataConfig, artifact: Path) -> JsonObject:
    """Return the keys of `data` that the record gives for a source."""
    recorded: JsonObject = inherited_keys(usage.data or {}, data.source)
    if usage.labels and recorded.get("target") != "input":
        recorded["classes"] = list(usage.labels)
    if usage.vocabulary and data.source == "text":
        tokens = recorded.get("tokens")
        own = tokens if isinstance(tokens, dict) else {}
        file = str(vocabulary_file(artifact, usage))
        recorded["tokens"] = {**own, "vocabulary": file}
    return recorded


def _filled(data: DataConfig, recorded: Mapping[str, Json]) -> tuple[DataConfig, tuple[str, ...]]:
    """Return a `data` section with the recorded keys that it does not state, and their names."""
    stated = data.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    merged, given = dict(stated), list[str]()
    for key, value in recorded.items():
        own = stated.get(key)
        if own is None:
            merged[key] = value
            if value != DataConfig.model_fields[key].default:
                given.append(f"data.{key}")
        elif isinstance(own, dict) and isinstance(value, dict):
            merged[key] = _merged(value, own)
            given += [f"data.{key}.{name}" for name in merged[key] if name not in own]
    return DataConfig.model_validate(merged), tuple(given)


_SECTIONS: Mapping[str, type[Config]] = {
    "normalize": NormalizeConfig,
    "audio": AudioConfig,
    "tokens": TokensConfig,
    "series": SeriesConfig,
}
"""Keys of `data` that are sections, where leaving one out means its defaults."""
_NO_OTHER_USE = ("source", "classes", "validation_split", "test_split")
"""Keys that may differ: another division is no other use of the model."""


def _differences(
    data: DataConfig, recorded: Mapping[str, Json], usage: Usage
) -> tuple[ReportWarning, ...]:
    """Return a warning for each stated key that says otherwise than the record.

    A key that the record lacks counts where its default is known and the source is the record's.
    """
    stated = data.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    same_source = (usage.data or {}).get("source") == data.source
    known = {*recorded, "normalize", *(_SECTIONS if same_source else ())} - {*_NO_OTHER_USE}
    warnings = []
    for key in (key for key in stated if key in known):
        own, value = stated[key], recorded.get(key)
        if isinstance(own, dict) and isinstance(value, dict):
            own = _merged(value, own)
        # Only source audio has a front end where the section is left out.
        none = key == "audio" and value is None and data.source == "python"
        if none or not _same(key, own, value):
            warnings.append(_differs(key, own, value))
    return tuple(warnings)


def _merged(recorded: Mapping[str, Json], stated: Mapping[str, Json]) -> JsonObject:
    """Return the settings of a section: those that are stated, else those of the record.

    Settings by which a vocabulary is learned do not count where the model has one already.
    """
    own = {key: value for key, value in stated.items() if key not in ("size", "min_count")}
    return {**recorded, **(own if "vocabulary" in recorded else stated)}


def _same(key: str, stated: Json, recorded: Json) -> bool:
    """Whether two values mean the same: two files may hold the same vocabulary."""
    section = _SECTIONS.get(key)
    if section is None:
        return stated == recorded
    plain = [section.model_validate(one or {}).model_dump() for one in (stated, recorded)]
    files = [one.pop("vocabulary", None) for one in plain]
    with contextlib.suppress(OSError):
        content = [None if file is None else Path(file).read_bytes() for file in files]
        return plain[0] == plain[1] and content[0] == content[1]
    return False


def _differs(key: str, stated: Json, recorded: Json, made: str = "model") -> ReportWarning:
    own = "left out" if stated is None else _shown(stated)
    how = f"without data.{key}" if recorded is None else f"with {_shown(recorded)}"
    return ReportWarning(
        DIFFERS,
        f"data.{key} is {own}, but the {made} was made {how}",
        f"use the settings of the {made}, or make sure that it is trained again on these inputs"
        if made == "student"
        else f"leave data.{key} out to use the model as it was made",
    )


def _shown(value: Json) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {item}" for key, item in value.items()) + "}"
    return str(value)


def _check_classes(
    stated: tuple[str, ...] | None, labels: tuple[str, ...] | None, loaded: LoadedRecipe
) -> None:
    """Raise `DataError` where classes are another number, or the same names in another order."""
    if not stated or not labels or stated == labels:
        return
    if len(stated) == len(labels) and set(stated) != set(labels):
        return  # other names for the same outputs
    raise DataError(
        f"data.classes is {listed(stated, _MOST_NAMES)}, but the outputs of the model are "
        f"{listed(labels, _MOST_NAMES)}",
        position=loaded.position("data", "classes"),
        hint="leave data.classes out: the model's record names its classes",
    )
