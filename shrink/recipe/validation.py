"""Pydantic's complaints in plain words, each with its place in the recipe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from shrink.base.errors import Position, RecipeError
from shrink.base.fields import IDLE
from shrink.base.suggest import did_you_mean, hint_for

Locate = Callable[[tuple[str | int, ...]], Position]


def errors_of(
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
        if any(path[: len(known)] == known and known != path for known in by_path):
            continue
        message, hint = _describe(detail, path, model, extra_keys)
        position = locate((*prefix, *path))
        known = by_path.get(path)
        if known is None:
            by_path[path] = RecipeError(message, position=position, hint=hint)
        elif message not in known.message:
            # A union complains once per member; together they say what is possible.
            known.message = f"{known.message}; or {message.partition(': ')[2] or message}"
    return list(by_path.values())


def _recipe_path(detail: ErrorDetails, model: type[BaseModel]) -> tuple[str | int, ...]:
    """Drop the parts of pydantic's location that name union members, not keys."""
    kept: list[str | int] = []
    section: Any = model
    for index, part in enumerate(detail["loc"]):
        is_last = index == len(detail["loc"]) - 1
        if isinstance(part, int) or (is_last and detail["type"] == "extra_forbidden"):
            kept.append(part)
        elif part in _keys(section):
            kept.append(part)
            section = _section(section, part)
    if detail["type"] == IDLE:
        kept.append(detail["ctx"]["key"])
    return tuple(kept)


def _describe(
    detail: ErrorDetails,
    path: tuple[str | int, ...],
    model: type[BaseModel],
    extra_keys: Sequence[str],
) -> tuple[str, str | None]:
    key = str(path[-1]) if path else model.__name__
    if detail["type"] == "extra_forbidden":
        section: Any = model
        for part in path[:-1]:
            section = _section(section, str(part))
        return f"unknown key {key!r}", hint_for(key, [*_keys(section), *extra_keys])
    if detail["type"] == IDLE:
        return f"{key} does nothing", f"it needs {detail['ctx']['needs']}; else leave {key} out"
    if detail["type"] == "missing":
        return f"the key {key!r} is missing", None
    text = detail["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    given = detail.get("input")
    shown = f", not {given!r}" if isinstance(given, str | int | float | bool) else ""
    if detail["msg"].startswith("Value error"):
        return f"{key}: {text}" if path else text, None
    if detail["type"] == "literal_error" and isinstance(given, str):
        options = [o.strip(" '") for o in text.replace(" or ", ", ").split(",")]
        near = _meant_by(model, path, given) or did_you_mean(given, options)
        # The message lists them all already.
        return f"{key}: must be {text}{shown}", f"did you mean {near}?" if near else None
    return f"{key}: must be {text}{shown}", None


def _meant_by(model: type[BaseModel], path: tuple[str | int, ...], given: str) -> str | None:
    """Return what a section knows to be meant by another word for one of its values."""
    section: Any = model
    for part in path[:-1]:
        section = _section(section, str(part))
    known = getattr(section, "meant_by", {}).get(path[-1] if path else None, {})
    found: str | None = known.get(given.casefold().replace("-", "_"))
    return found


def _keys(section: Any) -> list[str]:
    fields = getattr(section, "model_fields", {})
    return [field.alias or name for name, field in fields.items()]


def _section(section: Any, key: str) -> Any:
    """Return the model class that a key of `section` holds, or None."""
    for name, field in getattr(section, "model_fields", {}).items():
        if key == (field.alias or name):
            candidates = [field.annotation, *getattr(field.annotation, "__args__", ())]
            return next((c for c in candidates if hasattr(c, "model_fields")), None)
    return None
