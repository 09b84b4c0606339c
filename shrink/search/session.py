"""A search: measures the baseline, trains trial after trial, and measures the best on test data."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from shrink.base import files
from shrink.base.cache import RESOLVED_NAME, cache_root
from shrink.base.console import Console
from shrink.base.errors import (
    VALIDATION_FIGURES,
    Interrupted,
    ModelError,
    RecipeError,
    ReportWarning,
    ResourceError,
    ShrinkError,
    StageError,
    Terminated,
)
from shrink.base.figures import DURATION, LOSS, figure_of
from shrink.base.foreign import JsonObject
from shrink.base.intervals import limit_below_resolution
from shrink.contract.job import Outline
from shrink.contract.model_source import Trust
from shrink.contract.report import Figures, Stage
from shrink.contract.result import Evidence, scores_from_plain, scores_to_plain
from shrink.contract.search import SEARCH_NAME, Best, Searched, Trial, TrialStatus
from shrink.contract.usage import check_free, keep_record, record_of
from shrink.recipe.plan import Plan
from shrink.recipe.resolution import recipe_sha256
from shrink.report.content import stage_figures
from shrink.run.options import RunOptions, RunResult
from shrink.run.parallel import Pool, check_memory
from shrink.run.process import attempt
from shrink.run.runner import Runner
from shrink.run.session import guard_models, names_artifact, only_artifact
from shrink.run.store import Store
from shrink.run.stored_step import made_before
from shrink.run.supervisor import Attempt
from shrink.search.candidates import Candidates
from shrink.search.choose import Chooser, Sizes, Steps
from shrink.search.goal import (
    LATENCIES,
    MAX_DROP,
    SIZE,
    UNTRAINED,
    Goal,
    broken_gates,
    goal_of,
)
from shrink.search.output import SearchProgress, impossible, show_search, write
from shrink.search.space import Settings, settings_text
from shrink.search.trials import Journal, Trials, read_journal
from shrink.stages.quantize.config import QuantizeConfig

BEST, BASELINE, TRIALS = "best", "baseline", "trials"
JOURNAL, SCORES = "search.journal", "scores.json"
_ALWAYS = frozenset({TRIALS, JOURNAL, f".{JOURNAL}.choosing.lock", f".{JOURNAL}.writing.lock"})
"""What a search leaves in its folder before it has measured the baseline."""
_MEASURE_S, _OF_BASELINE, _MOST_RESERVED = 2.0, 0.8, 0.25
"""Seconds that measuring one stage of the best trial takes at least, and as a fraction of what
starting and measuring the baseline took; the largest fraction of `--time` that is reserved for it.
"""
_COMMAND_S = 600.0
_UNTRAINED_IN_A_ROW, _OUT_OF_MEMORY_IN_A_ROW = 100, 3
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_NO_CONTROL = (
    "distill.control is left out of the search, because it compares models on test examples; "
    "`shrink run` the best recipe with --set distill.control=true for it"
)


class OutOfTime(Terminated):
    """The time of a search is over."""


@contextlib.contextmanager
def until(deadline: float) -> Iterator[None]:
    """Raise `OutOfTime` in the block at a time of `time.monotonic`.

    By SIGALRM, so in the main thread alone; elsewhere the block is not ended.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if math.isinf(deadline) or not is_main:
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise OutOfTime("the time of the search is over")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(deadline - time.monotonic(), 0.01))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Runs:
    """Runs the plans of trials, and returns their figures.

    Args:
        options: of every run; `output` is the folder of the search.
        timed: whether the latency of trials is measured.
        command: that measures latency instead of this host; None for none.
        console: where progress and warnings are printed.

    Attributes:
        store: of finished steps.
        attempt: runs a job in a worker process, once.
    """

    def __init__(
        self, options: RunOptions, timed: bool, command: str | None, console: Console
    ) -> None:
        self._options, self._command, self._console = options, command, console
        self._timed = timed and command is None
        self.store = Store(cache_root(), console.warn)
        self.attempt: Attempt = attempt

    def choose(self, plan: Plan, folder: Path, last: str | None = None) -> RunResult:
        """Run a plan up to a step, measured on validation examples."""
        options = replace(
            self._options,
            output=folder,
            force=True,
            last=last,
            measured_on="validation",
            timed=self._timed,
        )
        runner = self._runner(plan, options)
        message = "metrics are of validation examples: this run is a trial of a search"
        runner.warnings.append(ReportWarning(VALIDATION_FIGURES, message))
        return runner.run()

    def show(self, plan: Plan, folder: Path) -> RunResult:
        """Run a plan as any other: measured on test examples."""
        return self._runner(plan, replace(self._options, output=folder, force=True)).run()

    def baseline_key(self, plan: Plan) -> str:
        """Return the key of a plan's baseline: its model's code and data are in it."""
        return self._runner(plan, self._options).keys()[plan.baseline.name]

    def _runner(self, plan: Plan, options: RunOptions) -> Runner:
        runner = Runner(plan, options, self.store, self._console)
        runner.attempt = self.attempt
        return runner

    def figures(self, result: RunResult, folder: Path) -> dict[str, float]:
        """Return the figures of a run's last stage, its latency by the user's command.

        Raises:
            StageError: the command failed.
        """
        stage = result.report.ends[-1]
        found = trial_figures(stage)
        if self._command is not None and stage.artifact is not None:
            found = {name: value for name, value in found.items() if name not in LATENCIES}
            found["p50_ms"] = measured_by(self._command, folder / stage.artifact)
        return found


