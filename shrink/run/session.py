"""One run for a command: checks its output folder, runs the plan, prints the result."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from shrink.base import files, yaml
from shrink.base.cache import FAILED_LOGS, REPORT_NAME, RESOLVED_NAME, cache_root
from shrink.base.console import Console
from shrink.base.errors import RecipeError, ShrinkError
from shrink.base.foreign import Json
from shrink.contract.codec import to_plain
from shrink.contract.model_source import Trust
from shrink.contract.usage import check_free, keep_record, record_of
from shrink.model.reference import ModelReference, refuse_idle_trust
from shrink.recipe.plan import Plan, Step
from shrink.recipe.resolution import resolved_recipe
from shrink.report.content import warnings_of
from shrink.report.gate_lines import missed_sentences
from shrink.run.cluster import membership
from shrink.run.follow import Follower, cluster_folder, leading
from shrink.run.options import RunOptions, RunResult
from shrink.run.preview import show_preview
from shrink.run.runner import Runner
from shrink.run.steps import selected_steps
from shrink.run.store import Store
from shrink.run.tool import Trackers, guard_source

ARTIFACT_SUFFIX = ".tflite"
RUNS = Path("runs")


def names_artifact(output: Path | None) -> bool:
    """Whether `--output` means one artifact; anything but `.tflite` means a run folder."""
    return output is not None and output.suffix == ARTIFACT_SUFFIX and not output.is_dir()


def only_artifact(plan: Plan, options: RunOptions) -> Step:
    """Return the one step whose artifact `--output FILE.tflite` can hold.

    Raises:
        RecipeError: the run ends in a Keras model, or in several artifacts.
    """
    steps, output = selected_steps(plan, options.last), options.output
    finals = [plan.step(name) for name in replace(plan, steps=steps).finals]
    if len(finals) > 1:
        raise RecipeError(
            f"one file cannot hold {len(finals)} artifacts: "
            f"{', '.join(step.name for step in finals)}",
            subject=output,
            hint="name a run folder with --output, without .tflite at its end",
        )
    if finals[0].form != "tflite":
        raise RecipeError(
            f"the stage {finals[0].name!r} ends in a Keras model, not in a .tflite file",
            subject=output,
            hint="name a run folder with --output, and convert with `shrink quantize`",
        )
    return finals[0]


def free_name(plan: Plan, runs: Path = RUNS) -> str:
    """Return the recipe's name, or a longer one where its folder holds another run's result.

    Two runs are alike when model, data, and the schemes or methods of their stages are the
    same; such a run replaces the earlier one. Any other gets a name with its last scheme or method,
    where that differs, or else with a hash.

    Args:
        plan: of a single verb.
        runs: the folder of run folders.
    """
    name, ours = plan.recipe.name, _identity(resolved_recipe(plan))
    there = _identity_in(runs / name)
    if there in (None, ours):
        return name
    if ours[2:] and ours[-1] != there[-1]:
        longer = f"{name}-{ours[-1].rpartition(':')[2]}"
        if _identity_in(runs / longer) in (None, ours):
            return longer
    return f"{name}-{files.json_sha256(ours)[:6]}"


def _identity(recipe: Mapping[str, Json]) -> tuple[str, ...]:
    """Return the model, the data, and the scheme or method of each stage."""
    data = recipe["data"]
    pairs = [pair for entry in recipe["stages"] for pair in entry.items()]
    stages = (f"{kind}:{s.get('scheme') or s.get('method') or kind}" for kind, s in pairs)
    place = data.get("path") or data.get("source")
    return (str(recipe["model"]), str(place), *stages)


def _identity_in(folder: Path) -> tuple[str, ...] | None:
    """Return the identity of the run in a folder; None where no run of shrink has finished."""
    path = folder / RESOLVED_NAME
    stages = files.read_mapping(folder / REPORT_NAME).get("stages")
    try:
        if not stages or not all(stage["artifact"] for stage in stages):
            return None
        return _identity(yaml.load(path).value) if path.is_file() else None
    except (ShrinkError, KeyError, TypeError, AttributeError):
        return None  # the run folder itself refuses what it does not know


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
    if dry_run:
        store = Store(cache_root(), console.warn)
        show_preview(Runner(plan, options, store, console).preview(), console)
        return 0
    result = perform(plan, options, console, trackers)
    if isinstance(result, int):
        return result
    show_result(result, console)
    return result.exit_code


def perform(
    plan: Plan, options: RunOptions, console: Console, trackers: Trackers | None = None
) -> RunResult | int:
    """Run a plan, and show nothing but what happens meanwhile.

    Returns:
        What it left behind; of a machine that only trains along with another, its exit code.
    """
    store = Store(cache_root(), console.warn)
    alone = names_artifact(options.output)
    final = only_artifact(plan, options) if alone else None
    if alone:
        check_free(options.output, options.force, recipe=plan.recipe.name)
    refuse_idle_trust(Trust(everything=options.trust_model), _references(plan))
    guard_models(plan, Trust(plan.custom_objects, options.trust_model))
    if options.trust_model:
        console.warn("--trust-model: the model files are loaded without scanning them for code")
    place = membership(os.environ)
    if place is not None and not place.is_chief:
        return Follower(cluster_folder(store.root, place), place, console).follow()
    with contextlib.ExitStack() as held:
        folder = held.enter_context(store.work_folder()) / "run" if alone else options.output
        logs = store.root / FAILED_LOGS if alone else None
        mine = replace(options, output=folder, failure_logs=logs)
        runner = Runner(plan, mine, store, console)
        with leading(runner, store.root, place):
            result = runner.run()
        (trackers or Trackers()).tell(result.folder, console)
        return result if final is None else _keep_artifact(result, final, options.output, console)


def _keep_artifact(result: RunResult, final: Step, target: Path, console: Console) -> RunResult:
    """Copy one step's artifact out of a run folder that goes; a failed run leaves none."""
    kept, stages = None, []
    for stage in result.report.stages:
        if stage.name == final.name and stage.artifact and result.error is None:
            files.make_folder(target.parent)
            files.write_bytes(target, (result.folder / stage.artifact).read_bytes())
            keep_record(target, record_of(result.folder / stage.artifact), console.warn)
            kept = str(target.resolve())
        stages.append(replace(stage, artifact=kept))
    report = replace(result.report, stages=tuple(stages))
    return replace(result, folder=target, report=report)


