"""The single-stage verbs: each builds a recipe of one stage and runs it as `shrink run` does."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shrink.base import files
from shrink.base.console import Console
from shrink.base.errors import RecipeError
from shrink.base.yaml import parse_scalar
from shrink.cli.compact import compact_file
from shrink.cli.flags import Flags, flags_of, section_flags, with_flags
from shrink.cli.options import (
    AnyModelArgument,
    CustomObjectsOption,
    DataOption,
    EmitFlag,
    ForceFlag,
    GateOption,
    JsonFlag,
    ModelArgument,
    NoCacheFlag,
    NotesFlag,
    OutputOption,
    QuietFlag,
    TrustFlag,
    VerboseFlag,
    help_hint,
    shown_flags,
)
from shrink.contract.model_source import Trust
from shrink.data.config import DataConfig
from shrink.engine.config import TrainingConfig
from shrink.recipe.bundle import bundled_root
from shrink.recipe.schema import describe_fields
from shrink.stages import STAGES
from shrink.task.config import TaskConfig

if TYPE_CHECKING:
    from shrink.recipe.single import Sections

_NAMED_BY_DATA = ("source", "path")
"""Keys of the data section that `--data` itself sets."""


@dataclass(frozen=True, kw_only=True)
class _Common:
    """The flags that every verb has, in the order of its help."""

    data: DataOption = None
    output: OutputOption = None
    force: ForceFlag = False
    no_cache: NoCacheFlag = False
    emit_recipe: EmitFlag = False
    trust_model: TrustFlag = False
    custom_objects: CustomObjectsOption = None
    json_: JsonFlag = False
    quiet: QuietFlag = False
    verbose: VerboseFlag = False
    notes: NotesFlag = False


def command(name: str, words: Sequence[str]) -> Callable[..., None]:
    """Return a verb with a flag for each key of its stage and of the recipe's sections."""
    describe_fields()
    stage = STAGES.get(name)
    skip = ("teacher", "student") if name == "distill" else ()
    flags = [] if stage is None else flags_of(stage, skip=skip)
    trains = stage is not None and "epochs" in stage.model_fields
    # The seed decides which examples are held out; nothing else counts where nothing is trained.
    flags += [f for f in flags_of(TrainingConfig) if trains or f.keys == ("seed",)]
    flags += section_flags("data", flags_of(DataConfig, skip=_NAMED_BY_DATA), flags)
    flags += section_flags("task", flags_of(TaskConfig), flags)
    special: dict[str, Callable[..., None]] = {
        "distill": _distill,
        "compact": _compact,
        "evaluate": _evaluate,
        "quantize": _quantize,
    }
    function = special.get(name) or functools.partial(_verb, name)
    return with_flags(function, flags, shown_flags(name, words), _Common)


def _evaluate(
    model: AnyModelArgument,
    gate: GateOption = None,
    *,
    common: _Common,
    flags: Flags,
) -> None:
    sections = _split("evaluate", flags)
    for text in gate or ():
        name, _, limit = text.partition("=")
        if not limit:
            raise RecipeError(
                f"{text!r} has no limit", subject="--gate", hint="such as --gate accuracy=0.9"
            )
        sections.gates[name] = parse_scalar(limit, "--gate")
    _run("evaluate", model, sections, common)


def _distill(
    teacher: Annotated[
        list[str],
        typer.Option(
            "--teacher", metavar="MODEL", help="The teacher; repeat it for a mean of several."
        ),
    ],
    student: Annotated[
        str,
        typer.Option(
            "--student",
            metavar="MODEL|width=F",
            help="The student: a model, or a cut of the teacher: width=0.5,depth=0.5,inherit=true.",
        ),
    ],
    *,
    common: _Common,
    flags: Flags,
) -> None:
    from shrink.model.reference import parse_model_reference
    from shrink.recipe.single import student_value

    sections = _split("distill", flags)
    sections.stage["student"] = student_value(student, Path.cwd())
    if len(teacher) > 1:
        references = [str(parse_model_reference(one, Path.cwd())) for one in teacher]
        sections.stage["teacher"] = references
    _run("distill", teacher[0], sections, common)


