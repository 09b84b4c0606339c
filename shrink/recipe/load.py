"""From a recipe's text to a `Recipe`: `extends`, `--set`, validation with positions, paths."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from shrink.base import yaml
from shrink.base.errors import Position, RecipeError, did_you_mean, hint_for, together
from shrink.base.fields import IDLE
from shrink.base.foreign import Json, JsonObject
from shrink.base.removal import replacement
from shrink.model.reference import exists, expand_user
from shrink.recipe.overrides import Override, apply_override
from shrink.recipe.schema import Recipe
from shrink.recipe.search_config import SearchConfig
from shrink.report.config import Gate, parse_gates
from shrink.stages import STAGES, find_stage
from shrink.stages.base import StageConfig

Locate = Callable[[tuple[str | int, ...]], Position]


_KINDS = {
    **dict.fromkeys(("list_type", "tuple_type"), "a list"),
    **dict.fromkeys(("dict_type", "mapping_type", "model_type"), "a mapping"),
}
"""Kinds of pydantic's errors of which it speaks as of Python's objects, in a recipe's words."""


def recipe_errors(
    error: ValidationError,
    model: type[BaseModel],
    prefix: tuple[str | int, ...],
    locate: Locate,
    extra_keys: Sequence[str] = (),
) -> list[RecipeError]:
    """Return one `RecipeError` per key that is wrong.

    Args:
        error: what pydantic raised.
        model: the section that was validated.
        prefix: the section's own path in the recipe.
        locate: finds the position of a path.
        extra_keys: keys that are legal beside the model's own.
    """
    by_path: dict[tuple[str | int, ...], RecipeError] = {}
    for detail in error.errors(include_url=False):
        path = _recipe_path(detail, model)
        if any(known[: len(path)] == path and known != path for known in by_path):
            continue  # of a union's members the one that the value is most like tells
        for known_path in [k for k in by_path if path[: len(k)] == k and k != path]:
            del by_path[known_path]
        named = _named((*prefix, *path)) or "recipe"
        message, hint = _describe(detail, prefix, path, named, model, extra_keys)
        position = locate((*prefix, *path))
        known = by_path.get(path)
        if known is None:
            by_path[path] = RecipeError(message, position=position, hint=hint)
        elif message not in known.message:
            # A union complains once per member; together they say what is possible. The value
            # is shown once, and what is meant may be a choice of any of them.
            said = known.message.removesuffix(_shown(detail))
            known.message = f"{said}; or {message.partition(': ')[2] or message}"
            known.hint = known.hint or hint
    return list(by_path.values())


def _recipe_path(detail: ErrorDetails, model: type[BaseModel]) -> tuple[str | int, ...]:
    """Drop the parts of pydantic's location that name union members, not keys."""
    keys: list[str | int] = []
    section: type[BaseModel] | None = model
    for index, part in enumerate(detail["loc"]):
        is_last = index == len(detail["loc"]) - 1
        if isinstance(part, int) or (is_last and detail["type"] == "extra_forbidden"):
            keys.append(part)
        elif part in _keys(section):
            keys.append(part)
            section = _section(section, part)
    if detail["type"] == IDLE:
        keys.append(detail["ctx"]["key"])
    return tuple(keys)