def guard_models(plan: Plan, trust: Trust) -> None:
    """Try every .tflite file that a plan names, before anything loads it.

    Args:
        plan: what is to run.
        trust: what may pass that is not Keras' own.

    Raises:
        ModelError: a file is damaged, or holds what could do harm, or is a quantized .tflite file
            and is to be quantized.
    """
    to_be_quantized = any(step.kind == "quantize" for step in plan.steps)
    for reference in _references(plan):
        guard_source(reference.source(trust), to_be_quantized)


def _references(plan: Plan) -> list[ModelReference]:
    """Return the models that a plan names, each once."""
    sources = [source for step in plan.steps for source in step.inputs.values()]
    return list(dict.fromkeys(one.reference for one in sources if one.reference is not None))


def show_result(result: RunResult, console: Console) -> None:
    """Print the report, and the error that ended the run, if there was one."""
    for warning in warnings_of(result.report):
        console.warn(warning.text())
    if console.as_json:
        console.document(to_plain(result.report))
    elif console.quiet:
        console.print(str(result.folder))
    else:
        from shrink.report.sections import render_report

        render_report(
            result.report,
            console.rich(),
            run_folder=None if names_artifact(result.folder) else result.folder,
            with_errors=result.error is None,
            with_notes=console.notes,
        )
    if console.as_json or console.quiet:
        for sentence in missed_sentences(result.report):
            Console().say(sentence)  # the only line of a CI job's log that says why it is red
    if result.error is not None:
        # The report has it too; with --json stdout already carries its one document.
        Console(quiet=console.quiet).error(result.error)
    tell_ci(result)


def tell_ci(result: RunResult) -> None:
    """Write the job summary, step outputs and annotations that the environment asks for."""
    from shrink.report import ci

    console = Console()
    for warning in ci.publish(result.report, result.folder):
        console.warn(warning)
    lines = ci.error_annotations(result.error) if result.error else []
    for line in [*lines, *ci.gate_annotations(result.report)]:
        console.say(line)
