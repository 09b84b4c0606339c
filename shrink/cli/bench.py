"""`shrink bench`: how fast an artifact runs on this machine, and in how much memory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from shrink.cli.examples import epilog
from shrink.cli.options import JsonFlag, QuietFlag

_MOST_THREADS = 1024


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("bench", epilog=epilog("bench"))(bench)


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
    from shrink.base.console import Console
    from shrink.base.errors import ModelError
    from shrink.contract.job import BenchJob
    from shrink.model.reference import parse_model_reference
    from shrink.run.tool import run_tool

    console = Console(as_json=json_, quiet=quiet)
    reference = parse_model_reference(model, Path.cwd())
    if reference.kind != "tflite":
        raise ModelError(
            "bench runs .tflite artifacts",
            subject=reference.path,
            hint="quantize the model first: shrink quantize MODEL --data D",
        )
    job = BenchJob(name=str(reference), model=reference.source(), threads=threads)
    result = run_tool(job, console)
    if json_:
        console.document(result)
    elif not quiet:
        for line in lines_of(result):
            console.print(line)


def lines_of(result: dict[str, Any]) -> list[str]:
    """Return what a measurement says, for people."""
    from shrink.base.figures import format_value

    threads = f"{result['threads']} thread{'s' if result['threads'] > 1 else ''}"
    p50, p90 = (format_value(result[name], "ms") for name in ("p50_ms", "p90_ms"))
    peak = result["inference_peak_bytes"]
    memory = "not measured" if peak is None else f"{peak:,} bytes above any model's"
    return [
        f"latency     p50 {p50}, p90 {p90} ({threads})",
        f"throughput  {result['inferences_per_s']:,.0f} inferences/s, one at a time",
        f"memory      {memory}",
        f"file        {result['file_bytes']:,} bytes",
        f"machine     {result['machine']} (this host; other devices differ)",
        *(f"note: {note}" for note in result["notes"]),
    ]
