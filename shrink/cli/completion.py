"""Shell completion; imports nothing heavy."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import typer

from shrink.base.cache import REPORT_NAME
from shrink.base.errors import ShrinkError

_MODELS = (".keras", ".h5", ".hdf5", ".tflite")
_RECIPES = (".yaml", ".yml")
_MOST = 200


def recipe_names(incomplete: str) -> list[str]:
    """Return bundled recipes and recipe files that begin so."""
    from shrink.recipe.bundle import bundled_recipes

    names = [one.name for one in bundled_recipes() if one.name.startswith(incomplete)]
    return [*names, *_paths(incomplete, lambda path: path.suffix in _RECIPES)]


def models(incomplete: str) -> list[str]:
    """Return model files and run folders that begin so."""
    return [*_paths(incomplete, lambda path: path.suffix in _MODELS or _is_run(path))]


def run_folders(incomplete: str) -> list[str]:
    """Return run folders that begin so; those in `runs` where nothing is typed yet."""
    return [*_paths(incomplete or "runs/", _is_run)] or [*_paths(incomplete, _is_run)]


def stages(context: typer.Context, incomplete: str) -> list[str]:
    """Return the stages of the recipe that the command line names already."""
    from shrink.recipe.bundle import find_recipe
    from shrink.recipe.load import STDIN, read_raw
    from shrink.recipe.overrides import stage_names

    recipe = context.params.get("recipe")
    with contextlib.suppress(ShrinkError, OSError):
        path = find_recipe(str(recipe))
        if recipe and path != STDIN:
            names = stage_names(read_raw(path).value.get("stages"))
            return [name for name in names if name.startswith(incomplete)]
    return []


def one_of(choices: tuple[str, ...]) -> Callable[[str], list[str]]:
    """Return what completes a value of a few."""

    def matching(incomplete: str) -> list[str]:
        return [choice for choice in choices if choice.startswith(incomplete)]

    return matching


def _is_run(path: Path) -> bool:
    return (path / REPORT_NAME).is_file()


def _paths(incomplete: str, wanted: Callable[[Path], bool]) -> Iterator[str]:
    """Yield the wanted paths that begin so, and folders to go into, each as it was typed."""
    folder, _, begin = incomplete.rpartition("/")
    place = Path(f"{folder}/" if folder or incomplete.startswith("/") else ".").expanduser()
    with contextlib.suppress(OSError):
        for entry in sorted(os.scandir(place), key=lambda one: one.name)[:_MOST]:
            hidden = entry.name.startswith(".") and not begin
            if not entry.name.startswith(begin) or hidden:
                continue
            typed = incomplete[: len(incomplete) - len(begin)] + entry.name
            if wanted(Path(entry.path)):
                yield typed
            elif entry.is_dir():
                yield f"{typed}/"
