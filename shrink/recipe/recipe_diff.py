"""What two recipes say differently, key by key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from shrink.base.foreign import Json, JsonObject
from shrink.contract.report import Report
from shrink.report.content import recipe_of
from shrink.report.diff import RecipeChange

_PLACES = {"model", "path", "teacher", "student", "against"}
"""Keys that hold places; only the last part of a path counts, as in the recipe's hash."""
_MISSING = "-"


def recipe_changes(a: Report, b: Report) -> list[RecipeChange]:
    """Return the keys that the resolved recipes of two reports say differently.

    Stages are matched by name, so that one more at the front does not change all that follow. A
    key that only one of them has is left out where it says no more than the default does.
    There are none where a report has no recipe.
    """
    first, second = _said(recipe_of(a)), _said(recipe_of(b))
    if not first or not second:
        return []
    changes = []
    for key in dict.fromkeys((*first, *second)):
        x, y = first.get(key), second.get(key)
        if x is None or y is None:
            one = x or y
            if one is not None and not one.is_default:
                a_text, b_text = (said.text if said else _MISSING for said in (x, y))
                changes.append(RecipeChange(key=key, a=a_text, b=b_text))
        elif x.text != y.text:
            changes.append(RecipeChange(key=key, a=x.text, b=y.text))
    return changes


def settings_that_differ(reports: Sequence[Report | None]) -> list[dict[str, str]]:
    """Return, for each report, the keys of its resolved recipe that are not the same in all.

    A key that some recipes leave out is left out of all where those that have it say its default.
    Nothing is returned for a report without a recipe.
    """
    recipes = [{} if report is None else recipe_of(report) for report in reports]
    texts = [_texts(recipe) for recipe in recipes]
    known = [one for one in texts if one]
    differing = [
        key
        for key in dict.fromkeys(key for one in known for key in one)
        if len({one.get(key) for one in known}) > 1
    ]
    absent = [key for key in differing if any(key not in one for one in known)]
    if absent:
        said = [_said(recipe) for recipe in recipes]
        idle = {key for key in absent if all(one[key].is_default for one in said if key in one)}
        differing = [key for key in differing if key not in idle]
    return [
        {key.removeprefix("stages."): one[key] for key in differing if key in one} for one in texts
    ]


def _texts(recipe: Mapping[str, Json]) -> dict[str, str]:
    """Return what a recipe says as text, by key, without a look at defaults."""
    texts: dict[str, str] = {}
    for key, value in recipe.items():
        if key == "stages" and isinstance(value, list):
            for name, _, settings in _stages(value):
                own = {one: item for one, item in settings.items() if one != "name"}
                texts |= _flat(own, f"stages.{name}.")
        else:
            texts |= _flat({key: value}, "")
    return texts


@dataclass(frozen=True)
class _Said:
    """What a recipe says under a key, and whether it would mean the same without."""

    text: str
    is_default: bool = False


def _said(recipe: Mapping[str, Json]) -> dict[str, _Said]:
    by_key: dict[str, _Said] = {}
    for key, value in recipe.items():
        if key == "stages" and isinstance(value, list):
            for name, kind, settings in _stages(value):
                if name != kind:
                    by_key[f"stages.{name}.kind"] = _Said(kind)
                by_key |= _stage_said(f"stages.{name}.", kind, settings)
        else:
            by_key |= {name: _Said(text) for name, text in _flat({key: value}, "")}
    return by_key


def _stages(entries: list[Json]) -> Iterator[tuple[str, str, Mapping[str, Json]]]:
    """Yield name, kind and settings of every stage; one without a name is called as its kind."""
    seen: dict[str, int] = {}
    for entry in entries:
        for kind, value in (entry if isinstance(entry, Mapping) else {}).items():
            settings = value if isinstance(value, Mapping) else {}
            seen[kind] = seen.get(kind, 0) + 1
            number = f"-{seen[kind]}" if seen[kind] > 1 else ""
            yield str(settings.get("name") or f"{kind}{number}"), str(kind), settings


def _stage_said(prefix: str, kind: str, settings: Mapping[str, Json]) -> dict[str, _Said]:
    defaults = dict(_flat(_defaults(kind), ""))
    texts = dict(_flat({key: item for key, item in settings.items() if key != "name"}, ""))
    return {f"{prefix}{key}": _Said(text, defaults.get(key) == text) for key, text in texts.items()}


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
