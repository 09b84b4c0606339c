"""Sweeps: `--set KEY=A,B`, and `matrix:` and `repeat:` of a recipe, as one recipe per combination.

    matrix:
      prune.sparsity: [0.3, 0.5]
      training.seed: [0, 1]
      exclude: [{prune.sparsity: 0.5, training.seed: 1}]
      include: [{prune.sparsity: 0.9, prune.epochs: 10}]
    repeat: 3

The words are those of GitHub's job matrices: `exclude` removes combinations that have all the
values of an entry; `include` adds an entry's other keys to those of the product that have its
values, and is a combination of its own where there are none. What it adds is not extended by other
entries.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from shrink.base.errors import Position, RecipeError, hint_for, together
from shrink.base.foreign import Json
from shrink.base.settings import SEED
from shrink.recipe.combination import Combination, Setting, written
from shrink.recipe.load import STDIN, LoadedRecipe, RawRecipe, read_raw, validated
from shrink.recipe.overrides import SECTIONS, Override, apply_override, stage_names
from shrink.recipe.values import is_swept, values_of

MATRIX, REPEAT = "matrix", "repeat"
_EXCLUDE, _INCLUDE = "exclude", "include"
_MOST = 1000
_NOT_SWEPT = ("name", "stages", "extends", MATRIX, REPEAT)


@dataclass(frozen=True)
class Variant:
    """One recipe to run, and the settings that tell it from the others of its sweep."""

    loaded: LoadedRecipe
    combination: Combination


@dataclass(frozen=True)
class Variants:
    """The recipes that a recipe with its overrides stands for.

    Attributes:
        each: at least one.
        is_sweep: false for a recipe that is run as it is.
        repeat: seeds for each combination; None where the recipe does not ask for any.
    """

    each: tuple[Variant, ...]
    is_sweep: bool
    repeat: int | None = None


@dataclass(frozen=True)
class _Axis:
    """A key and its values; `place` is where the key stands."""

    key: str
    values: tuple[Override, ...]
    place: Position


@dataclass(frozen=True)
class _Given:
    """What `--set` gives, by key; `of_matrix` are the keys that the recipe's matrix has itself."""

    axes: Mapping[str, _Axis]
    of_matrix: frozenset[str]

    def left_of(self, entry: tuple[Setting, ...]) -> tuple[Setting, ...]:
        """Return what `--set` leaves of an entry of `include`, nothing where that is past.

        A value of a key that the matrix has is what the entry is about: with another one than
        `--set` asks for, it is about nothing. A value of another key gives way.
        """
        about = [s for s in entry if s.key in self.axes and s.key in self.of_matrix]
        if any(s.override.value not in [v.value for v in self.axes[s.key].values] for s in about):
            return ()
        return tuple(s for s in entry if s.key not in self.axes or s.key in self.of_matrix)


def load_variants(path: Path, texts: Sequence[str] = ()) -> Variants:
    """Read a recipe and return what is to be run of it.

    Args:
        path: the recipe file, or `STDIN`.
        texts: `KEY=VALUE`, or `KEY=A,B` for a sweep, as `--set` takes them.

    Raises:
        RecipeError: with file, line and column of each problem.
    """
    return variants_of(read_raw(path), path, texts)


def variants_of(raw: RawRecipe, path: Path, texts: Sequence[str] = ()) -> Variants:
    """Return what is to be run of a recipe that was read; the arguments are those of its file.

    Raises:
        RecipeError: with the place of each problem.
    """
    matrix, repeat = raw.value.pop(MATRIX, None), raw.value.pop(REPEAT, None)
    repeat_place = raw.position(REPEAT)
    here = Path.cwd() if path == STDIN else path.resolve().parent
    axes = {axis.key: axis for axis in _axes_of_matrix(matrix, raw)}
    of_matrix, given = set(axes), dict[str, _Axis]()
    for text in texts:
        overrides = _overrides_of(text, here)
        first = overrides[0]
        if first.path == (REPEAT,):
            _check_one(overrides)
            repeat, repeat_place = first.value, first.position
            continue
        given[first.key] = _Axis(first.key, tuple(overrides), first.position)
        if len(overrides) > 1 or first.key in axes:
            _check_key(first.key, first.position, raw)
            axes[first.key] = given[first.key]
        else:
            apply_override(first, raw.value, raw.positions)
    count = _repeats(repeat, repeat_place, axes)
    if matrix is None and not axes and count is None:
        return Variants((Variant(validated(raw, path), Combination(())),), is_sweep=False)
    includes = _includes(matrix, raw, _Given(given, frozenset(of_matrix)))
    combinations = _combinations(axes, matrix, includes, raw)
    if count is None and combinations == [Combination(())]:
        return Variants((Variant(validated(raw, path), Combination(())),), is_sweep=False)
    for combination in combinations:
        _check_apart(combination, axes, given)
    if count is not None:
        combinations = list(_repeated(combinations, count, raw, repeat_place))
    return Variants(_validated(combinations, raw, path, axes), is_sweep=True, repeat=count)


