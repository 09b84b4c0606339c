"""`shrink search`: finds the recipe for a device's limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from shrink.cli.options import (
    CustomObjectsOption,
    ForceFlag,
    JobsOption,
    JsonFlag,
    OutputOption,
    QuietFlag,
    SetOption,
    TrustFlag,
    VerboseFlag,
    epilog,
)
from shrink.cli.verbs import DataOption

if TYPE_CHECKING:
    from shrink.base.foreign import JsonObject
    from shrink.recipe.load import RawRecipe
    from shrink.recipe.search_config import SearchConfig
    from shrink.search.default_space import Known
    from shrink.search.session import Asking
    from shrink.search.space import Space

T = TypeVar("T")


def _limit(flag: str, metavar: str, text: str) -> object:
    return typer.Option(flag, metavar=metavar, help=text, show_default=False)


FlashOption = Annotated[
    str | None, _limit("--flash", "SIZE", "The most that the .tflite file may take: 64KB.")
]
RamOption = Annotated[
    str | None, _limit("--ram", "SIZE", "The most that the arena in TFLite Micro may take: 40KB.")
]
LatencyOption = Annotated[
    str | None,
    _limit(
        "--latency",
        "MS",
        "The most that an inference may take on this host, or as the recipe's latency.command "
        "measures it: 5ms.",
    ),
]
MaxDropOption = Annotated[
    float | None,
    _limit(
        "--max-drop",
        "N",
        "What the main metric may lose against the baseline: 0.01 is a point. The smallest file "
        "within it is the best; without it, the most accurate within the limits.",
    ),
]
TimeOption = Annotated[
    str | None, _limit("--time", "TIME", "Time for everything, the last measurement too: 30m.")
]
TrialsOption = Annotated[
    int | None,
    typer.Option("--trials", metavar="N", min=1, help="Points trained.", show_default=False),
]
StorageOption = Annotated[
    str | None,
    _limit(
        "--storage",
        "PLACE",
        "What several workers share: a file on a shared disk, or the URL of a database. Start the "
        "same command on each.",
    ),
]
SamplerOption = Annotated[
    str | None, _limit("--sampler", "tpe|nsga2|random", "How points are chosen.")
]
SeedOption = Annotated[
    int | None,
    typer.Option("--seed", metavar="N", min=0, help="Of the sampler.", show_default=False),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("search", epilog=epilog("search"))(search)


@dataclass(frozen=True)
class _Flags:
    """The flags that say what is looked for."""

    flash: str | None
    ram: str | None
    latency: str | None
    max_drop: float | None
    time: str | None
    trials: int | None
    storage: str | None
    sampler: str | None
    seed: int | None


def search(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL|RECIPE",
            help="A model with --data, or a recipe, whose baseline, data and training are taken.",
        ),
    ],
    *,
    data: DataOption = None,
    flash: FlashOption = None,
    ram: RamOption = None,
    latency: LatencyOption = None,
    max_drop: MaxDropOption = None,
    time: TimeOption = None,
    trials: TrialsOption = None,
    jobs: JobsOption = 1,
    storage: StorageOption = None,
    sampler: SamplerOption = None,
    seed: SeedOption = None,
    set_: SetOption = None,
    output: OutputOption = None,
    force: ForceFlag = False,
    trust_model: TrustFlag = False,
    custom_objects: CustomObjectsOption = None,
    json_: JsonFlag = False,
    quiet: QuietFlag = False,
    verbose: VerboseFlag = False,
) -> None:
    """Find the recipe for a device: the smallest file, or the most accurate, within limits."""
    from shrink.base.console import Console
    from shrink.run.options import RunOptions
    from shrink.run.process import preload
    from shrink.search.candidates import Candidates
    from shrink.search.session import Search

    preload()
    console = Console(as_json=json_, quiet=quiet, verbose=verbose)
    flags = _Flags(flash, ram, latency, max_drop, time, trials, storage, sampler, seed)
    if _is_recipe(model):
        raw, source, config = _of_recipe(model, data, custom_objects, set_ or ())
    else:
        raw, source, config = _of_model(model, data, custom_objects, set_ or ())
    asking = _asking(flags, config)
    space = _space(raw, config, asking)
    name = str(raw.value.get("name", "search"))
    folder = output or Path("runs") / (name if name.startswith("search-") else f"{name}-search")
    options = RunOptions(output=folder, force=force, trust_model=trust_model)
    found = Search(Candidates(raw, source, space), asking, options, console)
    found.jobs = jobs
    raise typer.Exit(found.run())


def _is_recipe(name: str) -> bool:
    from shrink.recipe.bundle import bundled_recipes

    path = Path(name)
    if path.suffix in (".yaml", ".yml") or name == "-":
        return True
    return not path.exists() and name in {one.name for one in bundled_recipes()}


def _of_recipe(
    name: str, data: str | None, custom_objects: Path | None, texts: Sequence[str]
) -> tuple[RawRecipe, Path, SearchConfig]:
    """Return a recipe as it was read, where from, and its `search` section."""
    from shrink.base.errors import RecipeError
    from shrink.recipe.bundle import find_recipe
    from shrink.recipe.load import SEARCH, SWEEPING, read_raw, validated
    from shrink.recipe.overrides import Override, apply_override
    from shrink.recipe.search_config import SearchConfig

    for flag, value in (("--data", data), ("--custom-objects", custom_objects)):
        if value is not None:
            raise RecipeError(
                "a recipe names its own",
                subject=flag,
                hint="leave it out, or change it by --set",
            )
    path = find_recipe(name)
    raw = read_raw(path)
    for key in SWEEPING:
        raw.value.pop(key, None)
    for text in texts:
        apply_override(Override.parse(text), raw.value, raw.positions)
    loaded = validated(raw, path)
    raw.value.pop(SEARCH, None)
    return raw, path, loaded.search or SearchConfig()


def _of_model(
    model: str, data: str | None, custom_objects: Path | None, texts: Sequence[str]
) -> tuple[RawRecipe, Path, SearchConfig]:
    """Return the recipe that a model with its data stands for."""
    from shrink.base.errors import ModelError
    from shrink.model.reference import parse_model_reference
    from shrink.recipe.load import RawRecipe, validated
    from shrink.recipe.overrides import Override, apply_override
    from shrink.recipe.search_config import SearchConfig
    from shrink.recipe.single import Sections, single_recipe
    from shrink.run.lineage import named_code

    reference = parse_model_reference(model, Path.cwd())
    if reference.form != "keras":
        raise ModelError(
            "a search starts from a Keras model, which it can make smaller",
            subject=reference.path,
            hint="name the .keras or .h5 file that this one was made from",
        )
    train = [] if reference.trained else [{"train": {"epochs": 20}}]
    code = None if custom_objects is None else custom_objects.resolve()
    stages: list[JsonObject] = [*train, {"quantize": {}}]
    value = single_recipe("search", model, data, stages, Sections(), Path.cwd(), code, named_code)
    raw, source = RawRecipe(value, {}, {}), Path("shrink search")
    for text in texts:
        apply_override(Override.parse(text), raw.value, raw.positions)
    validated(raw, source)
    return raw, source, SearchConfig()


def _asking(flags: _Flags, config: SearchConfig) -> Asking:
    """Return what is asked for: what the flags say, else the recipe's `search`."""
    from shrink.base.errors import RecipeError
    from shrink.base.fields import parse_bytes
    from shrink.recipe.search_config import SAMPLERS, parse_milliseconds, parse_seconds
    from shrink.search.goal import ARENA, LATENCY, MAX_DROP, SIZE
    from shrink.search.session import Asking

    known = config.constraints.model_dump(exclude_none=True)
    max_drop = known.pop(MAX_DROP, None)
    limits = {name: float(limit) for name, limit in known.items()}
    for name, flag, text, parse in (
        (SIZE, "--flash", flags.flash, parse_bytes),
        (ARENA, "--ram", flags.ram, parse_bytes),
        (LATENCY, "--latency", flags.latency, parse_milliseconds),
    ):
        if text is not None:
            limits[name] = float(_read(flag, text, parse))
    if flags.max_drop is not None and not flags.max_drop >= 0:
        raise RecipeError("it is at least 0, such as 0.01", subject="--max-drop")
    if flags.sampler is not None and flags.sampler not in SAMPLERS:
        raise RecipeError(f"must be one of {', '.join(SAMPLERS)}", subject="--sampler")
    time_s = config.time if flags.time is None else _read("--time", flags.time, parse_seconds)
    trials = flags.trials or config.trials
    if time_s is None and trials is None:
        raise RecipeError(
            "nothing says when the search ends",
            subject="--time",
            hint="give --time 30m or --trials 20",
        )
    return Asking(
        limits=limits,
        max_drop=max_drop if flags.max_drop is None else flags.max_drop,
        objectives=config.objectives,
        trials=trials,
        time_s=time_s,
        sampler=flags.sampler or config.sampler,
        seed=config.seed if flags.seed is None else flags.seed,
        command=None if config.latency is None else config.latency.command,
        storage=flags.storage,
    )


def _read(flag: str, text: str, parse: Callable[[object], T]) -> T:
    from shrink.base.errors import RecipeError

    try:
        return parse(int(text) if text.isdecimal() else text)
    except ValueError as error:
        raise RecipeError(str(error), subject=flag) from error


def _space(raw: RawRecipe, config: SearchConfig, asking: Asking) -> Space:
    """Return what the recipe says is to be varied, or what is built from its model."""
    from shrink.search.default_space import default_space, given_space

    if config.space:
        return given_space(config.space, raw)
    return default_space(_known(raw), asking.goal(""))


def _known(raw: RawRecipe) -> Known:
    from shrink.model.reference import parse_model_reference
    from shrink.search.default_space import Known

    position = raw.position("model")
    folder = Path(position.file).parent if position.line else Path.cwd()
    reference = parse_model_reference(str(raw.value["model"]), folder)
    stages = [one if isinstance(one, dict) else {one: {}} for one in raw.value["stages"]]
    return Known(stages, builds=not reference.trained)
