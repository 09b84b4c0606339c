"""Differences between two recipes, key by key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath

from shrink.base.foreign import Json, JsonObject
from shrink.contract.report import Report
from shrink.report.content import recipe_of
from shrink.report.diff import RecipeChange

_PLACES = {"model", "path", "teacher", "student", "against"}
"""Keys that hold places; only the last part of a path counts, as in the recipe's hash."""
_MISSING, _KIND = "-", ".kind"


def recipe_changes(a: Report, b: Report) -> list[RecipeChange]:
    """Return the keys that the resolved recipes of two reports say differently.

    Stages are matched by name, so that one more at the front does not change all that follow. A
    key that only one of them has is left out where it says no more than the default does.
    There are none where a report has no recipe.
    """
    recipes = [recipe_of(a), recipe_of(b)]
    first, second = map(_texts, recipes)
    keys = _differing(recipes) if first and second else []
    return [
        RecipeChange(key=key, a=first.get(key, _MISSING), b=second.get(key, _MISSING))
        for key in keys
    ]


def settings_that_differ(reports: Sequence[Report | None]) -> list[dict[str, str]]:
    """Return, for each report, the keys of its resolved recipe that are not the same in all.

    A key that some recipes leave out is left out of all where those that have it say its default.
    Nothing is returned for a report without a recipe.
    """
    recipes = [{} if report is None else recipe_of(report) for report in reports]
    keys = [key for key in _differing(recipes) if not key.endswith(_KIND)]
    texts = map(_texts, recipes)
    return [{key.removeprefix("stages."): one[key] for key in keys if key in one} for one in texts]


def settings_of(report: Report) -> dict[str, str]:
    """Return what the resolved recipe of a report says as text, by key."""
    return _texts(recipe_of(report))


def _differing(recipes: Sequence[Mapping[str, Json]]) -> list[str]:
    known = [(texts, recipe) for recipe in recipes if (texts := _texts(recipe))]
    keys = dict.fromkeys(key for texts, _ in known for key in texts)
    return [
        key
        for key in keys
        if len({texts.get(key) for texts, _ in known}) > 1
        and not (
            any(key not in texts for texts, _ in known)
            and all(_is_default(key, texts, recipe) for texts, recipe in known if key in texts)
        )
    ]


def _texts(recipe: Mapping[str, Json]) -> dict[str, str]:
    """Return what a recipe says as text, by key."""
    texts: dict[str, str] = {}
    for key, value in recipe.items():
        if key == "stages" and isinstance(value, list):
            for name, kind, settings in _stages(value):
                own = {one: item for one, item in settings.items() if one != "name"}
                texts |= {f"stages.{name}{_KIND}": kind} if name != kind else {}
                texts |= _flat(own, f"stages.{name}.")
        elif key == "gates" and isinstance(value, Mapping):
            texts |= _flat({key: {name: _gate(gate) for name, gate in value.items()}}, "")
        else:
            texts |= _flat({key: value}, "")
    return texts


def _gate(gate: Json) -> Json:
    """Return a gate without the limit, 0, that one with a ratio does not use."""
    if not isinstance(gate, Mapping) or gate.get("ratio") is None:
        return gate
    return {key: value for key, value in gate.items() if key != "limit"}


def _is_default(key: str, texts: Mapping[str, str], recipe: Mapping[str, Json]) -> bool:
    """Whether a recipe would mean the same without a key of a stage."""
    for name, kind, _ in _stages(recipe.get("stages") or []):
        if key.startswith(prefix := f"stages.{name}."):
            return dict(_flat(_defaults(kind), "")).get(key.removeprefix(prefix)) == texts[key]
    return False


def _stages(entries: list[Json]) -> Iterator[tuple[str, str, Mapping[str, Json]]]:
    """Yield name, kind and settings of every stage; one without a name is called as its kind."""
    seen: dict[str, int] = {}
    for entry in entries:
        for kind, value in (entry if isinstance(entry, Mapping) else {}).items():
            settings = value if isinstance(value, Mapping) else {}
            seen[kind] = seen.get(kind, 0) + 1
            number = f"-{seen[kind]}" if seen[kind] > 1 else ""
            yield str(settings.get("name") or f"{kind}{number}"), str(kind), settings


def _defaults(kind: str) -> JsonObject:
    """Return what a stage's keys mean where they are left out, as plain data."""
    from shrink.stages import find_stage  # only a recipe that changed needs it

    config = find_stage(kind)
    if config is None:
        return {}
    defaults = {}
    for name, field in config.model_fields.items():
        if not field.is_required():
            defaults[field.alias or name] = field.get_default(call_default_factory=True)
    return {key: _plain(value) for key, value in defaults.items()}


def _plain(value: Json) -> Json:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True)
    return list(value) if isinstance(value, tuple) else value


def _flat(value: Mapping[str, Json], prefix: str) -> Iterator[tuple[str, str]]:
    for key, item in value.items():
        name = f"{prefix}{key}"
        if isinstance(item, Mapping):
            yield from _flat(item, f"{name}.")
        elif item is not None:
            is_place = key in _PLACES and isinstance(item, str)
            yield name, PurePath(item).name if is_place else str(item)