def _overrides_of(text: str, here: Path) -> list[Override]:
    key, separator, _ = text.partition("=")
    if not separator or not is_swept(text, here):
        return [Override.parse(text)]
    found = [replace(Override.parse(f"{key}={one}"), text=text) for one in values_of(text)]
    _check_values([(one.value, one.position) for one in found], key.strip(), Position(text, 0, 0))
    return found


def _check_one(overrides: Sequence[Override]) -> None:
    """Refuse several values of `repeat`."""
    if len(overrides) > 1:
        raise RecipeError(
            f"{REPEAT} cannot be swept",
            position=overrides[0].position,
            hint=f"give one number: --set {REPEAT}={overrides[-1].written}",
        )


def _check_apart(
    combination: Combination, axes: Mapping[str, _Axis], given: Mapping[str, _Axis]
) -> None:
    """Refuse a key below another of the same run: one of them would be written over."""
    for one, other in itertools.permutations(combination.settings, 2):
        if other.key.startswith(f"{one.key}."):
            axis = axes.get(other.key)
            raise RecipeError(
                f"{other.key} is a part of {one.key}, which is set for the same run",
                position=other.override.position if other.path or axis is None else axis.place,
                hint=f"keep one of them, or name the parts: {one.key}.KEY",
            )
    for one, flag in itertools.product(combination.settings, given.values()):
        if flag.key.startswith(f"{one.key}."):
            raise RecipeError(
                f"{flag.key} is a part of {one.key}, which the sweep sets as a whole",
                position=flag.place,
                hint=f"leave one of them out, or sweep over {flag.key}",
            )


def _axes_of_matrix(matrix: Json, raw: RawRecipe) -> Iterator[_Axis]:
    if matrix is None:
        return
    place = raw.position(MATRIX)
    if not isinstance(matrix, dict) or not matrix:
        raise RecipeError(
            "matrix is a mapping of keys to lists of values",
            position=place,
            hint="for example `matrix: {prune.sparsity: [0.3, 0.5]}`",
        )
    for key, values in matrix.items():
        if key in (_EXCLUDE, _INCLUDE):
            continue
        where = raw.position(MATRIX, key)
        _check_key(key, where, raw)
        if not isinstance(values, list):
            one = next(iter(values), "KEY") if isinstance(values, dict) else None
            hint = f"write {key}.{one}: [...]" if one else f"write {key}: [{values}]"
            raise RecipeError(f"{key} takes a list of values here", position=where, hint=hint)
        paths = [(MATRIX, key, index) for index in range(len(values))]
        _check_values(
            [(v, raw.position(*p)) for v, p in zip(values, paths, strict=True)], key, where
        )
        yield _Axis(
            key,
            tuple(_override(key, value, p, raw) for value, p in zip(values, paths, strict=True)),
            where,
        )


def _override(key: str, value: Json, path: tuple[str | int, ...], raw: RawRecipe) -> Override:
    text = written(value, path, raw.texts)
    return Override(tuple(key.split(".")), value, f"{key}={text}", raw.position(*path), text)


def _check_key(key: str, place: Position, raw: RawRecipe) -> None:
    """Refuse a key that no section or stage has, or that says how runs are told apart."""
    first, *rest = key.split(".")
    names = stage_names(raw.value.get("stages"))
    known = [name for name in (*SECTIONS, *names) if name not in _NOT_SWEPT]
    if key in _NOT_SWEPT or first in (MATRIX, REPEAT):
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


def _check_values(values: Sequence[tuple[Json, Position]], key: str, place: Position) -> None:
    if not values:
        raise RecipeError(
            f"{key}: an empty list has nothing to sweep over",
            position=place,
            hint="give values, or take the key out",
        )
    seen: list[Json] = []
    for value, where in values:
        if any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in seen):
            raise RecipeError(
                f"{key}: the value {value!r} is there twice",
                position=where,
                hint="take one out; for several seeds write `repeat: N`, and a list that is one "
                "value in brackets: [a,b]",
            )
        seen.append(value)


def _combinations(
    axes: Mapping[str, _Axis], matrix: Json, includes: Sequence[tuple[Setting, ...]], raw: RawRecipe
) -> list[Combination]:
    """Return every combination, the last key varying fastest, less `exclude`, with `include`."""
    count = 1
    for axis in axes.values():
        count *= len(axis.values)
    if count > _MOST:
        raise RecipeError(
            f"{count:,} combinations are more than {_MOST:,}",
            position=next(iter(axes.values())).place,
            hint="take values out, or sweep in parts",
        )
    products = itertools.product(*(axis.values for axis in axes.values()))
    found = [Combination(tuple(map(Setting, product))) for product in products if product]
    if not isinstance(matrix, dict):
        return found or [Combination(())]
    for entry in _entries(matrix, _EXCLUDE, raw):
        for setting in entry:
            if setting.key not in axes:
                raise RecipeError(
                    f"exclude: {setting.key!r} is no key of this matrix",
                    position=raw.position(*setting.path),
                    hint=hint_for(setting.key, axes),
                )
        found = [one for one in found if not one.has(entry)]
    found = _included(found, [entry for entry in includes if entry])
    if not found and not axes and includes:
        return [Combination(())]  # --set gives all that they would
    if not found and any(key in matrix for key in (_EXCLUDE, _INCLUDE)):
        raise RecipeError("nothing is left to sweep over", position=raw.position(MATRIX, _EXCLUDE))
    return found


