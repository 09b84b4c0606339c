"""`run`, `sweep`, `compare` and `profile` in Python."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from shrink.api.given import (
    RUNNING,
    TOOL,
    check_keywords,
    count_of,
    given_settings,
    model_text,
    path_of,
    plain,
    recipe_with_files,
)
from shrink.api.results import Comparison, Run
from shrink.api.session import called, console_of, working
from shrink.api.verbs import options_of, run_of
from shrink.base.console import Console
from shrink.base.errors import RecipeError
from shrink.contract.findings import Profile
from shrink.recipe.bundle import find_recipe
from shrink.recipe.compare_files import compare_folders
from shrink.recipe.load import RawRecipe, read_raw
from shrink.recipe.matrix import Variants, variants_of
from shrink.recipe.plan import build_plan
from shrink.run.sweep import Sweep, plan_sweep
from shrink.run.verb import profile_model

if TYPE_CHECKING:
    from shrink.api.kinds import ModelGiven, PathGiven


def run(recipe: PathGiven | Mapping[str, object], **keys: object) -> Run:
    """Run a recipe: every stage, its report, its gates.

    Args:
        recipe: a file, the name of a bundled recipe, or the recipe itself as a mapping, whose
            model, data, teacher and student may be in memory; its paths start from the current
            folder.
        keys: `set`, a mapping such as `{"prune.sparsity": 0.7}`; `from_stage` and `until`, names of
            stages; and `output`, `force`, `no_cache`, `trust_model`, `quiet` and `verbose` as the
            command line has them.

    Raises:
        ShrinkError: `exit_code` says what kind it is. A missed gate is none: see `Run.passed`.
    """
    with working():
        check_keywords("run", keys, (*RUNNING, "set", "from_stage", "until"))
        settings = {key: _one(value) for key, value in given_settings(keys).items()}
        variants = _variants(recipe, settings)
        if variants.is_sweep:
            raise RecipeError(
                f"this is a sweep of {len(variants.each)} runs", hint="call shrink.sweep"
            )
        plan = build_plan(variants.each[0].loaded)
        console = console_of(keys)
        return run_of(plan, options_of(plan, keys), console)


def sweep(recipe: PathGiven | Mapping[str, object], **keys: object) -> Comparison:
    """Run every combination of a recipe's settings and compare them.

    Args:
        recipe: as `run` takes it.
        keys: `set`, a mapping of which each value may be a list, a run for every combination:
            `{"prune.sparsity": [0.3, 0.5]}`; `jobs`, how many runs go at a time; the others are
            those of `run`.

    Raises:
        ShrinkError: the sweep could not begin, or was ended. Runs that fail are rows.
    """
    with working():
        check_keywords("sweep", keys, (*RUNNING, "set", "jobs"))
        settings = {
            key: ",".join(map(_one, value if isinstance(value, list | tuple) else [value]))
            for key, value in given_settings(keys).items()
        }
        variants = _variants(recipe, settings)
        if not variants.is_sweep:
            raise RecipeError("this is one run, not a sweep", hint="call shrink.run")
        console = console_of(keys)
        plan = build_plan(variants.each[0].loaded)
        options = options_of(plan, keys)
        planned = plan_sweep(variants, options.output)
        mine = Sweep(planned, options, variants.repeat, console)
        mine.jobs = min(count_of(keys.get("jobs")), len(planned))
        result = mine.run()
        for warning in result.comparison.warnings:
            console.warn(warning)
        if result.error is not None:
            raise result.error
        return Comparison(result.comparison, options.output, result.exit_code)


def _variants(recipe: PathGiven | Mapping[str, object], settings: Mapping[str, str]) -> Variants:
    """Return what is to be run of a recipe; settings are written as `--set` takes them."""
    texts = [f"{key}={value}" for key, value in settings.items()]
    if isinstance(recipe, Mapping):
        raw = RawRecipe(recipe_with_files(recipe), {})
        return variants_of(raw, Path("recipe"), texts)
    path = find_recipe(os.fspath(recipe))
    return variants_of(read_raw(path), path, texts)


def _one(value: object) -> str:
    """Return a value as `--set` takes it."""
    return json.dumps(plain(value))


def compare(*runs: Run | Comparison | PathGiven, output: PathGiven | None = None) -> Comparison:
    """Compare runs and sweeps: a table, Pareto fronts, settings that differ.

    Args:
        runs: what calls returned, or run folders, `report.json` files and folders of sweeps.
        output: a folder for compare.html, compare.md and compare.json.

    Raises:
        ShrinkError: a folder that is missing, or is neither a run nor a sweep.
    """
    with called():
        folder, console = path_of(output), Console()
        found = compare_folders([_folder(one) for one in runs], folder)
        for warning in found.warnings:
            console.warn(warning)
        return Comparison(found, folder)


def _folder(run: Run | Comparison | PathGiven) -> Path:
    if isinstance(run, Run):
        return run.folder
    if isinstance(run, Comparison):
        if run.folder is None:
            raise RecipeError("a comparison without a folder holds no runs", subject="compare")
        return run.folder
    return Path(run)


def load_run(folder: PathGiven) -> Run:
    """Return the run that a folder holds, of this version or an earlier one.

    Raises:
        InputError: there is no report that can be read.
    """
    with called():
        return Run.load(folder)


def profile(model: ModelGiven, batch_size: int, **keys: object) -> Profile:
    """Measure the memory of a training step, on random inputs with Adam.

    Args:
        model: as `train` takes it.
        batch_size: examples per step.
        keys: `memory_limit` per device, such as "2GB"; `trace`, a folder for TensorBoard;
            `trust_model`, `custom_objects` and `quiet` as the command line has them.

    Raises:
        ShrinkError: the model cannot be used, or memory gives out.
    """
    with called():
        check_keywords("profile", keys, TOOL)
        return profile_model(
            model_text(model),
            batch_size,
            keys.get("memory_limit"),
            path_of(keys.get("trace"), "trace"),
            path_of(keys.get("custom_objects"), "custom_objects"),
            bool(keys.get("trust_model")),
            console_of(keys),
        )
