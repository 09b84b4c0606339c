"""What a search is asked for: by flags or keywords, else by the `search` section of a recipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from shrink.base.errors import ModelError, RecipeError
from shrink.base.fields import parse_bytes
from shrink.base.foreign import JsonObject
from shrink.model.reference import parse_model_reference
from shrink.recipe.bundle import bundled_recipes, find_recipe
from shrink.recipe.data_reference import NamedData
from shrink.recipe.load import SEARCH, SWEEPING, RawRecipe, read_raw, validated
from shrink.recipe.overrides import Override, apply_override
from shrink.recipe.search_config import (
    SAMPLERS,
    SearchConfig,
    parse_milliseconds,
    parse_seconds,
)
from shrink.recipe.single import Sections, single_recipe
from shrink.run.lineage import named_code
from shrink.search.default_space import Known, default_space, given_space
from shrink.search.goal import ARENA, LATENCY, MAX_DROP, SIZE, Goal
from shrink.search.space import Space

T = TypeVar("T")
_EPOCHS = 20
"""Of a baseline that is a builder, where no recipe says."""


@dataclass(frozen=True)
class Asking:
    """What a search is asked for.

    Attributes:
        limits: by figure.
        max_drop: of the main metric.
        objectives: figures; none for what the limits suggest.
        trials, time_s: when to end; None for no limit.
        sampler, seed: how points are chosen.
        command: that measures latency.
        storage: a file or URL that workers share; None for a file in the folder.
        rungs: shares of the epochs that points are trained for first; None for what pays.
        warm_starts: whether points go on from the nearest that was trained.
    """

    limits: Mapping[str, float] = field(default_factory=dict)
    max_drop: float | None = None
    objectives: tuple[str, ...] = ()
    trials: int | None = None
    time_s: float | None = None
    sampler: str | None = None
    seed: int = 0
    command: str | None = None
    storage: str | None = None
    rungs: tuple[float, ...] | None = None
    warm_starts: bool = False

    def goal(self, metric: str) -> Goal:
        """Return what is looked for."""
        traded = len(self.objectives) > 1
        return Goal(metric, self.limits, self.max_drop, self.objectives, traded)


@dataclass(frozen=True)
class Wanted:
    """What the flags of `shrink search`, or the keywords in Python, say; None for nothing.

    Attributes:
        flash, ram: the most bytes of the file, and of the arena, such as `64KB`.
        latency: the most milliseconds of an inference, such as `5ms`.
        max_drop: what the main metric may lose.
        time: for everything, such as `30m` or seconds.
        trials: that are trained.
        storage: what workers share.
        sampler, seed: how points are chosen.
    """

    flash: str | int | None = None
    ram: str | int | None = None
    latency: str | float | None = None
    max_drop: float | None = None
    time: str | float | None = None
    trials: int | None = None
    storage: str | None = None
    sampler: str | None = None
    seed: int | None = None


@dataclass(frozen=True)
class SearchedRecipe:
    """What is searched: a recipe as it was read, where from, and its `search` section."""

    raw: RawRecipe
    source: Path
    config: SearchConfig

    def space(self, asking: Asking) -> Space:
        """Return what the recipe says is to be varied, or what is built from its model."""
        if self.config.space:
            return given_space(self.config.space, self.raw)
        return default_space(_known(self.raw), asking.goal(""))

    def folder(self) -> Path:
        """Return where the search leaves what it finds, unless it is told."""
        name = str(self.raw.value.get("name", "search"))
        return Path("runs") / (name if name.startswith("search-") else f"{name}-search")


def is_recipe(name: str) -> bool:
    """Whether a word names a recipe, and not a model."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml") or name == "-":
        return True
    return not path.exists() and name in {one.name for one in bundled_recipes()}


def recipe_named(name: str, settings: Sequence[str]) -> SearchedRecipe:
    """Return what a recipe's file, or a bundled recipe, asks for.

    Args:
        name: of the file, or the recipe.
        settings: as `--set` takes them.

    Raises:
        RecipeError: there is none, or it is wrong.
    """
    path = find_recipe(name)
    return recipe_read(read_raw(path), path, settings)


