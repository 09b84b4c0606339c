"""A command's run from plan to exit code: store, runner, what is shown at the end."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from shrink.base import files
from shrink.base.console import Console
from shrink.base.errors import ShrinkError
from shrink.base.paths import cache_root
from shrink.contract.codec import to_plain
from shrink.contract.model_source import Trust
from shrink.recipe.plan import Plan, Step
from shrink.report.content import warnings_of
from shrink.run.cluster import membership
from shrink.run.destination import names_artifact, only_artifact
from shrink.run.follow import follow, leading
from shrink.run.runner import Runner, RunOptions, RunResult
from shrink.run.store import Store
from shrink.run.tool import guard_source
from shrink.run.trackers import Trackers


def run_plan(
    plan: Plan,
    options: RunOptions,
    console: Console,
    *,
    dry_run: bool = False,
    trackers: Trackers | None = None,
) -> int:
    """Run a plan and show its report.

    Returns:
        The exit code: 0, 1 for a missed gate, or that of the stage that failed.
    """
    store = Store(cache_root(), console.warn)
    if dry_run:
        show_preview(Runner(plan, options, store, console).preview(), console)
        return 0
    alone = names_artifact(options.output)
    final = only_artifact(plan, options) if alone else None
    guard_models(plan, Trust(plan.custom_objects, options.trust_model))
    if options.trust_model:
        console.warn("--trust-model: the model files are loaded whatever they hold")
    place = membership(os.environ)
    if place is not None and not place.is_chief:
        return follow(store.root, place, console)
    with contextlib.ExitStack() as held:
        folder = held.enter_context(store.work_folder()) / "run" if alone else options.output
        logs = store.root / "logs" if alone else None
        mine = replace(options, output=folder, failure_logs=logs)
        runner = Runner(plan, mine, store, console)
        with leading(runner, store.root, place):
            result = runner.run()
        _tell_trackers(trackers or Trackers(), result, console)
        if final is not None:
            result = _keep_artifact(result, final, options.output)
        show_result(result, console)
    return result.exit_code


def _keep_artifact(result: RunResult, final: Step, target: Path) -> RunResult:
    """Copy one step's artifact out of a run folder that goes; a failed run leaves none."""
    kept, stages = None, []
    for stage in result.report.stages:
        if stage.name == final.name and stage.artifact and result.error is None:
            files.make_folder(target.parent)
            files.copy(result.folder / stage.artifact, target)
            kept = str(target.resolve())
        stages.append(replace(stage, artifact=kept))
    report = replace(result.report, stages=tuple(stages))
    return replace(result, folder=target, report=report)


def guard_models(plan: Plan, trust: Trust) -> None:
    """Look into every model file that a plan names, before anything loads it.

    Args:
        plan: what is to run.
        trust: what may pass that is not Keras' own.

    Raises:
        ModelError: a file is damaged, or holds what could do harm, or is a quantized .tflite file
            and is to be quantized.
    """
    sources = [source for step in plan.steps for source in step.inputs.values()]
    references = [source.reference for source in sources if source.reference is not None]
    to_be_quantized = any(step.kind == "quantize" for step in plan.steps)
    for reference in dict.fromkeys(references):
        guard_source(reference.source(trust), to_be_quantized)


def show_result(result: RunResult, console: Console) -> None:
    """Print the report, and the error that ended the run, if there was one."""
    for warning in warnings_of(result.report):
        console.warn(warning.text())
    if console.as_json:
        console.document(to_plain(result.report))
    elif console.quiet:
        console.print(str(result.folder))
    else:
        from shrink.report.text import render_report

        render_report(
            result.report,
            console.rich(),
            run_folder=None if names_artifact(result.folder) else result.folder,
            with_errors=result.error is None,
        )
    if result.error is not None:
        # The report has it too; with --json stdout already carries its one document.
        Console(quiet=console.quiet).error(result.error)
    _tell_ci(result)


def _tell_trackers(trackers: Trackers, result: RunResult, console: Console) -> None:
    """Log the run elsewhere; what fails there is a warning, as the run itself stands."""
    try:
        for line in trackers.publish(result.folder, console):
            console.say(line)
    except ShrinkError as error:
        console.warn(str(error))


def _tell_ci(result: RunResult) -> None:
    """Write the job summary, step outputs and annotations that the environment asks for."""
    from shrink.report import ci

    console = Console()
    for warning in ci.publish(result.report, result.folder):
        console.warn(warning)
    lines = ci.error_annotations(result.error) if result.error else []
    for line in [*lines, *ci.gate_annotations(result.report)]:
        console.say(line)


def show_preview(rows: list[dict[str, Any]], console: Console) -> None:
    """Print what a run would do with each stage."""
    if console.as_json:
        console.document(rows)
        return
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        console.print(f"{row['name']:<{width}}  {row['status']:<7}  {row['why']}")
