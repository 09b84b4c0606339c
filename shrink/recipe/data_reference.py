"""Data references of the command line (or none), and what is possible without data."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from shrink.base.errors import DataError, RecipeError, did_you_mean, hint_for, near_file, together
from shrink.base.figures import target_of
from shrink.base.foreign import Json, JsonObject
from shrink.base.packages import extension_names
from shrink.base.removal import replacement
from shrink.data.config import (
    NO_DATA,
    SOURCES,
    WHY_NO_METRICS,
    WHY_NO_TARGETS,
    DataConfig,
    source_of,
)
from shrink.data.early import array_names
from shrink.data.folders import CLIPS, IMAGES, TEXTS
from shrink.data.pairs import holds_masks
from shrink.data.shards import is_prepared, is_record_name
from shrink.data.table import lists_images
from shrink.model.reference import exists, expand_user, windows_hint
from shrink.recipe.load import LoadedRecipe, RawRecipe, read_raw, recipe_errors
from shrink.recipe.named_files import located_data
from shrink.stages import STAGES
from shrink.stages.base import StageConfig
from shrink.stages.compact.config import CompactConfig
from shrink.stages.quantize.config import SCHEME_TRAITS, QuantizeConfig
from shrink.task.config import TaskConfig

NAME_DATA = "add --data with a source (such as digits), a path or a YAML file"
"""What to do where no data is named, and examples are needed."""
NO_EXAMPLES_LEFT = (
    "test_split: 1 leaves the stages no examples; it is for recipes that only evaluate"
)


def check_examples(
    data: DataConfig,
    stages: Mapping[str, StageConfig],
    gates: Collection[str],
    loaded: LoadedRecipe,
) -> None:
    """Raise `RecipeError` where a recipe without data or targets does what needs them.

    Args:
        data: the section of the recipe.
        stages: the configuration of every stage, by name.
        gates: names of the gates.
        loaded: the recipe's file, for the place of what is wrong.
    """
    if data.test_split == 1 and not only_measures([{one.kind: {}} for one in stages.values()]):
        raise RecipeError(
            NO_EXAMPLES_LEFT,
            position=loaded.position("data", "test_split"),
            hint="lower it, or evaluate alone: stages: []",
        )
    if data.source == NO_DATA:
        lacking, lacks, key = WHY_NO_METRICS, "examples", "source"
    elif data.target == "none":
        lacking, lacks, key = WHY_NO_TARGETS, "targets", "target"
    else:
        return
    where = loaded.position("data", key)
    if not stages and not gates:
        raise RecipeError(f"nothing to evaluate on: {lacking}", position=where, hint=_remedy(key))
    for name, config in stages.items():
        why = config.needs_examples if key == "source" else config.needs_targets
        if why is not None:
            message = f"{lacking}, and {name} needs {lacks}: it {why}"
            raise RecipeError(message, position=where, hint=_remedy(key, config.kind))
    for name in gates:
        target = target_of(name)
        if target is not None and target.figure.group == "metrics":
            raise RecipeError(
                f"gate {name}: metrics are not measured, because {lacking}",
                position=loaded.position("gates", name),
                hint=_remedy(key),
            )


def only_measures(stages: Iterable[Iterable[str]]) -> bool:
    """Whether stages, the kinds of each entry, neither train, calibrate nor choose by examples."""
    return all(kind == CompactConfig.kind for entry in stages for kind in entry)


def _remedy(key: str, kind: str = "") -> str:
    if key == "source":
        return _name_data(kind)
    return "set data.target: label (--data-target label), or name the targets in data.targets"


def without_targets(data: JsonObject, stages: Sequence[Mapping[str, Json]]) -> JsonObject:
    """Return the `data` section of a verb: with `target: none` for an .npz file of inputs alone.

    Args:
        data: the section as the command line gives it.
        stages: each a kind with its settings. Where one needs targets, what lacks them is refused
            when the file is opened.
    """
    path = data.get("path")
    if data.get("source") != "npz" or {"target", "targets"} & set(data) or not stages:
        return data
    try:
        names = array_names(Path(str(path)))
        configs = [STAGES[k].model_validate(v) for entry in stages for k, v in entry.items()]
    except (ValidationError, DataError):
        return data  # whoever reads the recipe says what is wrong, and where
    has_targets = any(name.partition("_")[0] == "y" for name in names)
    if has_targets or any(one.needs_targets for one in configs):
        return data
    return {**data, "target": "none"}


def data_of_none(stages: Sequence[Mapping[str, Json]], has_gates: bool) -> JsonObject:
    """Return the `data` section of a single verb without data.

    Args:
        stages: each a kind with its settings; what is wrong with these is refused elsewhere.
        has_gates: whether there are gates; those on sizes need no examples.

    Raises:
        RecipeError: a stage needs examples, or there is nothing to do but to evaluate.
    """
    if not stages and not has_gates:
        raise _no_data()
    for kind, settings in (pair for entry in stages for pair in entry.items()):
        try:
            config = STAGES[kind].model_validate(settings)
        except ValidationError:
            continue  # whoever reads the recipe says what is wrong, and where
        if config.needs_examples is not None:
            raise _no_data(kind, config.needs_examples)
    return {"source": NO_DATA}


def _no_data(kind: str = "", why: str = "") -> RecipeError:
    message = f"{WHY_NO_METRICS}, and {kind} needs examples: it {why}" if kind else WHY_NO_METRICS
    return RecipeError(message, subject="--data", hint=_name_data(kind))


def _name_data(kind: str = "") -> str:
    if not kind:
        return f"{NAME_DATA}; without data, gates may limit sizes: --gate tflite_bytes=40KB"
    if kind != QuantizeConfig.kind:
        return NAME_DATA
    without = (name for name, scheme in SCHEME_TRAITS.items() if not scheme.calibrates)
    return f"{NAME_DATA}; schemes that need none: {', '.join(without)}"


_RECIPE_ENDINGS = (".yaml", ".yml")
_READ_BY_OTHERS: Mapping[str | None, tuple[str, ...]] = {
    "csv": ("series", "text", "audio", "tiles"),
    "npz": ("series",),
    "images": ("audio", "tiles", "boxes", "lmdb"),
    "text": ("boxes",),
    None: ("boxes", "lmdb"),
}
"""Sources whose files may look like those of another, which is used for a model without record."""
_KINDS = (
    "a source without files (digits), a folder of images, clips or texts, an .npz, .h5, .csv, "
    ".parquet or .jsonl file, "
    "file.py:function, or a YAML file"
)


def parse_data_reference(text: str, cwd: Path, recorded: object = None) -> JsonObject:
    """Return the `data` section that `text` stands for; its path is absolute.

    Args:
        text: `digits`, a path, or a YAML file with a `data` section. A source's name is never
            taken for a path: `./digits` names a folder.
        cwd: the folder that a relative path starts from.
        recorded: the source that the model was made with, for files that several sources read.

    Raises:
        DataError: nothing is there, or it is no data set.
        RecipeError: a YAML file that cannot be read as one.
    """
    if text in SOURCES and text != NO_DATA and not source_of(text).needs_path:
        return {"source": text}
    if instead := replacement(f"data.source={text}"):
        raise DataError(f"the source {text} was removed", subject="--data", hint=instead)
    path = (cwd / expand_user(text)).absolute()
    file, _, function = text.rpartition(":")
    if file.endswith(".py") and function.isidentifier():
        return {"source": "python", "path": str(path)}
    if text in {*SOURCES} - {NO_DATA} and not exists(path):
        raise DataError(
            f"the source {text} needs a path",
            subject="--data",
            hint="give the folder or file itself, such as --data ./images or --data arrays.npz",
        )
    if not exists(path):
        raise DataError(
            "no such file or folder", subject=path, hint=windows_hint(text) or _hint(text, path)
        )
    if path.suffix.lower() in _RECIPE_ENDINGS:
        return located_section(read_raw(path), path)
    source = _source_of(path)
    if recorded in _READ_BY_OTHERS.get(source, ()):
        source = str(recorded)
    if source is not None:
        return {"source": source, "path": str(path)}
    raise DataError("not a kind of data that shrink knows", subject=path, hint=f"give {_KINDS}")


def _source_of(path: Path) -> str | None:
    """Return the source that a file or folder is for, by what it looks like; None for no data."""
    if is_record_name(path.name) or _holds_records(path):
        return "tfrecord"
    if is_prepared(path):
        return "tfds"
    if path.is_dir():
        if holds_masks(path):
            return "masks"
        below = itertools.chain(path.glob("*/*"), path.glob("*/*/*"))
        of_ending = dict.fromkeys(IMAGES.endings, "images")
        of_ending |= dict.fromkeys(CLIPS.endings, "audio") | dict.fromkeys(TEXTS.endings, "text")
        endings = (file.suffix.lower() for file in below)
        return next((of_ending[ending] for ending in endings if ending in of_ending), "images")
    if path.suffix.lower() == ".csv":
        return "images" if lists_images(path) else "csv"
    for name in itertools.chain(SOURCES, extension_names("source")):
        with contextlib.suppress(RecipeError):  # a package that cannot be imported takes no file
            if path.suffix.lower() in source_of(name).endings:
                return name
    return None


def _holds_records(path: Path) -> bool:
    """Whether a folder holds TFRecord files, which nobody keeps beside images."""
    return path.is_dir() and any(is_record_name(entry.name) for entry in path.iterdir())


@dataclass(frozen=True)
class NamedData:
    """What `--data` stands for: the `data` section, and the `task` that its file states."""

    data: JsonObject
    task: JsonObject


def parse_named_data(text: str, cwd: Path, recorded: object = None) -> NamedData:
    """Return what `--data` stands for; a YAML file holds `data`, may hold `task`, and no more.

    Args:
        text, cwd, recorded: as `parse_data_reference` takes them.

    Raises:
        DataError: nothing is there, or it is no data set.
        RecipeError: a YAML file with another key, or with a wrong one in its sections.
    """
    path = (cwd / expand_user(text)).absolute()
    if path.suffix.lower() not in _RECIPE_ENDINGS or not path.is_file():
        return NamedData(parse_data_reference(text, cwd, recorded), {})
    raw = read_raw(path)
    problems = [
        RecipeError(
            f"--data takes a file with data: and task:, but this file has {key!r}",
            position=raw.position(key),
            hint=hint_for(key, ("data", "task")) + "; a whole recipe is run by `shrink run`",
        )
        for key in raw.value
        if key not in ("data", "task")
    ]
    data, task = JsonObject(), raw.value.get("task") or {}
    try:
        TaskConfig.model_validate(task)
    except ValidationError as error:
        problems += recipe_errors(error, TaskConfig, ("task",), lambda keys: raw.position(*keys))
    try:
        data = located_section(raw, path)
    except RecipeError as error:
        problems += [error, *error.others]
    if problems:
        raise together(problems)
    return NamedData(data, task)


def located_section(raw: RawRecipe, path: Path) -> JsonObject:
    """Return the `data` section of a YAML file, with what it extends; its paths are absolute.

    Raises:
        DataError: there is none.
        RecipeError: a wrong key in it.
    """
    section = raw.value.get("data")
    if section is None:
        raise DataError(
            "no data section in this file",
            subject=path,
            hint="add, for example, data: {source: digits}",
        )
    try:
        data = DataConfig.model_validate(section)
    except ValidationError as error:
        raise together(
            recipe_errors(error, DataConfig, ("data",), lambda keys: raw.position(*keys))
        ) from error
    return located_data(data, raw).model_dump(mode="json", by_alias=True, exclude_unset=True)


def _hint(text: str, path: Path) -> str:
    near_source = did_you_mean(text, ["digits"])
    if near_source:
        return f"did you mean {near_source}?"
    try:
        beside = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        beside = []
    near = near_file(path.name, beside)
    return f"did you mean {path.parent / near}?" if near else f"give {_KINDS}"
