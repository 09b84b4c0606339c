"""`shrink profile`, `inspect`, `export`, `bench` and `doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shrink.base.console import Console
from shrink.base.errors import ModelError, ResourceError
from shrink.base.figures import format_value
from shrink.cli.options import (
    AnyModelArgument,
    CustomObjectsOption,
    JsonFlag,
    ModelArgument,
    QuietFlag,
    TrustFlag,
    print_result,
)
from shrink.contract.codec import to_plain
from shrink.contract.findings import ArtifactInspection, Bench, KerasInspection
from shrink.contract.job import BenchJob, InspectJob
from shrink.contract.model_source import Trust
from shrink.model.reference import parse_model_reference, refuse_idle_trust
from shrink.run.export import ExportFormat, export_model
from shrink.run.tool import examine, lines_of, run_tool
from shrink.run.verb import profile_model
from shrink.tools.show import show_inspection, show_profile


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
        typer.Option("--trace", metavar="DIR", help="Write a TensorBoard profile to this folder."),
    ] = None,
    trust_model: TrustFlag = False,
    custom_objects: CustomObjectsOption = None,
    json_: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:

    console = Console(as_json=json_, quiet=quiet)
    text = memory_limit or ""
    limit = int(text) if text.isdigit() else memory_limit
    found = profile_model(model, batch_size, limit, trace, custom_objects, trust_model, console)
    print_result(found, console, lambda found: show_profile(found, console.rich()))


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

    console = Console(as_json=json_, quiet=quiet)
    reference = parse_model_reference(model, Path.cwd())
    trust = Trust(_resolved(custom_objects), trust_model)
    refuse_idle_trust(trust, [reference])
    job = InspectJob(name=str(reference), model=reference.source(trust), groups=groups)
    found = (
        run_tool(job, ArtifactInspection, console)
        if reference.kind == "tflite"
        else run_tool(job, KerasInspection, console)
    )
    print_result(found, console, lambda found: show_inspection(found, console.rich()))


def export(
    model: AnyModelArgument,
    *,
    format_: Annotated[ExportFormat, typer.Option("--format", help="The format to write.")],
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
        typer.Option("--name", help="Name of the C array; by default the run's name."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
    trust_model: TrustFlag = False,
    custom_objects: CustomObjectsOption = None,
    json_: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Export a model to tf-keras, Keras 3 or a SavedModel, or an artifact to a C array."""

    console = Console(as_json=json_, quiet=quiet)
    reference = parse_model_reference(model, Path.cwd())
    trust = Trust(_resolved(custom_objects), trust_model)
    refuse_idle_trust(trust, [reference])
    paths = export_model(reference, format_, output, force, console, trust, name)
    if json_:
        console.document({"format": format_, "paths": paths, "warnings": console.warned})
    else:
        for path in paths:
            console.print(path)


def _resolved(path: Path | None) -> Path | None:
    return None if path is None else path.resolve()


_MOST_THREADS = 1024


def bench(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="A .tflite file, or a run folder that ends in one."),
    ],
    threads: Annotated[
        int,
        typer.Option(
            "--threads", metavar="N", min=1, max=_MOST_THREADS, help="Threads of the interpreter."
        ),
    ] = 1,
    json_: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Measure a .tflite artifact's latency and memory in LiteRT on this machine, batch size 1."""

    console = Console(as_json=json_, quiet=quiet)
    reference = parse_model_reference(model, Path.cwd())
    if reference.kind != "tflite":
        raise ModelError(
            "bench runs .tflite artifacts",
            subject=reference.path,
            hint="quantize the model first: shrink quantize MODEL --data D",
        )
    job = BenchJob(name=str(reference), model=reference.source(), threads=threads)
    print_result(run_tool(job, Bench, console), console, bench_lines)


def bench_lines(result: Bench) -> list[str]:
    """Return what a measurement says, for people."""

    threads = f"{result.threads} thread{'s' if result.threads > 1 else ''}"
    p50, p90 = (format_value(time_ms, "ms") for time_ms in (result.p50_ms, result.p90_ms))
    peak = result.inference_peak_bytes
    memory = "not measured" if peak is None else f"{peak:,} bytes above any model's"
    return [
        f"latency     p50 {p50}, p90 {p90} ({threads})",
        f"throughput  {result.inferences_per_s:,.0f} inferences/s, one at a time",
        f"memory      {memory}",
        f"file        {result.file_bytes:,} bytes",
        f"machine     {result.machine} (this host; other devices differ)",
        *(f"note: {note}" for note in result.notes),
    ]


def doctor(json_: JsonFlag = False, quiet: QuietFlag = False) -> None:
    """Check the installation; the output belongs in a bug report. Exit code 5 on a problem."""

    console = Console(as_json=json_, quiet=quiet)
    examination = examine(console)
    if json_:
        console.document(to_plain(examination))
    else:
        for line in lines_of(examination):
            console.print(line)
    if examination.problems:
        raise typer.Exit(ResourceError.exit_code)
