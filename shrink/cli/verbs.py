"""The single-stage verbs: each builds a recipe of one stage and runs it as `shrink run` does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from shrink.cli.examples import epilog
from shrink.cli.options import (
    CustomObjectsOption,
    ForceFlag,
    JsonFlag,
    NoCacheFlag,
    OutputOption,
    QuietFlag,
    TrustFlag,
)

ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A .keras or .h5 file, a SavedModel, a run folder, or file.py:function.",
    ),
]
DataOption = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="D",
        help="A source (digits), a folder of pictures, an .npz or .h5 file, or a YAML file with a "
        "data: section. A run folder brings its own.",
        show_default=False,
    ),
]
EmitFlag = Annotated[
    bool, typer.Option("--emit-recipe", help="Print the recipe instead of running it.")
]
Flags = dict[tuple[str, ...], str]


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


VERBS = {
    "train": "Train a model, or continue from its weights.",
    "distill": "Train a student to follow a teacher.",
    "prune": "Remove the weights that matter least, then fine-tune.",
    "cluster": "Let the weights of each kernel share a few values, then fine-tune.",
    "quantize": "Convert to TFLite under a quantization scheme.",
}
"""The stages that are verbs of their own, each with its line of help."""


def register(app: typer.Typer, words: Sequence[str]) -> None:
    """Add the verbs; the flags of a verb are built only where it is among `words`.

    Args:
        app: the application.
        words: the words of the command line. Building every flag costs more than the rest of a
            light command.
    """
    for kind, text in VERBS.items():
        function = distill if kind == "distill" else _verb(kind)
        command = _with_flags(function, kind) if kind in words else _without_flags(function)
        app.command(kind, help=text, epilog=epilog(kind))(command)
    app.command("evaluate", epilog=epilog("evaluate"))(evaluate)


def evaluate(
    model: ModelArgument,
    data: DataOption = None,
    output: OutputOption = None,
    force: ForceFlag = False,
    no_cache: NoCacheFlag = False,
    emit_recipe: EmitFlag = False,
    trust_model: TrustFlag = False,
    custom_objects: CustomObjectsOption = None,
    json_: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Measure a model on the test split: accuracy with its interval, size, memory, latency."""
    common = _Common(
        output, force, no_cache, emit_recipe, trust_model, custom_objects, json_, quiet
    )
    _run("evaluate", model, data, [], {}, common)


def distill(
    teacher: Annotated[str, typer.Option("--teacher", metavar="MODEL", help="The teacher.")],
    student: Annotated[
        str,
        typer.Option(
            "--student",
            metavar="MODEL|width=F",
            help="The student: a model, or a cut of the teacher: width=0.5,depth=0.5,inherit=true.",
        ),
    ],
    data: DataOption = None,
    output: OutputOption = None,
    force: ForceFlag = False,
    no_cache: NoCacheFlag = False,
    emit_recipe: EmitFlag = False,
    trust_model: TrustFlag = False,
    custom_objects: CustomObjectsOption = None,
    json_: JsonFlag = False,
    quiet: QuietFlag = False,
    *,
    flags: Flags,
) -> None:
    """Train a student to follow a teacher; the teacher is the baseline of the report."""
    from shrink.recipe.single import student_value

    training, stage = _split("distill", flags)
    stage["student"] = student_value(student, Path.cwd())
    common = _Common(
        output, force, no_cache, emit_recipe, trust_model, custom_objects, json_, quiet
    )
    _run("distill", teacher, data, [{"distill": stage}], training, common)


def _verb(kind: str) -> Callable[..., None]:
    def verb(
        model: ModelArgument,
        data: DataOption = None,
        output: OutputOption = None,
        force: ForceFlag = False,
        no_cache: NoCacheFlag = False,
        emit_recipe: EmitFlag = False,
        trust_model: TrustFlag = False,
        custom_objects: CustomObjectsOption = None,
        json_: JsonFlag = False,
        quiet: QuietFlag = False,
        *,
        flags: Flags,
    ) -> None:
        training, stage = _split(kind, flags)
        common = _Common(
            output, force, no_cache, emit_recipe, trust_model, custom_objects, json_, quiet
        )
        _run(kind, model, data, [{kind: stage}], training, common)

    return verb


def _with_flags(function: Callable[..., None], kind: str) -> Callable[..., None]:
    from shrink.cli.flags import flags_of, with_flags
    from shrink.engine.config import TrainingConfig
    from shrink.recipe.describe import describe_fields
    from shrink.stages import STAGES

    describe_fields()
    skip = ("teacher", "student") if kind == "distill" else ()
    return with_flags(function, [*flags_of(STAGES[kind], skip=skip), *flags_of(TrainingConfig)])


def _without_flags(function: Callable[..., None]) -> Callable[..., None]:
    def command() -> None:
        function(flags={})

    command.__doc__ = function.__doc__
    return command


def _split(kind: str, flags: Flags) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tell the flags of `training` from those of the stage."""
    from shrink.cli.flags import section_of
    from shrink.stages import STAGES

    own = set(STAGES[kind].model_fields)
    stage = {keys: text for keys, text in flags.items() if keys[0] in own}
    training = {keys: text for keys, text in flags.items() if keys[0] not in own}
    return section_of(training), section_of(stage)


def _run(
    verb: str,
    model: str,
    data: str | None,
    stages: list[dict[str, Any]],
    training: dict[str, Any],
    common: _Common,
) -> None:
    from shrink.console import Console
    from shrink.recipe.load import recipe_from_mapping
    from shrink.recipe.plan import build_plan
    from shrink.recipe.resolved import recipe_text
    from shrink.recipe.single import portable, single_recipe
    from shrink.run.destination import RUNS, free_name
    from shrink.run.runner import RunOptions
    from shrink.run.session import run_plan

    console = Console(as_json=common.as_json, quiet=common.quiet)
    value = single_recipe(verb, model, data, stages, training, Path.cwd())
    if common.custom_objects is not None:
        value["custom_objects"] = str(common.custom_objects.resolve())
    plan = build_plan(recipe_from_mapping(value, f"shrink {verb}"))
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
