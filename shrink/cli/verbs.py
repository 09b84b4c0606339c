"""`shrink run`, and the single-stage verbs: each builds a recipe of one stage and runs it alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from shrink.base.foreign import JsonObject
from shrink.cli.options import (
    CustomObjectsOption,
    ForceFlag,
    JsonFlag,
    MlflowOption,
    NoCacheFlag,
    OutputOption,
    QuietFlag,
    RecipeArgument,
    SetOption,
    TensorboardOption,
    TrustFlag,
    VerboseFlag,
    epilog,
)

if TYPE_CHECKING:
    from shrink.recipe.single import Sections


ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A .keras or .h5 file, a SavedModel, a run folder, or file.py:function; quantize and "
        "evaluate take a .tflite file too.",
    ),
]
AnyModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A .keras, .h5 or .tflite file, a SavedModel, a run folder, or file.py:function.",
    ),
]
DataOption = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="D",
        help="A source (digits), a folder of images, an .npz, .h5 or .csv file, or a YAML file "
        "with a data: section. A run folder brings its own; some schemes of quantize need none.",
        show_default=False,
    ),
]
EmitFlag = Annotated[
    bool, typer.Option("--emit-recipe", help="Print the recipe instead of running it.")
]
Flags = dict[tuple[str, ...], str]
_NAMED_BY_DATA = ("source", "path")
"""Keys of the data section that `--data` itself sets."""


class _Common(NamedTuple):
    """The flags that every verb has."""

    output: Path | None
    force: bool
    no_cache: bool
    emit_recipe: bool
    trust_model: bool
    custom_objects: Path | None
    as_json: bool
    quiet: bool
    verbose: bool


VERBS = {
    "train": "Train a model, or continue from its weights.",
    "distill": "Train a student to follow a teacher.",
    "prune": "Remove the weights that matter least, then fine-tune.",
    "cluster": "Let the weights of each kernel share a few values, then fine-tune.",
    "quantize": "Convert to TFLite under a quantization scheme.",
    "evaluate": "Measure a model on the test split: accuracy, size, memory, latency.",
}
"""The verbs, each with its line of help; all but `evaluate` are a stage."""


def register(app: typer.Typer, words: Sequence[str]) -> None:
    """Add `run` and the verbs; the flags of a verb are built only where it is among `words`.

    Args:
        app: the application.
        words: the words of the command line. Building every flag costs more than the rest of a
            light command.
    """
    app.command("run", epilog=epilog("run"))(run)
    special: dict[str, Callable[..., None]] = {"distill": _distill, "evaluate": _evaluate}
    for kind, text in VERBS.items():
        function = special.get(kind) or _verb(kind)
        command = _with_flags(function, kind) if kind in words else _without_flags(function)
        app.command(kind, help=text, epilog=epilog(kind))(command)


def _evaluate(
    model: AnyModelArgument,
    *,
    data: DataOption = None,
    output: OutputOption = None,
    force: ForceFlag = False,
    no_cache: NoCacheFlag = False,
    emit_recipe: EmitFlag = False,
    trust_model: TrustFlag = False,
    custom_objects: CustomObjectsOption = None,
    json_: JsonFlag = False,
    quiet: QuietFlag = False,
    verbose: VerboseFlag = False,
    flags: Flags,
) -> None:
    """Measure a model on the test split: accuracy with its interval, size, memory, latency."""
    common = _Common(
        output, force, no_cache, emit_recipe, trust_model, custom_objects, json_, quiet, verbose
    )
    _run("evaluate", model, data, [], _split("evaluate", flags), common)


def _distill(
    teacher: Annotated[str, typer.Option("--teacher", metavar="MODEL", help="The teacher.")],
    student: Annotated[
        str,
        typer.Option(
            "--student",
            metavar="MODEL|width=F",
            help="The student: a model, or a cut of the teacher: width=0.5,depth=0.5,inherit=true.",
        ),
    ],
    *,
    data: DataOption = None,
    output: OutputOption = None,
    force: ForceFlag = False,
    no_cache: NoCacheFlag = False,
    emit_recipe: EmitFlag = False,
    trust_model: TrustFlag = False,
    custom_objects: CustomObjectsOption = None,
    json_: JsonFlag = False,
    quiet: QuietFlag = False,
    verbose: VerboseFlag = False,
    flags: Flags,
) -> None:
    """Train a student to follow a teacher; the teacher is the baseline of the report."""
    from shrink.recipe.single import student_value

    sections = _split("distill", flags)
    sections.stage["student"] = student_value(student, Path.cwd())
    common = _Common(
        output, force, no_cache, emit_recipe, trust_model, custom_objects, json_, quiet, verbose
    )
    _run("distill", teacher, data, [{"distill": sections.stage}], sections, common)


def _verb(kind: str) -> Callable[..., None]:
    def verb(
        model: ModelArgument,
        *,
        data: DataOption = None,
        output: OutputOption = None,
        force: ForceFlag = False,
        no_cache: NoCacheFlag = False,
        emit_recipe: EmitFlag = False,
        trust_model: TrustFlag = False,
        custom_objects: CustomObjectsOption = None,
        json_: JsonFlag = False,
        quiet: QuietFlag = False,
        verbose: VerboseFlag = False,
        flags: Flags,
    ) -> None:
        sections = _split(kind, flags)
        common = _Common(
            output, force, no_cache, emit_recipe, trust_model, custom_objects, json_, quiet, verbose
        )
        _run(kind, model, data, [{kind: sections.stage}], sections, common)

    return verb


def _with_flags(function: Callable[..., None], kind: str) -> Callable[..., None]:
    from shrink.cli.flags import flags_of, section_flags, with_flags
    from shrink.data.config import DataConfig
    from shrink.engine.config import TrainingConfig
    from shrink.recipe.schema import describe_fields
    from shrink.stages import STAGES
    from shrink.task.config import TaskConfig

    describe_fields()
    skip = ("teacher", "student") if kind == "distill" else ()
    if kind in STAGES:
        flags = [*flags_of(STAGES[kind], skip=skip), *flags_of(TrainingConfig)]
    else:  # the seed decides which examples are held out; nothing else of training counts
        flags = [flag for flag in flags_of(TrainingConfig) if flag.keys == ("seed",)]
    flags += section_flags("data", flags_of(DataConfig, skip=_NAMED_BY_DATA), flags)
    flags += section_flags("task", flags_of(TaskConfig), flags)
    return with_flags(function, flags)


def _without_flags(function: Callable[..., None]) -> Callable[..., None]:
    def command() -> None:
        function(flags={})

    command.__doc__ = function.__doc__
    return command


def _split(kind: str, flags: Flags) -> Sections:
    """Tell the flags of the stage from those of the recipe's own sections."""
    from shrink.cli.flags import section_of
    from shrink.recipe.single import Sections
    from shrink.stages import STAGES

    own = set(STAGES[kind].model_fields) if kind in STAGES else set()
    apart = {
        name: {keys[1:]: text for keys, text in flags.items() if keys[0] == name}
        for name in ("data", "task")
    }
    rest = {keys: text for keys, text in flags.items() if keys[0] not in apart}
    return Sections(
        stage=section_of({keys: text for keys, text in rest.items() if keys[0] in own}),
        training=section_of({keys: text for keys, text in rest.items() if keys[0] not in own}),
        data=section_of(apart["data"]),
        task=section_of(apart["task"]),
    )


