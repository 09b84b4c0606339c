"""`shrink.search`: finds the recipe for a device's limits, as the command line does."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from shrink.api.given import data_named, model_text, path_of, plain, recipe_with_files
from shrink.api.results import SearchResult
from shrink.api.session import console_of, working
from shrink.base.errors import RecipeError
from shrink.recipe.load import RawRecipe
from shrink.run.options import RunOptions
from shrink.search.asking import (
    SearchedRecipe,
    Wanted,
    asking_of,
    is_recipe,
    recipe_named,
    recipe_of_model,
    recipe_read,
)
from shrink.search.candidates import Candidates
from shrink.search.output import told_of
from shrink.search.session import Search

if TYPE_CHECKING:
    from typing import Unpack

    from shrink.api.how_keys import SearchKeys
    from shrink.api.kinds import DataGiven, ModelGiven


def search(
    model: ModelGiven | Mapping[str, object],
    data: DataGiven = None,
    **keys: Unpack[SearchKeys],
) -> SearchResult:
    """Find the recipe for a device: the smallest file, or the most accurate, within limits.

    Args:
        model: a model, as `train` takes it; or a recipe, as `run` takes it, whose baseline, data
            and training are taken.
        data: of the model, as `train` takes it; a recipe names its own.
        keys: `flash` and `ram`, sizes such as "64KB"; `latency` such as "5ms"; `max_drop`, such as
            0.01; `time` such as "30m", or `trials`; `jobs`, `storage`, `sampler`, `seed`, `set`;
            and `output`, `force`, `trust_model`, `custom_objects`, `quiet` and `verbose` as the
            command line has them.

    Raises:
        ShrinkError: the search could not begin, or no point keeps to the limits; search.json in its
            folder then says what came nearest. A missed gate of the best point is none: see
            `SearchResult.run`.
    """
    with working():
        recipe = _recipe(model, data, keys)
        asking = asking_of(_wanted(keys), recipe.config)
        candidates = Candidates(recipe.raw, recipe.source, recipe.space(asking))
        folder = path_of(keys.get("output")) or recipe.folder()
        trusts = bool(keys.get("trust_model"))
        options = RunOptions(output=folder, force=bool(keys.get("force")), trust_model=trusts)
        console = console_of(bool(keys.get("quiet")), bool(keys.get("verbose")))
        mine = Search(candidates, asking, options, console)
        mine.jobs = int(keys.get("jobs") or 1)
        searched = mine.find()
        if mine.stop is not None:
            mine.stop.folder = folder
            raise mine.stop
        for line in told_of(searched):
            console.say(line)
        return SearchResult(searched, folder, mine.exit_code)


def _recipe(
    model: ModelGiven | Mapping[str, object], data: DataGiven, keys: SearchKeys
) -> SearchedRecipe:
    settings = [f"{k}={json.dumps(plain(one))}" for k, one in (keys.get("set") or {}).items()]
    custom_objects = path_of(keys.get("custom_objects"), "custom_objects")
    named = isinstance(model, str | os.PathLike) and is_recipe(os.fspath(model))
    if not named and not isinstance(model, Mapping):
        code = custom_objects
        return recipe_of_model(model_text(model), data_named(data), code, settings)
    for key, value in (("data", data), ("custom_objects", custom_objects)):
        if value is not None:
            raise RecipeError(
                "a recipe names its own", subject=key, hint="leave it out, or change it by `set`"
            )
    if isinstance(model, Mapping):
        return recipe_read(RawRecipe(recipe_with_files(model), {}, {}), Path("recipe"), settings)
    return recipe_named(model_text(model), settings)


def _wanted(keys: SearchKeys) -> Wanted:
    return Wanted(
        flash=keys.get("flash"),
        ram=keys.get("ram"),
        latency=keys.get("latency"),
        max_drop=keys.get("max_drop"),
        time=keys.get("time"),
        trials=keys.get("trials"),
        storage=keys.get("storage"),
        sampler=keys.get("sampler"),
        seed=keys.get("seed"),
    )
