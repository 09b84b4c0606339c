"""`shrink.search`: finds the recipe for a device's limits, as the command line does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from shrink.api.given import (
    COMMON,
    check_keywords,
    count_of,
    data_named,
    given_settings,
    model_text,
    path_of,
    plain,
    recipe_with_files,
)
from shrink.api.results import SearchResult
from shrink.api.session import console_of, working
from shrink.base.fields import named_fields
from shrink.recipe.load import RawRecipe
from shrink.recipe.overrides import Override
from shrink.recipe.search_config import NOT_FLAGS, SearchConfig
from shrink.run.options import RunOptions
from shrink.search.candidates import Candidates, search_overrides
from shrink.search.output import headline_of, search_warnings
from shrink.search.session import Search

if TYPE_CHECKING:
    from shrink.api.kinds import DataGiven, ModelGiven


def search(
    model: ModelGiven | Mapping[str, object],
    data: DataGiven = None,
    **keys: object,
) -> SearchResult:
    """Find the recipe for a device: the smallest file, or the most accurate, within limits.

    Args:
        model: a model, as `train` takes it; or a recipe, as `run` takes it, whose baseline, data
            and training are taken.
        data: of the model, as `train` takes it; a recipe names its own.
        keys: `flash` and `ram`, sizes such as "64KB"; `latency` such as "5ms"; `max_drop`, such as
            0.01; `time` such as "30m", or `trials`; and what else the flags of `shrink search` are.

    Raises:
        ShrinkError: the search could not begin, or no trial keeps the limits; search.json in its
            folder then says what came nearest. A missed gate of the best trial does not raise: see
            `SearchResult.run`.
    """
    with working():
        candidates = _candidates(model, data, keys)
        folder = path_of(keys.get("output")) or candidates.folder
        trusts, force = bool(keys.get("trust_model")), bool(keys.get("force"))
        options = RunOptions(output=folder, force=force, trust_model=trusts)
        console = console_of(keys)
        made = Search(candidates, options, console)
        made.jobs = count_of(keys.get("jobs"))
        searched = made.find()
        if made.stop is not None:
            made.stop.folder = made.folder
            raise made.stop
        for line in search_warnings(searched):
            console.warn(line)
        for line in headline_of(searched):
            console.say(line)
        return SearchResult(searched, made.folder, made.exit_code)


def _candidates(
    model: ModelGiven | Mapping[str, object], data: DataGiven, given: Mapping[str, object]
) -> Candidates:
    names = {name: keys for name, keys, _ in named_fields(SearchConfig, NOT_FLAGS)}
    check_keywords("search", given, [*names, *COMMON, "jobs", "set"])
    changes = given_settings(given)
    overrides = [Override.parse(f"{k}={json.dumps(plain(one))}") for k, one in changes.items()]
    values = {keys: plain(given[name]) for name, keys in names.items() if name in given}
    overrides += search_overrides(values, lambda name, value: f"{name}={value!r}")
    code = path_of(given.get("custom_objects"), "custom_objects")
    recipe = RawRecipe(recipe_with_files(model), {}) if isinstance(model, Mapping) else None
    return Candidates.of(recipe or model_text(model), overrides, data_named(data), code)