def _run(
    verb: str,
    model: str,
    data: str | None,
    stages: list[JsonObject],
    sections: Sections,
    common: _Common,
) -> None:
    from shrink.base.console import Console
    from shrink.base.errors import RecipeError
    from shrink.recipe.load import recipe_from_mapping
    from shrink.recipe.plan import build_plan
    from shrink.recipe.resolved import recipe_text
    from shrink.recipe.single import portable, single_recipe
    from shrink.run.lineage import named_code
    from shrink.run.runner import RunOptions
    from shrink.run.session import RUNS, free_name, run_plan

    console = Console(as_json=common.as_json, quiet=common.quiet, verbose=common.verbose)
    code = None if common.custom_objects is None else common.custom_objects.resolve()
    value = single_recipe(verb, model, data, stages, sections, Path.cwd(), code, named_code)
    try:
        plan = build_plan(recipe_from_mapping(value, f"shrink {verb}"))
    except RecipeError as error:
        for problem in (error, *error.others):
            problem.hint = problem.hint or f"`shrink {verb} --help` lists what it takes"
        raise
    if common.emit_recipe:
        console.print(recipe_text(portable(value, Path.cwd())).rstrip())
        return
    if common.output is None and (name := free_name(plan)) != value["name"]:
        console.say(f"{RUNS / value['name']} holds another run; this one goes to {RUNS / name}")
        value["name"] = name
        plan = build_plan(recipe_from_mapping(value, f"shrink {verb}"))
    options = RunOptions(
        output=common.output or RUNS / plan.recipe.name,
        force=common.force,
        use_store=not common.no_cache,
        trust_model=common.trust_model,
    )
    raise typer.Exit(run_plan(plan, options, console))


def run(
    recipe: RecipeArgument,
    *,
    set_: SetOption = None,
    output: OutputOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be computed, and why; run nothing.")
    ] = False,
    force: ForceFlag = False,
    no_cache: NoCacheFlag = False,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="STAGE",
            help="Compute this stage and all after it again, whatever the store holds.",
            show_default=False,
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="STAGE",
            help="Stop after this stage. Gates on later stages, which those on the result are, "
            "are not checked.",
            show_default=False,
        ),
    ] = None,
    trust_model: TrustFlag = False,
    tensorboard: TensorboardOption = None,
    mlflow: MlflowOption = None,
    json_: JsonFlag = False,
    quiet: QuietFlag = False,
    verbose: VerboseFlag = False,
) -> None:
    """Run a recipe: every stage, its report, its gates."""
    from shrink.base.console import Console
    from shrink.recipe.bundle import find_recipe
    from shrink.recipe.load import load_recipe
    from shrink.recipe.plan import build_plan
    from shrink.run.runner import RunOptions
    from shrink.run.session import run_plan
    from shrink.run.tool import Trackers

    console = Console(as_json=json_, quiet=quiet, verbose=verbose)
    trackers = Trackers(tensorboard, mlflow)
    trackers.check()
    plan = build_plan(load_recipe(find_recipe(recipe), set_ or ()))
    options = RunOptions(
        output=output or Path("runs") / plan.recipe.name,
        force=force,
        use_store=not no_cache,
        first=from_,
        last=until,
        trust_model=trust_model,
    )
    raise typer.Exit(run_plan(plan, options, console, dry_run=dry_run, trackers=trackers))