def measured_by(command: str, artifact: Path) -> float:
    """Return the last number that a command prints: milliseconds.

    Args:
        command: for a shell; `{artifact}` in it stands for the file.
        artifact: the .tflite file.

    Raises:
        StageError: it fails, takes too long, or prints no number.
    """
    text = command.replace("{artifact}", shlex.quote(str(artifact.resolve())))
    try:
        ended = subprocess.run(
            text, shell=True, capture_output=True, text=True, timeout=_COMMAND_S, check=False
        )
    except subprocess.TimeoutExpired as late:
        raise StageError(
            f"it took longer than {_COMMAND_S:g} s", subject="latency.command"
        ) from late
    numbers = _NUMBER.findall(ended.stdout)
    if ended.returncode != 0 or not numbers or math.isinf(float(numbers[-1])):
        last = (ended.stderr or ended.stdout).strip().splitlines()[-1:]
        how = f"exit {ended.returncode}" if ended.returncode else "it printed no number"
        raise StageError(
            f"{how}: {''.join(last)[:200]}",
            subject="latency.command",
            hint="print a latency in milliseconds as the last number",
        )
    return float(numbers[-1])


def trial_figures(stage: Stage) -> dict[str, float]:
    """Return the figures of a stage that a search may be about."""
    return {name: value for name, value in stage_figures(stage).items() if name != DURATION}


def scores_in(folder: Path) -> dict[str, Evidence]:
    """Return the scores of examples that the metrics of a run were computed from, if known."""
    return scores_from_plain(files.read_mapping(folder / SCORES))


