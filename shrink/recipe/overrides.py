"""`--set STAGE.KEY=VALUE`: one key of a recipe changed from the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shrink.base.errors import Position, RecipeError, hint_for
from shrink.base.foreign import Json, JsonObject
from shrink.base.yaml import parse_scalar
from shrink.recipe.schema import Recipe

SECTIONS = tuple(Recipe.model_fields)


@dataclass(frozen=True)
class Override:
    """A parsed `--set`: the path of keys, the value, and the text it came from."""

    path: tuple[str, ...]
    value: Json
    text: str
    place: Position | None = None
    """Where a recipe's matrix has the value; None for one of the command line."""

    written: str = ""
    """The value alone, as it was written."""

    @property
    def key(self) -> str:
        """The path as it is written: `prune.sparsity`."""
        return ".".join(self.path)

    @property
    def position(self) -> Position:
        """Where an error in it stands: the flag itself, or its place in a matrix."""
        return self.place or Position(f"--set {self.text}", 0, 0)

    @classmethod
    def parse(cls, text: str) -> Override:
        """Return the override that `STAGE.KEY=VALUE` means.

        Raises:
            RecipeError: it has no `=` or no key.
        """
        keys, separator, value = text.partition("=")
        path = tuple(keys.strip().split("."))
        if not separator or not all(path):
            raise RecipeError(
                "an override is KEY=VALUE",
                position=Position(f"--set {text}", 0, 0),
                hint="for example --set prune.sparsity=0.8 or --set training.seed=1",
            )
        try:
            return cls(path, parse_scalar(value), text, written=value.strip())
        except RecipeError as error:
            position = Position(f"--set {text}", 0, 0)
            raise RecipeError(error.message, position=position, hint=error.hint) from error


def stage_names(stages: Json) -> list[str]:
    """Return the names of a raw recipe's stages: given, or the kind, numbered where it repeats."""
    names: list[str] = []
    for item in stages if isinstance(stages, list) else []:
        kind, settings = next(iter(item.items())) if isinstance(item, dict) and item else (item, {})
        name = settings.get("name") if isinstance(settings, dict) else None
        names.append(str(name) if name else numbered(str(kind), names))
    return names


def numbered(kind: str, taken: list[str]) -> str:
    """Return `kind`, or `kind-2`, `kind-3`, ... where the name is taken."""
    if kind not in taken:
        return kind
    return next(name for n in range(2, len(taken) + 3) if (name := f"{kind}-{n}") not in taken)


def apply_override(
    override: Override,
    value: JsonObject,
    positions: dict[tuple[str | int, ...], Position],
    *more: str,
) -> None:
    """Change one key of a raw recipe, in place.

    Args:
        override: the key, and its value.
        value: the recipe.
        positions: where its values stand.
        more: sections beside those that every command reads.

    Raises:
        RecipeError: the first key names neither a section nor a stage.
    """
    section, *keys = override.path
    folder: tuple[str | int, ...]
    if section in (*SECTIONS, *more) and section != "stages":
        target, folder = value, ()
        keys = [section, *keys]
    else:
        target, folder = _stage_settings(override, value, more)
    if not keys:
        raise RecipeError(
            "this names a stage; name a key of the stage",
            position=override.position,
            hint=f"write --set {section}.KEY=VALUE",
        )
    for key in keys[:-1]:
        inner = target.get(key)
        target[key] = dict(inner) if isinstance(inner, dict) else {}
        target = target[key]
    target[keys[-1]] = override.value
    path = (*folder, *keys)
    for stale in [known for known in positions if known[: len(path)] == path]:
        del positions[stale]
    positions[path] = override.position


def _stage_settings(
    override: Override, value: JsonObject, more: Sequence[str]
) -> tuple[JsonObject, tuple[str | int, ...]]:
    names = stage_names(value.get("stages"))
    name = override.path[0]
    if name == "stages":
        raise RecipeError(
            "a stage's key is set by the stage's name",
            position=override.position,
            hint=f"for example --set {names[0]}.KEY=VALUE" if names else None,
        )
    if name not in names:
        raise RecipeError(
            f"no section or stage is called {name!r}",
            position=override.position,
            hint=hint_for(name, [s for s in (*SECTIONS, *more, *names) if s != "stages"]),
        )
    index = names.index(name)
    value["stages"] = list(value["stages"])
    item = value["stages"][index]
    kind = next(iter(item)) if isinstance(item, dict) else str(item)
    settings = dict(item[kind] or {}) if isinstance(item, dict) else {}
    value["stages"][index] = {kind: settings}
    return settings, ("stages", index, kind)