def _describe(
    detail: ErrorDetails,
    prefix: tuple[str | int, ...],
    path: tuple[str | int, ...],
    key: str,
    model: type[BaseModel],
    extra_keys: Sequence[str],
) -> tuple[str, str | None]:
    if detail["type"] == "extra_forbidden":
        section: type[BaseModel] | None = model
        for part in path[:-1]:
            section = _section(section, str(part))
        key = str(path[-1])
        names = [part for part in (*prefix, *path) if isinstance(part, str)]
        if instead := replacement(".".join(names[-2:])):
            return f"the key {key!r} was removed", instead
        return f"unknown key {key!r}", hint_for(key, [*_keys(section), *extra_keys])
    if detail["type"] == IDLE:
        return f"{key} does nothing", f"it needs {detail['ctx']['needs']}; else leave {key} out"
    if detail["type"] == "missing":
        return f"the key {key!r} is missing", None
    text = _KINDS.get(detail["type"]) or detail["msg"].removeprefix("Value error, ")
    text = text.removeprefix("Input should be ")
    value = detail.get("input")
    shown = _shown(detail)
    if detail["msg"].startswith("Value error"):
        return f"{key}: {text}" if path else text, None
    if detail["type"] == "literal_error" and isinstance(value, str):
        named = [part for part in (*prefix, *path) if isinstance(part, str)]
        if instead := replacement(f"{'.'.join(named[-2:])}={value}"):
            return f"{key}: {value} was removed", instead
        options = [o.strip(" '") for o in text.replace(" or ", ", ").split(",")]
        near = _meant_by(model, path, value) or did_you_mean(value, options)
        # The message lists them all already.
        return f"{key}: must be {text}{shown}", f"did you mean {near}?" if near else None
    return f"{key}: must be {text}{shown}", None


def _named(path: tuple[str | int, ...]) -> str:
    """Return the last key of a path, with the places in it: `rungs[0]`."""
    keys = [number for number, part in enumerate(path) if isinstance(part, str)]
    last = keys[-1] if keys else 0
    return "".join(f"[{part}]" if isinstance(part, int) else part for part in path[last:])


def _shown(detail: ErrorDetails) -> str:
    """Return the end of a message that shows the value which was given, where it is short."""
    value = detail.get("input")
    return f", not {value!r}" if isinstance(value, str | int | float | bool) else ""


def _meant_by(model: type[BaseModel], path: tuple[str | int, ...], value: str) -> str | None:
    """Return what a section knows to be meant by another word for one of its values."""
    section: type[BaseModel] | None = model
    for part in path[:-1]:
        section = _section(section, str(part))
    known = getattr(section, "meant_by", {}).get(path[-1] if path else None, {})
    meant: str | None = known.get(value.casefold().replace("-", "_"))
    return meant


def _keys(section: type[BaseModel] | None) -> list[str]:
    fields = getattr(section, "model_fields", {})
    return [field.alias or name for name, field in fields.items()]


def _section(section: type[BaseModel] | None, key: str) -> type[BaseModel] | None:
    """Return the model class that a key of `section` holds, or None."""
    for name, field in getattr(section, "model_fields", {}).items():
        if key == (field.alias or name):
            for one in (field.annotation, *get_args(field.annotation)):
                if isinstance(one, type) and issubclass(one, BaseModel):
                    return one
    return None


Path_ = tuple[str | int, ...]
AnySection = TypeVar("AnySection", bound=BaseModel)
_EXTENDS_DEPTH = 8
STDIN = Path("-")
"""Stands for standard input in place of a recipe file."""


@dataclass(frozen=True)
class LoadedRecipe:
    """A valid recipe and where each of its keys stands."""

    recipe: Recipe
    source: Path
    positions: Mapping[Path_, Position]
    search: SearchConfig | None = None

    def position(self, *path: str | int) -> Position:
        """Return where a key stands, or the nearest section around it."""
        return _nearest(self.positions, path, str(self.source))

    def folder(self, *path: str | int) -> Path:
        """Return the folder that a relative path under this key starts from."""
        return _folder(self.position(*path))


@dataclass
class RawRecipe:
    """A recipe as it was read and merged, before it is checked.

    Attributes:
        value: its keys.
        positions: where each key stands.
    """

    value: JsonObject
    positions: dict[Path_, Position]

    def copy(self) -> RawRecipe:
        """Return one that overrides can be applied to."""
        return RawRecipe(dict(self.value), dict(self.positions))

    def position(self, *path: str | int) -> Position:
        """Return where a key stands, or the nearest section around it."""
        return _nearest(self.positions, path, "")

    def folder(self, *path: str | int) -> Path:
        """Return the folder that a relative path under this key starts from."""
        return _folder(self.position(*path))