def _compact(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help="A .tflite file, or a run folder that ends in one.",
            show_default=False,
        ),
    ] = None,
    demo: Annotated[
        bool,
        typer.Option(
            "--demo",
            help="Compact a bundled int8 model: writes demo.tflite and demo-compact.tflite here.",
        ),
    ] = False,
    *,
    common: _Common,
    flags: Flags,
) -> None:
    from shrink.run.session import names_artifact

    sections = _split("compact", flags)
    if demo == (model is not None):
        raise RecipeError(
            "give a .tflite file, or --demo alone",
            subject="shrink compact",
            hint="shrink compact model.tflite --output small.tflite",
        )
    if model is None:
        model = _copied_demo()
        common = replace(common, output=common.output or Path("demo-compact.tflite"))
    output = common.output
    alone = output is not None and names_artifact(output) and not sections.data
    if output is not None and alone and common.data is None and not common.emit_recipe:
        _refuse_what_needs_a_run(sections, common)
        console = Console(as_json=common.json_, quiet=common.quiet, verbose=common.verbose)
        trust = Trust(common.custom_objects, common.trust_model)
        compact_file(model, sections.stage, output, common.force, trust, console)
        return
    _run("compact", model, sections, common)


def _copied_demo() -> str:
    """Copy the bundled model into the current folder and return its name."""
    from shrink.contract.usage import check_free

    name = "demo.tflite"
    content = (bundled_root() / "models" / name).read_bytes()
    path = Path(name)
    if not path.is_file() or path.read_bytes() != content:
        check_free(path, force=False, has_record=False)
        files.write_bytes(path, content)
    return name


def _refuse_what_needs_a_run(sections: Sections, common: _Common) -> None:
    """Raise `RecipeError` for a flag that says nothing of one file alone."""
    given = [f"--{key}" for key in sections.training]
    given += [f"--task-{key.replace('_', '-')}" for key in sections.task]
    given += ["--no-cache"] * common.no_cache + ["--notes"] * common.notes
    if given:
        raise RecipeError(
            "has no effect: without --data, --output FILE.tflite writes that file alone, "
            "reads no examples and caches nothing",
            subject=given[0],
            hint=f"leave {given[0]} out, or name a run folder with --output",
        )


def _verb(kind: str, model: ModelArgument, *, common: _Common, flags: Flags) -> None:
    _run(kind, model, _split(kind, flags), common)


def _quantize(model: AnyModelArgument, *, common: _Common, flags: Flags) -> None:
    _verb("quantize", model, common=common, flags=flags)


def _split(kind: str, flags: Flags) -> Sections:
    from shrink.recipe.single import Sections

    return Sections.of(kind, {k: parse_scalar(text, ".".join(k)) for k, text in flags.items()})


def _run(verb: str, model: str, sections: Sections, common: _Common) -> None:
    from shrink.recipe.resolution import recipe_text
    from shrink.recipe.single import portable
    from shrink.run.options import RunOptions
    from shrink.run.process import preload
    from shrink.run.session import RUNS, run_plan
    from shrink.run.verb import plan_verb, verb_recipe

    if not common.emit_recipe and not (verb == "evaluate" and model.endswith(".tflite")):
        preload()  # a .tflite file is evaluated without TensorFlow
    console = Console(
        as_json=common.json_, quiet=common.quiet, verbose=common.verbose, notes=common.notes
    )
    said = f"shrink {verb}"
    value = verb_recipe(verb, model, sections, common.data, common.custom_objects)
    named = common.output is not None or common.emit_recipe
    plan = plan_verb(value, said, help_hint(said), None if named else console)
    if common.emit_recipe:
        written = portable(value, Path.cwd())
        if common.json_:
            console.document(written)
        else:
            console.print(recipe_text(written).rstrip())
        return
    options = RunOptions(
        output=common.output or RUNS / plan.recipe.name,
        force=common.force,
        use_store=not common.no_cache,
        trust_model=common.trust_model,
    )
    raise typer.Exit(run_plan(plan, options, console))
