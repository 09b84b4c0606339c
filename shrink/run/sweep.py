"""A sweep: a run for each combination of settings, and a page that compares them.

Runs share what they have in common through the store: a stage whose key another combination has
computed is taken from there. A run that fails does not end the sweep; its exit code is the highest
of all runs', which is 1 where nothing but a gate was missed. Interrupted, it ends at once with the
comparison so far, and the same command goes on.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from shrink.base import files
from shrink.base.cache import REPORT_NAME, cache_root
from shrink.base.console import Console
from shrink.base.errors import Interrupted, RecipeError, ShrinkError, Terminated
from shrink.base.settings import in_words
from shrink.contract.codec import from_plain, to_plain
from shrink.contract.comparison import COMPARE_NAME, Comparison
from shrink.contract.model_source import Trust
from shrink.contract.report import Failure, Report
from shrink.recipe.matrix import Combination, Variants
from shrink.recipe.plan import Plan, build_plan
from shrink.report.comparison import COMPARE_HTML, check_overwritten, render_comparison
from shrink.report.comparison_rows import RunToCompare, compare_runs
from shrink.run.cluster import membership
from shrink.run.options import RunOptions
from shrink.run.parallel import Pool, check_memory
from shrink.run.preview import preview_lines, total_line
from shrink.run.process import attempt
from shrink.run.runner import Runner
from shrink.run.session import guard_models, names_artifact
from shrink.run.store import Store
from shrink.run.supervisor import Attempt
from shrink.run.tool import Trackers

_STOPPED = (Interrupted.exit_code, Terminated.exit_code)


@dataclass(frozen=True)
class PlannedRun:
    """A combination with what is to be run of it, and where."""

    combination: Combination
    plan: Plan
    folder: Path


@dataclass(frozen=True)
class Ended:
    """How the run of a combination ended; nothing of it is there before it has.

    Attributes:
        report: None where it could not begin.
        folder: where it is, which is another than planned where a finished run was kept.
        exit_code: of the run; None where it did not run.
        error: what ended it.
    """

    report: Report | None = None
    folder: Path | None = None
    exit_code: int | None = None
    error: ShrinkError | None = None


@dataclass(frozen=True)
class SweepResult:
    """The comparison of a sweep, and its exit code."""

    comparison: Comparison
    exit_code: int
    error: ShrinkError | None = None


def plan_sweep(variants: Variants, output: Path) -> list[PlannedRun]:
    """Return the plan of every combination, none of which has begun then.

    Raises:
        RecipeError: an order that is illegal, or an output that no sweep can have.
        InputError: a named model or report that is not there.
    """
    if names_artifact(output):
        raise RecipeError(
            f"one file cannot hold the artifacts of {len(variants.each)} runs",
            subject=output,
            hint="name a folder with --output, without .tflite at its end",
        )
    return [
        PlannedRun(one.combination, build_plan(one.loaded), output / one.combination.folder)
        for one in variants.each
    ]


class Sweep:
    """Runs every combination.

    Args:
        planned: from `plan_sweep`.
        options: of all runs; `output` is the sweep's folder.
        repeat: seeds of each combination, if the recipe repeats them.
        console: where progress and warnings are printed.

    Attributes:
        jobs: how many run at a time.
        attempt: runs a job in a worker process, once.
        after: called with each run that has ended.
    """

    def __init__(
        self,
        planned: Sequence[PlannedRun],
        options: RunOptions,
        repeat: int | None,
        console: Console,
    ) -> None:
        self.planned = list(planned)
        self.options = options
        self.repeat = repeat
        self.console = console
        self.jobs = 1
        self.attempt: Attempt = attempt
        self.after: Callable[[PlannedRun, Ended], None] = lambda one, ended: None

    @property
    def name(self) -> str:
        """The recipe's name."""
        return self.planned[0].plan.recipe.name

    def run(self) -> SweepResult:
        """Run what is planned, and write the comparison, whatever became of the runs.

        Raises:
            ShrinkError: the sweep could not begin.
        """
        self._check()
        self.options = replace(self.options, since=datetime.now(UTC).isoformat(timespec="seconds"))
        ended = [Ended() for _ in self.planned]
        stop: ShrinkError | None = None
        try:
            for index, one in self._ends():
                ended[index] = one
                self.after(self.planned[index], one)
                if one.exit_code in _STOPPED and self.jobs == 1:
                    stop = one.error
                    break
        except (Interrupted, Terminated) as error:
            stop = error
        comparison = self._compared(ended)
        codes = [one.exit_code for one in ended if one.exit_code is not None]
        code = stop.exit_code if stop is not None else max(codes, default=0)
        return SweepResult(comparison, code, stop)

    def _ends(self) -> Iterator[tuple[int, Ended]]:
        """Run the combinations, and yield how each ended with its number."""
        if self.jobs > 1:
            yield from self._ends_together()
            return
        for index, one in enumerate(self.planned):
            self.console.say(self._begins(index))
            yield index, run_combination(one, self.options, self.console, self.attempt)

    def _ends_together(self) -> Iterator[tuple[int, Ended]]:
        def work(index: int) -> Ended:
            console = copy.copy(self.console)
            console.prefix = f"[{index + 1}] "
            console.say(self._begins(index))
            return run_combination(self.planned[index], self.options, console, self.attempt)

        for index, answer in Pool(self.jobs).run(len(self.planned), work):
            if isinstance(answer, ShrinkError):
                answer = Ended(exit_code=answer.exit_code, error=answer)
            yield index, answer

    def _begins(self, index: int) -> str:
        title = self.planned[index].combination.title or self.name
        return f"run {index + 1} of {len(self.planned)}: {title}"

    def _check(self) -> None:
        if membership(os.environ) is not None:
            raise RecipeError(
                "a sweep runs on one machine only: others would take part in its first run alone",
                subject="TF_CONFIG",
                hint="run its combinations one by one, or sweep on one machine",
            )
        _check_owner(self.options.output, self.name, self.options.force)
        for one in self.planned:
            guard_models(one.plan, Trust(one.plan.custom_objects, self.options.trust_model))
        if self.jobs > 1:  # refused before anything is computed
            check_memory([one.plan for one in self.planned], self.jobs)
        files.make_folder(self.options.output)

    def _compared(self, ended: Sequence[Ended]) -> Comparison:
        runs = [
            _to_compare(one, end, self.options.output, self.name)
            for one, end in zip(self.planned, ended, strict=True)
        ]
        titled = Comparison(
            rows=(), title=self.name, sweep=True, repeat=self.repeat, jobs=self.jobs
        )
        found = compare_runs(runs, titled)
        files.write_together(self.options.output, render_comparison(found))
        return found


