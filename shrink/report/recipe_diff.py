"""What two recipes say differently, key by key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from shrink.report.content import Report
from shrink.report.recipe_text import recipe_of

_PLACES = {"model", "path", "teacher", "student", "against"}
"""Keys that hold places; only the last part of a path counts, as in the recipe's hash."""
_MISSING = "-"


def recipe_changes(a: Report, b: Report) -> list[dict[str, Any]]:
    """Return the keys that the resolved recipes of two reports say differently.

    Stages are matched by name, so that one more at the front does not change all that follow.

    Returns:
        For each: `key` (`stages.prune.ratio`), and what stands in `a` and in `b`, as text; `-`
        where it does not. Empty where a report has no recipe.
    """
    first, second = dict(_flat(recipe_of(a), "")), dict(_flat(recipe_of(b), ""))
    if not first or not second:
        return []
    keys = dict.fromkeys((*first, *second))
    pairs = [(key, first.get(key, _MISSING), second.get(key, _MISSING)) for key in keys]
    return [{"key": key, "a": x, "b": y} for key, x, y in pairs if x != y]


def change_lines(changes: list[dict[str, Any]]) -> list[str]:
    """Return the changes for people, one line each."""
    return [f"{one['key']}: {one['a']} in A, {one['b']} in B" for one in changes]


def _flat(value: Any, prefix: str) -> Iterator[tuple[str, str]]:
    for key, item in _items(value):
        name = f"{prefix}{key}"
        if isinstance(item, Mapping) or (isinstance(item, list) and _is_stages(item)):
            yield from _flat(item, f"{name}.")
        elif item is not None:
            is_place = key in _PLACES and isinstance(item, str)
            yield name, PurePath(item).name if is_place else str(item)


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((str(key), item) for key, item in value.items())
        return
    seen: dict[str, int] = {}
    for entry in value:
        for kind, settings in entry.items():
            own = settings.get("name") if isinstance(settings, Mapping) else None
            seen[kind] = seen.get(kind, 0) + 1
            number = f"-{seen[kind]}" if seen[kind] > 1 else ""
            yield str(own or f"{kind}{number}"), settings or {}


def _is_stages(value: list[Any]) -> bool:
    return bool(value) and all(isinstance(entry, Mapping) for entry in value)