def _includes(matrix: Json, raw: RawRecipe, given: _Given) -> list[tuple[Setting, ...]]:
    """Return what `--set` leaves of each entry of `include`."""
    entries = _entries(matrix, _INCLUDE, raw) if isinstance(matrix, dict) else []
    seen: list[dict[str, Json]] = []
    for entry in entries:
        for setting in entry:
            _check_key(setting.key, raw.position(*setting.path), raw)
        values = {setting.key: setting.override.value for setting in entry}
        if values in seen:
            raise RecipeError(
                "include: the entry is there twice",
                position=raw.position(*entry[0].path),
                hint="take one out; for several seeds write `repeat: N`",
            )
        seen.append(values)
    return [given.left_of(entry) for entry in entries]


def _entries(matrix: Mapping[str, Json], word: str, raw: RawRecipe) -> list[tuple[Setting, ...]]:
    """Return the entries of `exclude` or `include`."""
    listed = matrix.get(word, [])
    if not isinstance(listed, list) or not all(isinstance(e, dict) and e for e in listed):
        raise RecipeError(
            f"{word} is a list of mappings of keys to one value each",
            position=raw.position(MATRIX, word),
            hint=f"for example `{word}: [{{prune.sparsity: 0.5, training.seed: 1}}]`",
        )
    return [
        tuple(
            Setting(
                _override(key, value, (MATRIX, word, index, key), raw), (MATRIX, word, index, key)
            )
            for key, value in entry.items()
        )
        for index, entry in enumerate(listed)
    ]


def _included(
    product: Sequence[Combination], entries: Sequence[tuple[Setting, ...]]
) -> list[Combination]:
    """Return the product, extended by the entries that fit, and the other entries behind it.

    An entry fits a combination whose own values it does not change.
    """
    found, added = list(product), list[Combination]()
    for entry in entries:
        fits = False
        for number, own in enumerate(product):
            mine = {one.key for one in own.settings}
            if own.has(one for one in entry if one.key in mine):
                fits = True
                found[number] = found[number].and_(tuple(s for s in entry if s.key not in mine))
        if not fits and not any(one.is_same(Combination(entry)) for one in added):
            added.append(Combination(entry))
    return [*found, *added]


def _repeats(value: Json, place: Position, axes: Mapping[str, _Axis]) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _MOST:
        raise RecipeError(
            f"repeat: must be a whole number from 1 to {_MOST:,}, not {value!r}", position=place
        )
    if SEED in axes:
        raise RecipeError(
            f"repeat sets {SEED}, which is swept already",
            position=place,
            hint=f"keep one of them: `repeat: {len(axes[SEED].values)}` for as many seeds",
        )
    return value


def _repeated(
    combinations: Sequence[Combination], count: int, raw: RawRecipe, place: Position
) -> Iterator[Combination]:
    """Yield each combination with as many seeds, from the recipe's own upwards."""
    if len(combinations) * count > _MOST:
        raise RecipeError(
            f"{len(combinations) * count:,} runs are more than {_MOST:,}", position=place
        )
    training = raw.value.get("training")
    given = training.get("seed", 0) if isinstance(training, dict) else 0
    begin = given if isinstance(given, int) else 0  # what else is wrong is told when it is checked
    for one in combinations:
        _check_seedless(one)
        for seed in range(begin, begin + count):
            override = Override(tuple(SEED.split(".")), seed, f"{SEED}={seed}", place, str(seed))
            yield one.and_((Setting(override),), is_repeat=True)


def _check_seedless(combination: Combination) -> None:
    """Refuse a combination that has a seed of its own beside `repeat`."""
    section, _, name = SEED.partition(".")
    for one in combination.settings:
        value = one.override.value
        if one.key == SEED or (one.key == section and isinstance(value, dict) and name in value):
            raise RecipeError(
                f"repeat sets {SEED}, which is set here, too",
                position=one.override.position,
                hint="keep one of them",
            )


def _validated(
    combinations: Sequence[Combination],
    raw: RawRecipe,
    path: Path,
    axes: Mapping[str, _Axis],
) -> tuple[Variant, ...]:
    """Return a checked recipe per combination; raise every problem once."""
    variants: list[Variant] = []
    problems: dict[tuple[Position | None, str], RecipeError] = {}
    keys = {one.position: axis.place for axis in axes.values() for one in axis.values}
    for combination in combinations:
        mine = raw.copy()
        try:
            for setting in combination.settings:
                apply_override(setting.override, mine.value, mine.positions)
            variants.append(Variant(validated(mine, path), combination))
        except RecipeError as error:
            for one in (error, *error.others):
                one.others = ()
                if one.message.startswith("unknown key") and one.position in keys:
                    one.position = keys[one.position]
                problems.setdefault((one.position, one.message), one)
    if problems:
        raise together(list(problems.values()))
    return tuple(variants)