class Search:
    """A search.

    Args:
        candidates: the recipes that it chooses among, and what for.
        options: of every run; `output` is the search's folder, or a .tflite file for the best.
        console: where progress and warnings are printed.

    Attributes:
        runs: what runs a trial.
        make_sizes: returns what finds exact sizes.
        jobs: workers at a time, each in a process of its own.
        stop: what ended the search before its time, once it has.
        exit_code: of the best trial's run.
    """

    def __init__(self, candidates: Candidates, options: RunOptions, console: Console) -> None:
        self.artifact = options.output if names_artifact(options.output) else None
        if self.artifact is not None:
            options = replace(options, output=candidates.folder)
        self.candidates, self.config = candidates, candidates.config
        self.options, self.console = options, console
        self.folder = options.output
        command = None if self.config.latency is None else self.config.latency.command
        self.runs = Runs(options, candidates.timed, command, console)
        self.make_sizes: Callable[[Steps, bool], Sizes] = Sizes
        self.plan = candidates.baseline()
        self.jobs = 1
        self.stop: ShrinkError | None = None
        self.exit_code = 0
        self._started = time.monotonic()
        self._notes: list[str] = []

    def run(self) -> int:
        """Search, write what was found, show it, and return the exit code.

        Raises:
            ShrinkError: the search could not begin, or no trial keeps the limits.
        """
        searched = self.find()
        if self.stop is not None:
            self.console.error(self.stop)
            return self.stop.exit_code
        show_search(searched, self.folder, self.console, self.artifact)
        return self.exit_code

    def find(self) -> Searched:
        """Search, and write what was found; `stop` is what ended it before its time, if anything.

        Raises:
            ShrinkError: the search could not begin, or no trial keeps the limits.
        """
        self._check()
        files.make_folder(self.folder)
        store = self.runs.store
        store.sweep()  # its runs cannot, as the search uses the store meanwhile
        with (
            store.in_use(),
            store.lock(f"search-{_digest(str(self.folder.resolve()))}", self._wait),
        ):
            for folder in (self.folder, *(self.folder / TRIALS).glob("*")):
                files.remove_leftovers(folder)
            if self.options.force and self.config.storage is None:
                (self.folder / JOURNAL).unlink(missing_ok=True)
            files.make_folder(self._journal.parent)
            if self._journal.exists():  # what cannot be read is refused before anything is trained
                read_journal(self._journal)
            baseline = self._baseline()
            gates, last = self.candidates.gates, self.plan.finals[-1]
            goal = goal_of(self.config, gates, last, _main_metric(baseline), baseline)
            scores = scores_in(self.folder / TRIALS / BASELINE).get(goal.metric)
            limit = goal.max_drop or 0.0
            if found := limit_below_resolution(goal.metric, limit, scores, "validation"):
                self._notes.append(f"{found.message}; {found.hint}")
            trials = self.trials(goal)
            trials.stop_dead(mine=True)
            try:
                if self.jobs > 1:
                    self._work_together(goal, baseline)
                else:
                    self._work(goal, baseline)
            except OutOfTime:
                self.console.say(f"the search ends: {self.time_is_over}")
            except (Interrupted, Terminated, ResourceError) as error:
                self.stop = error
            self.console.above = None
            trials.stop_dead(mine=True)
            return self._finish(trials.read().trials, goal, baseline)

    @property
    def _journal(self) -> Path:
        return Path(self.config.storage) if self.config.storage else self.folder / JOURNAL

    @property
    def deadline(self) -> float:
        """When everything is to be over, by `time.monotonic`."""
        return math.inf if self.config.time is None else self._started + self.config.time

    def _wait(self) -> None:
        self.console.say(f"another search is writing to {self.folder}; waiting for it")

    def _check(self) -> None:
        """Check folder, flags, gates and models before anything is written.

        Raises:
            RecipeError: the folder holds other files, or the recipe or a flag is wrong.
        """
        if self.folder.is_file():
            raise RecipeError("the output folder is a file", subject=self.folder)
        known = files.read_mapping(self.folder / SEARCH_NAME)
        ours = known.get("name") == self.plan.recipe.name or (self.folder / JOURNAL).exists()
        entries = [one.name for one in self.folder.iterdir()] if self.folder.is_dir() else []
        kept = [n for n in entries if not n.startswith(files.TEMPORARY_PREFIX) and n not in _ALWAYS]
        if kept and not ours and not self.options.force:
            raise RecipeError(
                "the output folder contains files that do not belong to a search of this recipe",
                subject=self.folder,
                hint="choose another folder with --output, or use this one with --force",
            )
        if self.artifact is not None:
            only_artifact(self.plan, replace(self.options, output=self.artifact))
            check_free(self.artifact, self.options.force, recipe=self.plan.recipe.name)
        if self.jobs > 1 and self.candidates.timed and self.config.latency is None:
            raise RecipeError(
                "latency would be measured on this host while other workers train",
                subject="--jobs",
                hint="leave --jobs out, or measure on the device with latency.command",
            )
        if self.jobs > 1:
            check_memory([self.plan] * self.jobs, self.jobs)  # refused before anything begins
        self.candidates.check_gates()
        guard_models(self.plan, Trust(self.plan.custom_objects, self.options.trust_model))

    def _baseline(self) -> dict[str, float]:
        """Return the baseline's figures on validation examples."""
        self.console.say("the baseline, on validation examples")
        folder = self.folder / TRIALS / BASELINE
        late = StageError(
            "the time ran out before the baseline was measured",
            subject="--time",
            hint="allow more: the same command continues from here",
        )
        try:
            with until(self.deadline):
                result = self.runs.choose(self.plan, folder, last=self.plan.baseline.name)
        except OutOfTime as error:
            raise late from error
        if isinstance(result.error, OutOfTime):
            raise late
        if result.error is not None:
            raise result.error
        _keep_scores(result, folder)
        return trial_figures(result.report.stages[0])

    def trials(self, goal: Goal) -> Trials:
        """Return the trials of the search."""
        limits = {**goal.limits, MAX_DROP: goal.max_drop, "objectives": list(goal.objectives)}
        command = None if self.config.latency is None else self.config.latency.command
        measured = {"baseline": self.runs.baseline_key(self.plan), "latency": command}
        identity = self.candidates.identity({**limits, **measured})
        owner = _digest(f"{platform.node()}:{self.folder.resolve()}")
        return Trials(self._journal, identity, owner)

    def _work_together(self, goal: Goal, baseline: Figures) -> None:
        """Have several workers train trials, each in a fork; an error in one ends that one.

        Raises:
            ShrinkError: that ended the first, where none went on to the end.
        """
        pool = Pool(self.jobs)

        def work(index: int) -> JsonObject:
            self.console.prefix = f"[{index + 1}] "
            self._work(goal, baseline, index)
            return {}

        failed = list[ShrinkError]()
        for index, answer in pool.run(self.jobs, work):
            if isinstance(answer, ShrinkError):
                failed.append(answer)
                self.console.warn(f"worker {index + 1} has ended: {answer}")
        if len(failed) == self.jobs:
            raise failed[0]

    def _work(self, goal: Goal, baseline: Figures, index: int = 0) -> None:
        worker = Worker(self, goal, baseline, index)
        worker.work()
        self.console.say(f"the search ends: {worker.why}")

    def reserve_s(self) -> float:
        """Return the seconds reserved for measuring the best trial on test examples.

        It is estimated from the baseline; the measurement itself is never cut short.
        """
        given = sum(step.config is None for step in self.plan.steps)  # a baseline is no stage
        chains = [one.stages for one in self.candidates.space.chains]
        longest = max(len(one) + given if one else len(self.plan.steps) for one in chains)
        made = made_before(self.runs.baseline_key(self.plan), self.runs.store)
        took = 0.0
        if made is not None and made.result.duration_s is not None:
            took = made.result.duration_s - made.result.stage_s
        most = math.inf if self.config.time is None else _MOST_RESERVED * self.config.time
        return min(most, longest * max(_MEASURE_S, _OF_BASELINE * took))

    @property
    def time_is_over(self) -> str:
        """Why a search ends whose time is over."""
        return (
            f"the time is over ({self.reserve_s():.0f} of {self.config.time or 0:.0f} s are "
            "reserved for measuring the best trial on the test split)"
        )

    def _finish(self, trials: list[Trial], goal: Goal, baseline: Figures) -> Searched:
        chosen = goal.best(trials)
        limits = dict(goal.limits) | ({} if goal.max_drop is None else {MAX_DROP: goal.max_drop})
        searched = Searched(
            name=self.plan.recipe.name,
            metric=goal.metric,
            objectives=goal.ranking[: max(1, len(goal.objectives))],
            limits=limits,
            baseline=baseline,
            trials=tuple(trials),
            front=goal.front(trials),
            best=None,
            time_s=0.0,
        )
        self._notes += [_NO_CONTROL] if self.candidates.leaves_out_control else []
        failed: ShrinkError | None = None
        if chosen is not None and self.stop is None:
            try:
                best = self._show_best(chosen, goal)
                searched = replace(searched, best=best)
                if self.artifact is not None:
                    files.make_folder(self.artifact.parent)
                    with files.replacing(self.artifact) as temporary:
                        shutil.copyfile(self.folder / best.artifact, temporary)
                    known = record_of(self.folder / best.artifact)
                    keep_record(self.artifact, known, self.console.warn)
            except (Interrupted, Terminated) as error:
                self.stop = error
            except ShrinkError as error:  # the trials are kept all the same
                failed = error
        took = round(time.monotonic() - self._started, 1)
        searched = replace(searched, warnings=tuple(self._notes), time_s=took)
        write(searched, self.folder)
        if failed is not None:
            raise failed
        if chosen is None and self.stop is None:
            raise StageError(
                f"no trial keeps the limits ({goal.in_words()}): {impossible(trials, goal)}",
                subject=self.folder / SEARCH_NAME,
                hint=f"raise one of the limits, or search longer: {self._longer}",
            )
        return searched

    @property
    def _longer(self) -> str:
        if self.config.time is None:
            return "the same command continues"
        return f"the same command with --time {math.ceil(2 * self.config.time / 60)}m continues"

    def _show_best(self, chosen: Trial, goal: Goal) -> Best:
        """Run the best trial as any other run, measured on the test split."""
        self.console.say(f"trial {chosen.number} is the best; its figures on the test split")
        gates = self.candidates.gates_of(chosen.settings)
        for gate in self.candidates.gates:
            if gate not in gates:
                self._notes.append(f"gate {gate} is not checked: the best trial has no such stage")
        plan = self.candidates.plan(chosen.settings, gates)
        result = self.runs.show(plan, self.folder / BEST)
        if result.error is not None:
            raise result.error
        self.exit_code = result.exit_code
        report = result.report
        self._notes += [
            f"the best trial misses the recipe's gate {one.name} on the test split: exit code 1"
            for one in report.gates
            if not one.passed and one.level == "fail"
        ]
        if not goal.keeps(chosen.drop_bound):
            self._notes.append(
                "no trial keeps the drop with confidence: the best is the nearest to it. More "
                "validation examples (data.validation_split) or a longer search may help"
            )
        quantized = [s.config for s in plan.steps if isinstance(s.config, QuantizeConfig)]
        if SIZE in goal.limits and not all(one.runs_in_micro for one in quantized):
            self._notes.append(
                "the best file runs in LiteRT, not in TFLite Micro; --ram limits the search to "
                "files for microcontrollers"
            )
        last, before = report.ends[-1], trial_figures(report.stages[0])
        if self.config.latency is not None:  # the command measures the best alone
            before = {name: value for name, value in before.items() if name not in LATENCIES}
        figures = self.runs.figures(result, self.folder / BEST)
        return Best(
            number=chosen.number,
            recipe=f"{BEST}/{RESOLVED_NAME}",
            artifact=f"{BEST}/{last.artifact}",
            figures=figures,
            baseline=before,
            drop=goal.drop(figures, before),
        )