def load_recipe(path: Path, overrides: Sequence[str] = ()) -> LoadedRecipe:
    """Read, merge and validate a recipe, without its `matrix` and `repeat`.

    Args:
        path: the recipe file, or `STDIN`, whose relative paths start from the current folder.
        overrides: `STAGE.KEY=VALUE` texts, as `--set` takes them.

    Raises:
        RecipeError: with file, line and column of each problem.
    """
    raw = read_raw(path)
    for key in SWEEPING:
        raw.value.pop(key, None)
    for text in overrides:
        apply_override(Override.parse(text), raw.value, raw.positions)
    return validated(raw, path)


SEARCH = "search"
"""The key of a recipe that says what `shrink search` varies."""
SWEEPING = ("matrix", "repeat")
"""Keys of a recipe that make several runs of it; see `shrink.recipe.matrix`."""


def read_raw(path: Path) -> RawRecipe:
    """Return a recipe with what it extends, unchecked; `STDIN` is read once.

    Raises:
        RecipeError: there is no such file, or it is no YAML of this dialect.
    """
    if path == STDIN:
        return _raw(yaml.load_stream(sys.stdin.buffer, "stdin"), Path("stdin"), depth=0)
    return _read(path.resolve(), depth=0)


def recipe_from_mapping(value: JsonObject, name: str) -> LoadedRecipe:
    """Validate a recipe that no file holds, such as that of a single verb.

    Args:
        value: the mapping that a recipe file would hold; without stages it only evaluates.
        name: what stands for the file in messages.
    """
    return validated(RawRecipe({"stages": [], **copy.deepcopy(value)}, {}), Path(name))


def validate_section(section: type[AnySection], value: JsonObject, name: str) -> AnySection:
    """Return one section of a recipe, such as `DataConfig`, from a mapping.

    Raises:
        RecipeError: naming `name` as the place.
    """
    try:
        return section.model_validate(value)
    except ValidationError as error:
        raise together(
            recipe_errors(error, section, (), lambda path: Position(name, 0, 0))
        ) from error


def _read(path: Path, depth: int) -> RawRecipe:
    return _raw(yaml.load(path), path, depth)


def _raw(document: yaml.Document, path: Path, depth: int) -> RawRecipe:
    """Return a document's values and positions, with those of the recipe that it extends."""
    if not isinstance(document.value, dict):
        raise RecipeError("a recipe is a mapping of keys", position=document.position(()))
    positions = {**document.positions, **document.key_positions}
    raw = RawRecipe(dict(document.value), positions)
    if "extends" not in raw.value:
        return raw
    where = _nearest(positions, ("extends",), str(path))
    parent = raw.value.pop("extends")
    if not isinstance(parent, str):
        raise RecipeError("extends names one other recipe", position=where)
    if depth >= _EXTENDS_DEPTH:
        raise RecipeError("extends goes too deep; does a recipe extend itself?", position=where)
    target = (path.parent / parent).resolve()
    if not exists(target):
        raise RecipeError(f"extends: no such recipe: {target}", position=where)
    return _merged(_read(target, depth + 1), raw)


def _merged(base: RawRecipe, top: RawRecipe) -> RawRecipe:
    """Lay `top` over `base`: mappings merge key by key, everything else is replaced whole."""
    merged = base.copy()
    positions = merged.positions

    def lay(target: JsonObject, source: JsonObject, path: Path_) -> None:
        for key, item in source.items():
            here = (*path, key)
            if isinstance(item, dict) and isinstance(target.get(key), dict):
                target[key] = dict(target[key])
                lay(target[key], item, here)
                continue
            target[key] = item
            for stale in [p for p in positions if p[: len(here)] == here]:
                del positions[stale]
            positions.update({p: w for p, w in top.positions.items() if p[: len(here)] == here})

    lay(merged.value, top.value, ())
    return merged


def validated(raw: RawRecipe, source: Path) -> LoadedRecipe:
    """Return the recipe that raw keys mean.

    Raises:
        RecipeError: with the place of each problem.
    """
    problems: list[RecipeError] = []
    value = dict(raw.value)

    def locate(path: Path_) -> Position:
        return _nearest(raw.positions, path, str(source))

    stages = _stages(value.pop("stages", None), locate, problems)
    value["gates"] = _gates(value.get("gates"), locate, problems)
    search = _search(value.pop(SEARCH, None), locate, problems)
    try:
        recipe = Recipe.model_validate({**value, "stages": stages})
    except ValidationError as error:
        problems.extend(
            recipe_errors(error, Recipe, (), locate, extra_keys=("extends", SEARCH, *SWEEPING))
        )
    if problems:
        raise together(problems)
    return LoadedRecipe(_with_files(recipe, locate), source, raw.positions, search)


