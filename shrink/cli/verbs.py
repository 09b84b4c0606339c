"""`shrink run`, and the single-stage verbs: each builds a recipe of one stage and runs it alike."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from shrink.base.foreign import JsonObject
from shrink.cli.completion import models
from shrink.cli.options import (
    CustomObjectsOption,
    DryRunFlag,
    ForceFlag,
    FromOption,
    JobsOption,
    JsonFlag,
    MlflowOption,
    NoCacheFlag,
    OutputOption,
    QuietFlag,
    RecipeArgument,
    SetOption,
    TensorboardOption,
    TrustFlag,
    UntilOption,
    VerboseFlag,
    epilog,
    shown_flags,
)

if TYPE_CHECKING:
    from shrink.recipe.single import Sections


ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        autocompletion=models,
        help="A .keras or .h5 file, a SavedModel, a run folder, or file.py:function; quantize and "
        "evaluate take a .tflite file too, compact takes nothing else.",
    ),
]
AnyModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        autocompletion=models,
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
GateOption = Annotated[
    list[str] | None,
    typer.Option(
        "--gate",
        metavar="NAME=LIMIT",
        help="A figure or metric and its limit, such as accuracy=0.9 or tflite_bytes=40KB; exit "
        "code 1 if it is missed. Repeat it for several.",
        show_default=False,
    ),
]
EmitFlag = Annotated[
    bool, typer.Option("--emit-recipe", help="Print the recipe instead of running it.")
]
Flags = dict[tuple[str, ...], str]
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


VERBS = {
    "train": "Train a model, or continue from its weights.",
    "distill": "Train a student to follow a teacher.",
    "prune": "Remove the weights that matter least, then fine-tune.",
    "cluster": "Let the weights of each kernel share a few values, then fine-tune.",
    "quantize": "Convert to TFLite under a quantization scheme.",
    "compact": "Rewrite a .tflite file to take less memory, its outputs equal to the byte.",
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
    special: dict[str, Callable[..., None]] = {
        "distill": _distill,
        "compact": _compact,
        "evaluate": _evaluate,
    }
    for kind, text in VERBS.items():
        function = _with_common(special.get(kind) or _verb(kind))
        command = _with_flags(function, kind, words) if kind in words else without_flags(function)
        app.command(kind, help=text, epilog=epilog(kind))(command)


def _evaluate(
    model: AnyModelArgument,
    gate: GateOption = None,
    *,
    common: _Common,
    flags: Flags,
) -> None:
    """Measure a model on the test split: accuracy with its interval, size, memory, latency."""
    from shrink.base.errors import RecipeError
    from shrink.base.yaml import parse_scalar

    sections = _split("evaluate", flags)
    for text in gate or ():
        name, _, limit = text.partition("=")
        if not limit:
            raise RecipeError(
                f"{text!r} has no limit", subject="--gate", hint="such as --gate accuracy=0.9"
            )
        sections.gates[name] = parse_scalar(limit)
    _run("evaluate", model, [], sections, common)


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
    common: _Common,
    flags: Flags,
) -> None:
    """Train a student to follow a teacher; the teacher is the baseline of the report."""
    from shrink.recipe.single import student_value

    sections = _split("distill", flags)
    sections.stage["student"] = student_value(student, Path.cwd())
    _run("distill", teacher, [{"distill": sections.stage}], sections, common)


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
        typer.Option("--demo", help="Compact a bundled int8 model: demo.tflite is written here."),
    ] = False,
    *,
    common: _Common,
    flags: Flags,
) -> None:
    """Rewrite a .tflite file to take less memory, its outputs equal to the byte."""
    from shrink.base.console import Console
    from shrink.base.errors import RecipeError
    from shrink.cli.compact import compact_file
    from shrink.contract.model_source import Trust
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
    _run("compact", model, [{"compact": sections.stage}], sections, common)


def _copied_demo() -> str:
    """Copy the bundled model into the current folder and return its name."""
    from shrink.base import files
    from shrink.contract.usage import check_free
    from shrink.recipe.bundle import bundled_root

    name = "demo.tflite"
    content = (bundled_root() / "models" / name).read_bytes()
    path = Path(name)
    if not path.is_file() or path.read_bytes() != content:
        check_free(path, force=False, has_record=False)
        files.write_bytes(path, content)
    return name


def _refuse_what_needs_a_run(sections: Sections, common: _Common) -> None:
    """Raise `RecipeError` for a flag that says nothing of one file alone."""
    from shrink.base.errors import RecipeError

    given = [f"--{key}" for key in sections.training]
    given += [f"--task-{key.replace('_', '-')}" for key in sections.task]
    given += ["--no-cache"] * common.no_cache
    if given:
        raise RecipeError(
            "it does nothing here: without --data, --output FILE.tflite writes that file alone, "
            "reads no examples and caches nothing",
            subject=given[0],
            hint=f"leave {given[0]} out, or name a run folder with --output",
        )


def _verb(kind: str) -> Callable[..., None]:
    def verb(
        model: ModelArgument,
        *,
        common: _Common,
        flags: Flags,
    ) -> None:
        sections = _split(kind, flags)
        _run(kind, model, [{kind: sections.stage}], sections, common)

    return verb


def _with_common(function: Callable[..., None]) -> Callable[..., None]:
    """Return a verb that takes every flag of `_Common` where `function` takes `common`."""
    kinds = get_type_hints(_Common, include_extras=True)
    flags = [
        inspect.Parameter(
            one.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=one.default,
            annotation=kinds[one.name],
        )
        for one in fields(_Common)
    ]

    def verb(**arguments: Any) -> None:
        chosen = _Common(**{flag.name: arguments.pop(flag.name) for flag in flags})
        function(**arguments, common=chosen)

    signature = inspect.signature(function, eval_str=True)
    parameters = signature.parameters.values()
    taken = [new for old in parameters for new in (flags if old.name == "common" else [old])]
    verb.__signature__ = inspect.Signature(taken)  # type: ignore[attr-defined]
    verb.__doc__, verb.__name__ = function.__doc__, function.__name__
    return verb


def _with_flags(
    function: Callable[..., None], kind: str, words: Sequence[str]
) -> Callable[..., None]:
    from shrink.cli.flags import flags_of, section_flags, with_flags
    from shrink.data.config import DataConfig
    from shrink.engine.config import TrainingConfig
    from shrink.recipe.schema import describe_fields
    from shrink.stages import STAGES
    from shrink.task.config import TaskConfig

    describe_fields()
    skip = ("teacher", "student") if kind == "distill" else ()
    flags = flags_of(STAGES[kind], skip=skip) if kind in STAGES else []
    trains = kind in STAGES and "epochs" in STAGES[kind].model_fields
    # The seed decides which examples are held out; nothing else counts where nothing is trained.
    flags += [f for f in flags_of(TrainingConfig) if trains or f.keys == ("seed",)]
    flags += section_flags("data", flags_of(DataConfig, skip=_NAMED_BY_DATA), flags)
    flags += section_flags("task", flags_of(TaskConfig), flags)
    return with_flags(function, flags, shown_flags(kind, words))


def without_flags(function: Callable[..., None]) -> Callable[..., None]:
    """Return a command without flags, as which it is listed in the help of others."""

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
    stages: list[JsonObject],
    sections: Sections,
    common: _Common,
) -> None:
    from shrink.base.console import Console
    from shrink.cli.options import help_hint
    from shrink.recipe.resolved import recipe_text
    from shrink.recipe.single import portable
    from shrink.run.options import RunOptions
    from shrink.run.process import preload
    from shrink.run.session import RUNS, run_plan
    from shrink.run.verb import VerbCall, named_apart, plan_verb

    if not common.emit_recipe and not (verb == "evaluate" and model.endswith(".tflite")):
        preload()  # a .tflite file is evaluated without TensorFlow
    console = Console(as_json=common.json_, quiet=common.quiet, verbose=common.verbose)
    said = f"shrink {verb}"
    value = VerbCall(verb, model, stages, sections, common.data, common.custom_objects).recipe()
    plan = plan_verb(value, said, help_hint(said))
    if common.emit_recipe:
        written = portable(value, Path.cwd())
        if common.json_:
            console.document(written)
        else:
            console.print(recipe_text(written).rstrip())
        return
    if common.output is None:
        plan = named_apart(value, plan, said, console)
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
    dry_run: DryRunFlag = False,
    force: ForceFlag = False,
    no_cache: NoCacheFlag = False,
    from_: FromOption = None,
    until: UntilOption = None,
    jobs: JobsOption = 1,
    trust_model: TrustFlag = False,
    tensorboard: TensorboardOption = None,
    mlflow: MlflowOption = None,
    json_: JsonFlag = False,
    quiet: QuietFlag = False,
    verbose: VerboseFlag = False,
) -> None:
    """Run a recipe: every stage, its report, its gates; or a sweep of it, and a comparison."""
    from shrink.run.process import preload

    if not dry_run:
        preload()  # while the recipe is read
    from shrink.base.console import Console
    from shrink.base.errors import RecipeError
    from shrink.recipe.bundle import find_recipe
    from shrink.recipe.matrix import load_variants
    from shrink.recipe.plan import build_plan
    from shrink.run.options import RunOptions
    from shrink.run.session import run_plan
    from shrink.run.tool import Trackers

    console = Console(as_json=json_, quiet=quiet, verbose=verbose)
    trackers = Trackers(tensorboard, mlflow)
    trackers.check()
    variants = load_variants(find_recipe(recipe), set_ or ())
    first = variants.each[0].loaded
    options = RunOptions(
        output=output or Path("runs") / first.recipe.name,
        force=force,
        use_store=not no_cache,
        first=from_,
        last=until,
        trust_model=trust_model,
    )
    if variants.is_sweep:
        from shrink.run.sweep import run_sweep

        raise typer.Exit(
            run_sweep(variants, options, console, dry_run=dry_run, jobs=jobs, trackers=trackers)
        )
    if jobs > 1:
        raise RecipeError(
            "--jobs needs a sweep; this recipe is a single run",
            subject=f"--jobs {jobs}",
            hint="leave it out, or sweep: --set prune.sparsity=0.3,0.5",
        )
    plan = build_plan(first)
    raise typer.Exit(run_plan(plan, options, console, dry_run=dry_run, trackers=trackers))