@dataclass(frozen=True)
class _Begun:
    """A trial that a worker has begun, at a time of `time.monotonic`."""

    number: int
    settings: Settings
    at: float


class Worker:
    """Trains one trial after the other until the budget is spent.

    Args:
        search: that it works for.
        goal: of the search.
        baseline: figures on validation examples.
        index: of the worker.

    Attributes:
        why: it ended, for people.
        chooser: chooses the next trial.
    """

    def __init__(self, search: Search, goal: Goal, baseline: Figures, index: int) -> None:
        self.search, self.goal, self.baseline = search, goal, baseline
        self.candidates, self.runs, self.console = search.candidates, search.runs, search.console
        self.trials, steps = search.trials(goal), Steps(search.runs.store)
        self._sizes = search.make_sizes(steps, search.options.trust_model)
        seed = search.config.seed + index
        self.chooser = Chooser(goal, baseline, search.candidates, steps, self._sizes, seed)
        self.trials.begin(self.chooser.begin())
        self._deadline = search.deadline - search.reserve_s()
        self._untrained = self._out_of_memory = 0
        self._longest_s = 0.0
        self._warned = set[str]()
        self._progress = SearchProgress(goal, self._deadline)
        self.console.above = self._progress.so_far
        self.why = ""

    def work(self) -> None:
        """Train trials until the budget is spent, or none promises an improvement.

        Raises:
            Interrupted, Terminated: by the user; the trial is left to the next worker.
            ResourceError: memory or disk gave out for several trials in a row; the same.
        """
        try:
            while not self.why:
                with self.trials.choosing():
                    begun = self._next()
                if begun is not None:
                    self._try(begun)
        except OutOfTime:
            self.why = self.search.time_is_over

    def _next(self) -> _Begun | None:
        """Begin the next trial, alone with the choice; None where `why` says that there is none."""
        self.trials.stop_dead()
        journal = self.trials.read()
        trained = sum(one.run is not None for one in journal.trials)
        most = self.search.config.trials
        if most is not None and trained + len(journal.running) >= most:
            self.why = f"{trained} trials were trained"
        elif self._untrained >= _UNTRAINED_IN_A_ROW:
            self.why = f"{self._untrained} trials in a row are too large to be worth training"
        elif time.monotonic() >= self._deadline:
            self.why = self.search.time_is_over
        while not self.why:
            journal = self.trials.read()
            settings = journal.waiting[0] if journal.waiting else self._choose(journal)
            if settings is None:
                self.why = "no other settings promise an improvement"
            elif (begun := self._begin(settings)) is not None:
                return begun
        return None

    def _choose(self, journal: Journal) -> Settings | None:
        try:
            with until(self._deadline):
                return self.chooser.next(journal, self._deadline - time.monotonic())
        finally:  # also when the time is over: the next search need not compute their sizes again
            for one in self.chooser.rejected.values():
                if (begun := self._begin(one.settings)) is not None:
                    self._end_untrained(begun, one.outline or Outline(figures={}))

    def _begin(self, settings: Settings) -> _Begun | None:
        """Begin a trial; None where its settings give no recipe, or that of another trial."""
        recipe, error = None, ""
        try:
            recipe = recipe_sha256(self.candidates.plan(settings))
        except (RecipeError, ModelError) as raised:
            error = raised.message
        if (number := self.trials.start(settings, recipe)) is None:
            return None
        begun = _Begun(number, settings, time.monotonic())
        if recipe is not None:
            return begun
        self._end(begun, "failed", error=error)
        return None

    def _try(self, begun: _Begun) -> None:
        """Train a trial, unless its sizes break a limit.

        Its sizes are not computed before if no time would be left to train it.
        """
        outline, plan = Outline(figures={}), self.candidates.plan(begun.settings)
        left_s = self._deadline - time.monotonic()
        if any(name in UNTRAINED for name in self.goal.names) and self.chooser.can_size(
            plan, self.trials.read(), left_s
        ):
            with until(self._deadline):
                outline = self._sizes.of(plan)
        self._untrained += 1
        if self._end_untrained(begun, outline):
            return
        if outline.error and outline.error not in self._warned:
            self._warned.add(outline.error)
            self.console.warn(f"a trial is trained before its size is known: {outline.error}")
        self._untrained = 0
        if self._deadline - time.monotonic() < 0.5 * self._longest_s:
            raise OutOfTime("another trial would take longer than is left")
        self._train(begun)
        self._longest_s = max(self._longest_s, time.monotonic() - begun.at)

    def _end_untrained(self, begun: _Begun, outline: Outline) -> bool:
        """End a trial whose sizes break a limit, or one of whose stages would fail."""
        if outline.stage_failed:
            self._end(begun, "failed", error=outline.error or "a stage would fail")
            return True
        if broken := self.goal.broken_by(outline):
            known = {k: v for k, v in outline.figures.items() if v is not None and k in UNTRAINED}
            self._end(begun, "infeasible", figures=known, broken=broken)
        return bool(broken)

    def _train(self, begun: _Begun) -> None:
        self.console.say(f"trial {begun.number}: {settings_text(begun.settings)}")
        place = f"{TRIALS}/{begun.number:04d}"
        folder = self.search.folder / place
        error: ShrinkError | None = None
        try:
            with until(self._deadline):
                gates = self.candidates.trial_gates(begun.settings)
                result = self.runs.choose(self.candidates.plan(begun.settings, gates), folder)
                error = result.error
                if isinstance(error, Interrupted | Terminated):
                    raise error
                figures = {} if error else self.runs.figures(result, folder)
                _keep_scores(result, folder)
        except (Interrupted, Terminated):
            raise
        except ShrinkError as raised:
            error = raised
        lacks = isinstance(error, ResourceError)
        self._out_of_memory = self._out_of_memory + 1 if lacks else 0
        if error is not None:
            if self._out_of_memory >= _OUT_OF_MEMORY_IN_A_ROW:
                raise error
            self._end(begun, "failed", run=place, error=error.message)
            return
        scores = [scores_in(one) for one in (self.search.folder / TRIALS / BASELINE, folder)]
        before, after = (one.get(self.goal.metric) for one in scores)
        bound = None if self.goal.max_drop is None else self.goal.drop_bound(before, after)
        missed = broken_gates(result.report.gates)
        broken = tuple(dict.fromkeys((*self.goal.broken(figures, self.baseline), *missed)))
        trial = self._end(
            begun, "done", figures=figures, broken=broken, drop_bound=bound, run=place
        )
        self.console.say(self._progress.line(trial, self.trials.read().trials))

    def _end(
        self,
        begun: _Begun,
        status: TrialStatus,
        *,
        figures: Figures | None = None,
        broken: tuple[str, ...] = (),
        drop_bound: float | None = None,
        run: str | None = None,
        error: str | None = None,
    ) -> Trial:
        """Record how a trial ended."""
        trial = Trial(
            number=begun.number,
            settings=begun.settings,
            figures=figures or {},
            feasible=status == "done" and not broken,
            status=status,
            broken=broken,
            drop_bound=drop_bound,
            duration_s=round(time.monotonic() - begun.at, 1),
            run=run,
            error=error,
        )
        self.trials.end(trial)
        if error:
            self.console.say(f"trial {trial.number}: {error}")
        return trial


def _keep_scores(result: RunResult, folder: Path) -> None:
    """Keep what the metrics of a run's last stage were computed from, by example."""
    stage = result.report.ends[-1].name
    files.write_json(folder / SCORES, scores_to_plain(result.scores.get(stage, {})))


def _main_metric(baseline: Figures) -> str:
    metrics = [n for n in baseline if n != LOSS and figure_of(n).group == "metrics"]
    return metrics[0] if metrics else LOSS


def _digest(text: str) -> str:
    return hashlib.sha256(os.fsencode(text)).hexdigest()