def recipe_read(raw: RawRecipe, source: Path, settings: Sequence[str]) -> SearchedRecipe:
    """Return what a recipe that has been read asks for; see `recipe_named`."""
    for key in SWEEPING:
        raw.value.pop(key, None)
    for text in settings:
        apply_override(Override.parse(text), raw.value, raw.positions, SEARCH)
    loaded = validated(raw, source)
    raw.value.pop(SEARCH, None)
    return SearchedRecipe(raw, source, loaded.search or SearchConfig())


def recipe_of_model(
    model: str,
    data: str | NamedData | None,
    custom_objects: Path | None,
    settings: Sequence[str],
) -> SearchedRecipe:
    """Return the recipe that a model with its data stands for.

    Args:
        model, data: as the command line names them.
        custom_objects: the Python file whose objects the model names.
        settings: as `--set` takes them.

    Raises:
        ModelError: no Keras model.
        RecipeError: a setting is wrong.
    """
    reference = parse_model_reference(model, Path.cwd())
    if reference.form != "keras":
        raise ModelError(
            "a search starts from a Keras model, which it can make smaller",
            subject=reference.path,
            hint="name the .keras or .h5 file that this one was made from",
        )
    train = [] if reference.trained else [{"train": {"epochs": _EPOCHS}}]
    code = None if custom_objects is None else custom_objects.resolve()
    stages: list[JsonObject] = [*train, {"quantize": {}}]
    value = single_recipe("search", model, data, stages, Sections(), Path.cwd(), code, named_code)
    return recipe_read(RawRecipe(value, {}, {}), Path("shrink search"), settings)


def asking_of(wanted: Wanted, config: SearchConfig) -> Asking:
    """Return what is asked for: what the caller says, else the recipe's `search`.

    Raises:
        RecipeError: a value is wrong, or nothing says when the search ends.
    """
    known = config.constraints.model_dump(exclude_none=True)
    max_drop = known.pop(MAX_DROP, None)
    limits = {name: float(limit) for name, limit in known.items()}
    if wanted.flash is not None:
        limits[SIZE] = float(_read("--flash", wanted.flash, parse_bytes))
    if wanted.ram is not None:
        limits[ARENA] = float(_read("--ram", wanted.ram, parse_bytes))
    if wanted.latency is not None:
        limits[LATENCY] = _read("--latency", wanted.latency, parse_milliseconds)
    if wanted.max_drop is not None and not wanted.max_drop >= 0:
        raise RecipeError("it is at least 0, such as 0.01", subject="--max-drop")
    if wanted.sampler is not None and wanted.sampler not in SAMPLERS:
        raise RecipeError(f"must be one of {', '.join(SAMPLERS)}", subject="--sampler")
    time_s = config.time if wanted.time is None else _read("--time", wanted.time, parse_seconds)
    trials = config.trials if wanted.trials is None else wanted.trials
    if trials is not None and trials < 1:
        raise RecipeError("it is at least 1", subject="--trials")
    if time_s is None and trials is None:
        raise RecipeError(
            "nothing says when the search ends",
            subject="--time",
            hint="give --time 30m or --trials 20",
        )
    command = None if config.latency is None else config.latency.command
    if command is not None and LATENCY not in limits and LATENCY not in config.objectives:
        raise RecipeError(
            "nothing asks for what it measures",
            subject="search.latency.command",
            hint=f"give --latency 5ms, or {LATENCY} among search.objectives",
        )
    return Asking(
        limits=limits,
        max_drop=max_drop if wanted.max_drop is None else wanted.max_drop,
        objectives=config.objectives,
        trials=trials,
        time_s=time_s,
        sampler=wanted.sampler or config.sampler,
        seed=config.seed if wanted.seed is None else wanted.seed,
        command=command,
        storage=wanted.storage or config.storage,
        warm_starts=config.warm_starts,
        rungs=None if config.rungs == "auto" else tuple(sorted(config.rungs)),
    )


def _read(flag: str, value: str | float, parse: Callable[[object], T]) -> T:
    number = isinstance(value, str) and value.isdecimal()
    try:
        return parse(int(value) if number else value)
    except ValueError as error:
        raise RecipeError(str(error), subject=flag) from error


def _known(raw: RawRecipe) -> Known:
    position = raw.position("model")
    folder = Path(position.file).parent if position.line else Path.cwd()
    reference = parse_model_reference(str(raw.value["model"]), folder)
    stages = [one if isinstance(one, dict) else {one: {}} for one in raw.value["stages"]]
    return Known(stages, builds=not reference.trained)
