"""Sweeps: `--set KEY=A,B`, and `matrix:` and `repeat:` of a recipe, as one recipe per combination.

matrix:
  prune.sparsity: [0.3, 0.5]
  training.optimizer.learning_rate: [1e-3, 1e-2]
repeat: 3
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml as pyyaml

from shrink.base.errors import Position, RecipeError, hint_for, together
from shrink.base.foreign import Json
from shrink.base.removal import replacement
from shrink.base.settings import SEED, in_words
from shrink.recipe.load import LoadedRecipe, RawRecipe, read_raw, validated
from shrink.recipe.overrides import SECTIONS, Override, apply_override, stage_names

MATRIX, REPEAT = "matrix", "repeat"
MAX_RUNS = 1000
NOT_SWEPT = ("name", "stages", "extends", MATRIX, REPEAT)


@dataclass(frozen=True)
class Combination:
    """The settings of one run of a sweep.

    Attributes:
        settings: in the order of the sweep's keys.
        is_repeat: whether the last one is the seed of `repeat`.
    """

    settings: tuple[Override, ...]
    is_repeat: bool = False

    @property
    def texts(self) -> dict[str, str]:
        """The values as they were written, by key."""
        return {setting.key: setting.written for setting in self.settings}

    @property
    def own(self) -> dict[str, str]:
        """The same without the seed of a repeat."""
        kept = self.settings[:-1] if self.is_repeat else self.settings
        return {setting.key: setting.written for setting in kept}

    @property
    def title(self) -> str:
        """The settings for people: `prune.sparsity = 0.3, training.seed = 1`."""
        return in_words(self.texts)

    @property
    def folder(self) -> str:
        """The name of the run folder in ASCII, such as `prune.sparsity=0.3`.

        A key or value that a file name cannot hold is followed by a hash of its text. File names
        have at most 255 bytes.
        """
        name = ",".join(
            f"{_file_name(setting.key, 80)}={_file_name(setting.written, 40)}"
            for setting in self.settings
        )
        return name if len(name) <= 120 else f"{name[:120]}-{_hash(name)}"


@dataclass(frozen=True)
class Variant:
    """One recipe to run, and the settings that distinguish it from the rest of the sweep."""

    loaded: LoadedRecipe
    combination: Combination


@dataclass(frozen=True)
class Variants:
    """The recipes that a recipe with its overrides stands for.

    Attributes:
        each: at least one.
        is_sweep: false for a recipe that is run as it is.
        repeat: seeds per combination; None where the recipe has no `repeat`.
    """

    each: tuple[Variant, ...]
    is_sweep: bool
    repeat: int | None = None


@dataclass(frozen=True)
class _Axis:
    """A key and its values; `place` is the position of the key."""

    key: str
    values: tuple[Override, ...]
    place: Position


def load_variants(path: Path, texts: Sequence[str] = ()) -> Variants:
    """Read a recipe and return the recipes to run.

    Args:
        path: the recipe file, or `load.STDIN`.
        texts: `KEY=VALUE`, or `KEY=A,B` for a sweep, as `--set` takes them.

    Raises:
        RecipeError: with file, line and column of each problem.
    """
    return variants_of(read_raw(path), path, texts)


def variants_of(raw: RawRecipe, path: Path, texts: Sequence[str] = ()) -> Variants:
    """Return the recipes to run, from a recipe that was read; see `load_variants`."""
    matrix, repeat = raw.value.pop(MATRIX, None), raw.value.pop(REPEAT, None)
    repeat_place = raw.position(REPEAT)
    axes = {axis.key: axis for axis in _axes_of_matrix(matrix, raw)}
    single: list[Override] = []
    for text in texts:
        overrides = _split(text)
        first = overrides[0]
        if first.path == (REPEAT,):
            if len(overrides) > 1:
                raise RecipeError(
                    f"{REPEAT} cannot be swept",
                    position=first.position,
                    hint=f"give one number: --set {REPEAT}={overrides[-1].written}",
                )
            repeat, repeat_place = first.value, first.position
        elif len(overrides) > 1 or first.key in axes:
            _check_key(first.key, first.position, raw)
            axes[first.key] = _Axis(first.key, tuple(overrides), first.position)
        else:
            apply_override(first, raw.value, raw.positions)
            single.append(first)
    count = _checked_repeat(repeat, repeat_place, axes)
    if not axes and count is None:
        return Variants((Variant(validated(raw, path), Combination(())),), is_sweep=False)
    _check_overlap(axes, single)
    runs = (count or 1) * math.prod(len(axis.values) for axis in axes.values())
    if runs > MAX_RUNS:
        raise RecipeError(
            f"{runs:,} runs are more than {MAX_RUNS:,}",
            position=next((axis.place for axis in axes.values()), repeat_place),
            hint="remove values, or sweep in parts",
        )
    combinations = [
        Combination(product)
        for product in itertools.product(*(axis.values for axis in axes.values()))
    ]
    if count is not None:
        seeds = _seeds(count, raw, repeat_place)
        combinations = [
            Combination((*combination.settings, seed), is_repeat=True)
            for combination in combinations
            for seed in seeds
        ]
    return Variants(_validated(combinations, raw, path, axes), is_sweep=True, repeat=count)


def _split(text: str) -> list[Override]:
    """Return the overrides of `KEY=VALUE` or `KEY=A,B`.

    The values are the items of the YAML list `[A,B]`, so commas inside brackets, braces or quotes
    do not separate.
    """
    key, separator, value = text.partition("=")
    try:
        node = pyyaml.compose(f"[{value}]", Loader=pyyaml.SafeLoader)
    except pyyaml.YAMLError:
        node = None
    items = node.value if isinstance(node, pyyaml.SequenceNode) else []
    marks = [(item.start_mark.index - 1, item.end_mark.index - 1) for item in items]
    if not separator or len(marks) < 2:
        return [Override.parse(text)]
    found = [replace(Override.parse(f"{key}={value[a:b]}"), text=text) for a, b in marks]
    _check_values(found, key.strip(), Position(text, 0, 0))
    return found


def _axes_of_matrix(matrix: Json, raw: RawRecipe) -> Iterator[_Axis]:
    if matrix is None:
        return
    if not isinstance(matrix, dict) or not matrix:
        raise RecipeError(
            "matrix is a mapping of keys to lists of values",
            position=raw.position(MATRIX),
            hint="for example `matrix: {prune.sparsity: [0.3, 0.5]}`",
        )
    for key, values in matrix.items():
        where = raw.position(MATRIX, key)
        if instead := replacement(f"{MATRIX}.{key}"):
            raise RecipeError(f"matrix.{key} was removed", position=where, hint=instead)
        _check_key(key, where, raw)
        if not isinstance(values, list):
            inner = next(iter(values), "KEY") if isinstance(values, dict) else None
            hint = f"write {key}.{inner}: [...]" if inner else f"write {key}: [{values}]"
            raise RecipeError(f"{key} takes a list of values here", position=where, hint=hint)
        overrides = []
        for index, value in enumerate(values):
            path = (MATRIX, key, index)
            text = value if isinstance(value, str) and value else json.dumps(value)
            override = Override(
                tuple(key.split(".")), value, f"{key}={text}", raw.position(*path), text
            )
            overrides.append(override)
        _check_values(overrides, key, where)
        yield _Axis(key, tuple(overrides), where)


def _check_key(key: str, place: Position, raw: RawRecipe) -> None:
    """Refuse a key that no section or stage has, or that cannot be swept."""
    first, *rest = key.split(".")
    names = stage_names(raw.value.get("stages"))
    known = [name for name in (*SECTIONS, *names) if name not in NOT_SWEPT]
    if key in NOT_SWEPT or first in (MATRIX, REPEAT):
        raise RecipeError(f"{first} cannot be swept", position=place)
    if first not in known:
        raise RecipeError(
            f"no section or stage is called {first!r}",
            position=place,
            hint=hint_for(first, known),
        )
    if not rest and first in names:
        raise RecipeError(
            "this names a stage; name a key of the stage",
            position=place,
            hint=f"write {first}.KEY",
        )


def _check_values(values: Sequence[Override], key: str, place: Position) -> None:
    """Refuse an empty list and a value that is listed twice (True is not 1)."""
    if not values:
        raise RecipeError(
            f"{key}: an empty list has nothing to sweep over",
            position=place,
            hint="give values, or remove the key",
        )
    seen: list[Json] = []
    for override in values:
        value = override.value
        if any(value == v and isinstance(value, bool) == isinstance(v, bool) for v in seen):
            raise RecipeError(
                f"{key}: the value {value!r} is listed twice",
                position=override.position,
                hint="remove one of them; for several seeds write `repeat: N`, and put a list that "
                "is one value in brackets: [a,b]",
            )
        seen.append(value)


def _check_overlap(axes: Mapping[str, _Axis], single: Sequence[Override]) -> None:
    """Refuse a key below a swept key: its value would be overwritten."""
    places = {override.key: override.position for override in single}
    places |= {key: axis.place for key, axis in axes.items()}
    for outer, key in itertools.product(axes, places):
        if key.startswith(f"{outer}."):
            raise RecipeError(
                f"{key} is a part of {outer}, which the sweep sets as a whole",
                position=places[key],
                hint=f"keep one of them, or name the parts: {outer}.KEY",
            )


def _checked_repeat(value: Json, place: Position, axes: Mapping[str, _Axis]) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_RUNS:
        raise RecipeError(
            f"repeat: must be a whole number from 1 to {MAX_RUNS:,}, not {value!r}", position=place
        )
    section, _, name = SEED.partition(".")
    for key, axis in axes.items():
        inside = [v for v in axis.values if isinstance(v.value, dict) and name in v.value]
        if key == SEED or (key == section and inside):
            raise RecipeError(
                f"repeat sets {SEED}, which is swept already",
                position=inside[0].position if key != SEED else place,
                hint="keep one of them: `repeat: N` runs N seeds",
            )
    return value


def _seeds(count: int, raw: RawRecipe, place: Position) -> list[Override]:
    """Return overrides of `count` seeds, from the recipe's own upwards."""
    training = raw.value.get("training")
    given = training.get("seed", 0) if isinstance(training, dict) else 0
    first = given if isinstance(given, int) else 0  # a wrong seed is refused with the recipe
    return [
        Override(tuple(SEED.split(".")), seed, f"{SEED}={seed}", place, str(seed))
        for seed in range(first, first + count)
    ]


def _validated(
    combinations: Sequence[Combination], raw: RawRecipe, path: Path, axes: Mapping[str, _Axis]
) -> tuple[Variant, ...]:
    """Return a checked recipe per combination; raise every problem once."""
    variants: list[Variant] = []
    problems: dict[tuple[Position | None, str], RecipeError] = {}
    keys = {value.position: axis.place for axis in axes.values() for value in axis.values}
    for combination in combinations:
        copy = raw.copy()
        try:
            for setting in combination.settings:
                apply_override(setting, copy.value, copy.positions)
            variants.append(Variant(validated(copy, path), combination))
        except RecipeError as error:
            for problem in (error, *error.others):
                problem.others = ()
                if problem.message.startswith("unknown key") and problem.position in keys:
                    problem.position = keys[problem.position]
                problems.setdefault((problem.position, problem.message), problem)
    if problems:
        raise together(list(problems.values()))
    return tuple(variants)


def _file_name(text: str, longest: int) -> str:
    name = re.sub(r"[^A-Za-z0-9_.+-]+", "-", text).strip("-")[:longest]
    return name if name == text else "-".join(filter(None, (name, _hash(text))))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