def run_sweep(
    variants: Variants,
    options: RunOptions,
    console: Console,
    *,
    dry_run: bool = False,
    jobs: int = 1,
    trackers: Trackers | None = None,
) -> int:
    """Run every combination of a recipe, show the comparison, and return the exit code."""
    planned = plan_sweep(variants, options.output)
    if dry_run:
        show_dry_run(planned, options, console)
        return 0
    sweep = Sweep(planned, options, variants.repeat, console)
    sweep.jobs = min(jobs, len(planned))
    if trackers is not None:
        sweep.after = lambda one, ended: _tell_trackers(trackers, one, ended, console)
    result = sweep.run()
    show_sweep(result, options.output, console)
    return result.exit_code


def run_combination(
    one: PlannedRun, options: RunOptions, console: Console, worker: Attempt = attempt
) -> Ended:
    """Run one combination into its folder; what goes wrong is in what it returns."""
    try:
        mine = replace(options, output=one.folder)
        runner = Runner(one.plan, mine, Store(cache_root(), console.warn), console)
        runner.attempt = worker
        result = runner.run()
    except ShrinkError as error:
        return Ended(exit_code=error.exit_code, error=error)
    return Ended(result.report, result.folder, result.exit_code, result.error)


def show_dry_run(planned: Sequence[PlannedRun], options: RunOptions, console: Console) -> None:
    """Print every combination with what its run would do with each stage; run nothing."""
    computed: dict[str, str] = {}
    found = []
    for one in planned:
        mine = replace(options, output=one.folder)
        runner = Runner(one.plan, mine, Store(cache_root(), console.warn), console)
        keys, rows = runner.keys(), runner.preview()
        for index, row in enumerate(rows):
            first = computed.setdefault(keys[row.name], one.folder.name)
            if row.status == "compute" and first != one.folder.name:
                rows[index] = replace(row, status="shared", why=f"computed for {first}")
        found.append((one, rows))
    if console.as_json:
        console.document(
            [
                {
                    "settings": one.combination.texts,
                    "folder": str(one.folder),
                    "stages": [to_plain(row) for row in rows],
                }
                for one, rows in found
            ]
        )
        return
    for one, rows in found:
        console.print(f"{one.combination.title or one.plan.recipe.name}  ->  {one.folder}")
        for line in preview_lines(rows):
            console.print(f"  {line}")
    runs = "1 run" if len(found) == 1 else f"{len(found)} runs"
    console.print(f"{runs}, {len(computed)} different stages")
    console.print(total_line([row for _, rows in found for row in rows]))


