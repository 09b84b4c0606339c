"""`shrink profile`, `inspect` and `export`: one look at, or one copy of, a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from shrink.cli.examples import epilog
from shrink.cli.options import CustomObjectsOption, JsonFlag, QuietFlag, TrustFlag
from shrink.cli.verbs import AnyModelArgument, ModelArgument

ExportFormat = Literal["keras", "keras3", "savedmodel", "cc-array"]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("profile", epilog=epilog("profile"))(profile)
    app.command("inspect", epilog=epilog("inspect"))(inspect)
    app.command("export", epilog=epilog("export"))(export)


def profile(
    model: ModelArgument,
    batch_size: Annotated[
        int, typer.Option("--batch-size", metavar="N", min=1, help="Examples per step.")
    ],
    memory_limit: Annotated[
        str | None,
        typer.Option("--memory-limit", metavar="SIZE", help="Memory per device, such as 2GB."),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", metavar="DIR", help="Write a profile there, for TensorBoard."),
    ] = None,
    trust_model: TrustFlag = False,
    custom_objects: CustomObjectsOption = None,
    json_: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Measure the memory of a training step, on random inputs with Adam."""
    from shrink.base.console import Console
    from shrink.contract.job import ProfileJob
    from shrink.contract.model_source import Trust
    from shrink.model.reference import parse_model_reference
    from shrink.run.tool import run_tool
    from shrink.tools.show import show_profile

    console = Console(as_json=json_, quiet=quiet)
    reference = parse_model_reference(model, Path.cwd())
    job = ProfileJob(
        name=str(reference),
        model=reference.source(Trust(_resolved(custom_objects), trust_model)),
        batch_size=batch_size,
        memory_limit=_bytes(memory_limit),
        trace=_resolved(trace),
    )
    result = run_tool(job, console)
    _show(result, console, show_profile)


def inspect(
    model: AnyModelArgument,
    groups: Annotated[
        bool, typer.Option("--groups", help="Show which channels can be pruned, and together.")
    ] = False,
    trust_model: TrustFlag = False,
    custom_objects: CustomObjectsOption = None,
    json_: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Show layers or operators with their dtypes, shapes and sparsity."""
    from shrink.base.console import Console
    from shrink.contract.job import InspectJob
    from shrink.contract.model_source import Trust
    from shrink.model.reference import parse_model_reference
    from shrink.run.tool import run_tool
    from shrink.tools.show import show_inspection

    console = Console(as_json=json_, quiet=quiet)
    reference = parse_model_reference(model, Path.cwd())
    trust = Trust(_resolved(custom_objects), trust_model)
    job = InspectJob(name=str(reference), model=reference.source(trust), groups=groups)
    found = run_tool(job, console)
    _show(found, console, show_inspection)


def export(
    model: AnyModelArgument,
    format_: Annotated[ExportFormat, typer.Option("--format", help="The form to write.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="PATH",
            help="File or folder to write; by default beside the model.",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", help="Name of a C array; by default that of the run."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite what is there.")] = False,
    trust_model: TrustFlag = False,
    custom_objects: CustomObjectsOption = None,
    json_: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Write a model as a file of tf-keras or Keras 3 or a SavedModel, an artifact as a C array."""
    from shrink.base.console import Console
    from shrink.contract.model_source import Trust
    from shrink.model.reference import parse_model_reference
    from shrink.run.export import export_model

    console = Console(as_json=json_, quiet=quiet)
    reference = parse_model_reference(model, Path.cwd())
    trust = Trust(_resolved(custom_objects), trust_model)
    written = export_model(reference, format_, output, force, console, trust, name)
    if json_:
        console.document(written)
    else:
        for path in written["paths"]:
            console.print(path)


def _resolved(path: Path | None) -> Path | None:
    return None if path is None else path.resolve()


def _bytes(text: str | None) -> int | None:
    from shrink.base.errors import RecipeError
    from shrink.base.fields import parse_bytes

    if text is None:
        return None
    try:
        return parse_bytes(int(text) if text.isdigit() else text)
    except ValueError as error:
        raise RecipeError(str(error), subject="--memory-limit") from error


def _show(result: dict[str, Any], console: Any, show: Any) -> None:
    if console.as_json:
        console.document(result)
    elif not console.quiet:
        show(result, console.rich())