def _search(value: Json, locate: Locate, problems: list[RecipeError]) -> SearchConfig | None:
    """Return what `shrink search` varies; a run of the recipe does not look at it."""
    if value is None:
        return None
    try:
        return SearchConfig.model_validate(value)
    except ValidationError as error:
        problems.extend(recipe_errors(error, SearchConfig, (SEARCH,), locate))
        return None


def _with_files(recipe: Recipe, locate: Locate) -> Recipe:
    """Return a recipe whose task names functions by where their files are.

    Raises:
        RecipeError: there is no such file.
    """
    folder = _folder(locate(("task",)))

    def place(file: str) -> str:
        path = (folder / expand_user(file)).resolve()
        if not path.is_file():
            raise RecipeError(
                f"task: there is no Python file {file}",
                position=locate(("task", "loss")),
                hint=f"it is looked for in {folder}",
            )
        return str(path)

    return recipe.model_copy(update={"task": recipe.task.with_files(place)})


def _stages(value: Json, locate: Locate, problems: list[RecipeError]) -> tuple[StageConfig, ...]:
    if not isinstance(value, list):
        problems.append(
            RecipeError(
                "stages is a list of stages",
                position=locate(("stages",)),
                hint="stages: [] evaluates the model alone",
            )
        )
        return ()
    built = []
    for index, item in enumerate(value):
        try:
            built.append(_stage(item, ("stages", index), locate))
        except RecipeError as problem:
            problems.extend([problem, *problem.others])
    return tuple(built)


def _stage(item: Json, path: Path_, locate: Locate) -> StageConfig:
    if isinstance(item, str):
        item = {item: {}}
    if not isinstance(item, dict) or len(item) != 1:
        raise RecipeError("a stage is one key with its settings", position=locate(path))
    kind, settings = next(iter(item.items()))
    where = (*path, kind)
    if (config := find_stage(kind)) is None:
        raise RecipeError(
            f"unknown stage {kind!r}", position=locate(where), hint=hint_for(kind, STAGES)
        )
    if not isinstance(settings, dict | None):
        raise RecipeError(f"{kind} takes a mapping of settings", position=locate(where))
    try:
        return config.model_validate(settings or {})
    except ValidationError as error:
        raise together(recipe_errors(error, config, where, locate)) from error


def _gates(value: Json, locate: Locate, problems: list[RecipeError]) -> Json:
    if value is None:
        return {}
    if not isinstance(value, dict):
        problems.append(
            RecipeError("gates is a mapping of names to limits", position=locate(("gates",)))
        )
        return {}
    built = {}
    for name, limit in value.items():
        try:
            (gate,) = parse_gates({name: limit}).values()
            if gate.against is not None:
                folder = _folder(locate(("gates", name, "against")))
                saved = (folder / expand_user(gate.against)).resolve()
                gate = gate.model_copy(update={"against": str(saved)})
            built[name] = gate
        except ValidationError as error:
            problems.extend(recipe_errors(error, Gate, ("gates", name), locate))
        except ValueError as error:
            hint = "docs/reference/figures.md and docs/metrics.md list gates and their units"
            problems.append(RecipeError(str(error), position=locate(("gates", name)), hint=hint))
    return built


def _folder(position: Position) -> Path:
    """Return where relative paths start: beside the recipe, or here if no file says them."""
    file = Path(position.file)
    return file.parent if file.is_absolute() and file.suffix else Path.cwd()


def _nearest(positions: Mapping[Path_, Position], path: Path_, file: str) -> Position:
    for length in range(len(path), -1, -1):
        if (position := positions.get(path[:length])) is not None:
            return position
    return Position(file, 0, 0)