def _tell_trackers(trackers: Trackers, one: PlannedRun, ended: Ended, console: Console) -> None:
    """Log a run elsewhere, in a folder of its own; what fails there is a warning."""
    if ended.folder is None:
        return
    logs = trackers.tensorboard
    mine = replace(trackers, tensorboard=None if logs is None else logs / one.folder.name)
    mine.tell(ended.folder, console)


def _to_compare(one: PlannedRun, ended: Ended, output: Path, name: str) -> RunToCompare:
    folder = ended.folder or one.folder
    error = None if ended.error is None else from_plain(Failure, ended.error.to_dict())
    group = in_words(one.combination.own)
    return RunToCompare(
        name=one.combination.title or name,
        place=os.path.relpath(folder, output),
        folder=folder,
        report=ended.report,
        settings=one.combination.texts,
        combination=(group or name) if one.combination.is_repeat else None,
        error=error,
    )


def _check_owner(output: Path, name: str, force: bool) -> None:
    """Raise `RecipeError` where the folder is a file, or holds what another recipe left."""
    if output.is_file():
        raise RecipeError(
            "the output folder is a file, which --force does not overwrite",
            subject=output,
            hint="choose another folder with --output",
        )
    if not force:
        check_overwritten(
            output, "choose another folder with --output, or overwrite it with --force"
        )
    known = files.read_mapping(output / COMPARE_NAME)
    run = files.read_mapping(output / REPORT_NAME).get("recipe")
    owners = [known.get("title", "")] if (output / COMPARE_NAME).exists() else []
    owners += [run.get("name")] if isinstance(run, dict) else []
    others = [owner for owner in owners if owner != name]
    if others and not force:
        raise RecipeError(
            f"the output folder holds runs of the recipe {others[0]!r}",
            subject=output,
            hint="choose another folder with --output, or overwrite it with --force",
        )


def show_sweep(result: SweepResult, output: Path, console: Console) -> None:
    """Print the comparison, and the error that ended the sweep, if there was one."""
    for warning in result.comparison.warnings:
        console.warn(warning)
    if console.as_json:
        console.document(to_plain(result.comparison))
    elif console.quiet:
        console.print(str(output))
    else:
        from shrink.report.comparison import render_comparison_terminal

        render_comparison_terminal(result.comparison, console.rich())
        console.print(str(output / COMPARE_HTML))
    if console.as_json or console.quiet:
        for row in result.comparison.rows:
            if row.gates_missed:
                Console().say(f"{row.name}: gates missed: {', '.join(row.gates_missed)}")
    if result.error is not None:
        Console(quiet=console.quiet).error(result.error)
    _tell_ci(result, console)


def _tell_ci(result: SweepResult, console: Console) -> None:
    """Add the comparison to the job summary, and tell of missed gates, where CI reads along."""
    from shrink.report import ci
    from shrink.report.comparison import render_comparison_markdown

    markdown = render_comparison_markdown(result.comparison)
    for warning in ci.publish_comparison(markdown, result.exit_code == 0):
        console.warn(warning)
    if ci.wanted():
        for row in result.comparison.rows:
            for gate in row.gates_missed:
                console.say(f"::error title=gate {gate} missed::{row.name}")
