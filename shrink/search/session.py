"""A search from its first question to what it leaves behind."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from shrink.base import files
from shrink.base.console import Console
from shrink.base.errors import (
    Interrupted,
    RecipeError,
    ResourceError,
    ShrinkError,
    StageError,
    Terminated,
)
from shrink.base.figures import LOSS, figure_of
from shrink.base.foreign import JsonObject
from shrink.contract.model_source import Trust
from shrink.contract.report import DataSet, Figures, Stage
from shrink.contract.searched import SEARCH_NAME, Best, Luck, Searched, Trial
from shrink.recipe.search_config import SAMPLERS
from shrink.report.content import stage_figures
from shrink.run.folder import RESOLVED_NAME
from shrink.run.judged import made_before
from shrink.run.options import RunOptions
from shrink.run.parallel import Pool, share_of_memory
from shrink.run.session import guard_models
from shrink.run.store import Store
from shrink.search.asking import Asking
from shrink.search.candidates import Candidates
from shrink.search.gains import names_known
from shrink.search.goal import LATENCY, MAX_DROP, UNTRAINED, Goal
from shrink.search.keyed import Keyed
from shrink.search.looked import HOST, OutOfTime, Runs, keep_scores, scores_in, until
from shrink.search.optimism import luck_of
from shrink.search.outliner import Outliner
from shrink.search.output import impossible, show, write
from shrink.search.points import TRIALS
from shrink.search.proposing import Looker, Proposer
from shrink.search.relearning import relearning_on
from shrink.search.searching import Budget, Means, Worker
from shrink.search.storage import open_storage
from shrink.search.study import Study

if TYPE_CHECKING:
    from optuna.storages import BaseStorage

BEST, BASELINE = "best", "baseline"
JOURNAL = "search.journal"
_FIRST_AHEAD = 3
"""Points whose sizes are worked out while the baseline is measured, at the most."""
_MEASURE_S, _OF_BASELINE = 2.0, 0.8
"""Seconds that measuring one stage takes at least; and as a share of what starting and measuring
took of the baseline, for which TensorFlow was imported, too."""

_NO_CONTROL = (
    "distill.control is left out of the search: it compares models on test examples; run the best "
    "recipe with --set distill.control=true for it"
)


class Search:
    """A search.

    Args:
        candidates: the recipes that it chooses among.
        asking: what for.
        options: of every run; `output` is the search's folder.
        console: told what happens.

    Attributes:
        runs: what runs a point.
        make_outliner: returns what says of a point what it takes untrained.
        jobs: workers at a time, each in a process of its own.
        stop: what ended the search before its time, once it has.
        exit_code: of the best point's run.
    """

    def __init__(
        self, candidates: Candidates, asking: Asking, options: RunOptions, console: Console
    ) -> None:
        self.candidates, self.asking = candidates, asking
        self.options, self.console = options, console
        self.folder = options.output
        self._started = time.monotonic()
        timed = LATENCY in asking.limits or LATENCY in asking.objectives
        self.runs = Runs(options, timed, asking.command, console)
        self.make_outliner: Callable[[Store, bool], Outliner] = Outliner
        self.plan = candidates.baseline()
        self.jobs = 1
        self.stop: ShrinkError | None = None
        self.exit_code = 0
        self.told: list[str] = []
        self._data: DataSet | None = None

    def run(self) -> int:
        """Search, write what was found, show it, and return the exit code.

        Raises:
            ShrinkError: the search could not begin, or no point keeps to the limits.
        """
        searched = self.find()
        if self.stop is not None:
            self.console.error(self.stop)
            return self.stop.exit_code
        show(searched, self.folder, self.console)
        return self.exit_code

    def find(self) -> Searched:
        """Search, and write what was found; `stop` is what ended it before its time, if anything.

        Raises:
            ShrinkError: the search could not begin, or no point keeps to the limits.
        """
        self._check()
        files.make_folder(self.folder)
        storage = open_storage(self._place)  # what is missing shows before anything is trained
        made = self.make_outliner(self.runs.store, self.options.trust_model)
        with self.runs.store.in_use(), made as out:
            baseline = self._baseline(out)
            goal = self.asking.goal(_main_metric(baseline))
            if self._begin_anew():
                storage = open_storage(self._place)
            study = self._study(goal, storage)
            proposer = self._proposer(study, baseline, out)
            space = self.candidates.space
            study.begin(proposer.begin() if proposer else [*space.first()])
            try:
                budget = self._budget(study)
                if self.jobs > 1:
                    self._work_together(goal, baseline, budget)
                else:
                    self._work(study, baseline, out, budget, proposer)
            except OutOfTime:
                self.console.say("the search ends: the time is over")
            except (Interrupted, Terminated, ResourceError) as error:
                self.stop = error
        self.console.above = None
        return self._finish(study, goal, baseline)

    @property
    def _works_ahead(self) -> bool:
        """Whether sizes are worked out while a point is trained.

        Not where that would disturb what is timed, or take processors from other workers.
        """
        return self.jobs == 1 and not self.runs.latency

    def _work_ahead(self, outliner: Outliner) -> None:
        """Have the sizes of the first points worked out while the baseline is measured.

        Where that is trained first, what follows from it is not known yet: then the process starts.
        """
        outliner.works_ahead = self._works_ahead
        if not self._works_ahead or not self.asking.goal("").asks_of_untrained:
            return
        if self.plan.baseline.epochs:
            with contextlib.suppress(OSError):
                outliner.start()
            return
        looker = Looker(self.candidates, None, Keyed(self.runs.store), expect=outliner.expect)
        looked = [one for one in map(looker.look, self.candidates.space.first()) if one is not None]
        for one in sorted(looked, key=lambda one: not one.trains_nothing)[:_FIRST_AHEAD]:
            looker.work_ahead(one)

    def _proposer(
        self, study: Study, baseline: Figures, outliner: Outliner, worker: int = 0
    ) -> Proposer | None:
        """Return what says which point is next; None where the study's sampler does."""
        if (self.asking.sampler or SAMPLERS[0]) != "gp":
            return None
        why = _why_not_predicted(study.goal, self.asking.warm_starts)
        if why:
            self.console.say(f"points are chosen by the sampler tpe, as {why}")
            return None
        outline = outliner.outline if names_known(study.goal) else None
        expect = outliner.expect if outline is not None and self._works_ahead else None
        relearning = relearning_on(self._data, study.goal.metric)
        looker = Looker(self.candidates, outline, Keyed(self.runs.store), relearning, expect)
        first, seed = self.candidates.space.first(), self.asking.seed + worker
        return Proposer(study.goal, baseline, looker, first, study.draw, seed)

    def _work(
        self,
        study: Study,
        baseline: Figures,
        outliner: Outliner,
        budget: Budget,
        proposer: Proposer | None = None,
    ) -> None:
        """Look at points, as one worker, until the budget is spent."""
        means = Means(self.candidates, self.runs, outliner, self.folder, self.console, proposer)
        worker = Worker(study, baseline, means, budget)
        worker.work()
        self.console.say(f"the search ends: {worker.progress.why}")

    def _work_together(self, goal: Goal, baseline: Figures, budget: Budget) -> None:
        """Have several workers look at points, each in a fork; what fails in one ends that one.

        Raises:
            ShrinkError: that ended the first, where none went on to the end.
        """
        plans = [self.plan] * self.jobs
        pool = Pool(self.jobs, share_of_memory(plans, self.jobs), self.console.say)

        def work(index: int) -> JsonObject:
            self.console.prefix = f"[{index + 1}] "
            study = self._study(goal, worker=index)
            with self.make_outliner(self.runs.store, self.options.trust_model) as outliner:
                proposer = self._proposer(study, baseline, outliner, index)
                self._work(study, baseline, outliner, budget, proposer)
            return {}

        failed = list[ShrinkError]()
        for index, answer in pool.run(self.jobs, work):
            if isinstance(answer, ShrinkError):
                failed.append(answer)
                self.console.warn(f"worker {index + 1} has ended: {answer}")
        if len(failed) == self.jobs:
            raise failed[0]

    def _check(self) -> None:
        if self.folder.is_file():
            raise RecipeError("the output folder is a file", subject=self.folder)
        known = files.read_mapping(self.folder / SEARCH_NAME)
        name = self.plan.recipe.name
        ours = known.get("name") == name or (self.folder / JOURNAL).exists()
        entries = {one.name for one in self.folder.iterdir()} if self.folder.is_dir() else set()
        # A start that failed early leaves the baseline's run alone.
        if entries - {TRIALS} and not ours and not self.options.force:
            raise RecipeError(
                "the output folder holds what no search of this recipe left",
                subject=self.folder,
                hint="choose another folder with --output, or go on with --force",
            )
        if self.jobs > 1 and self.runs.latency == HOST:
            raise RecipeError(
                "latency would be measured on this host while other workers train",
                subject="--jobs",
                hint="leave --jobs out, or measure on the device with latency.command",
            )
        if self.jobs > 1:
            share_of_memory([self.plan] * self.jobs, self.jobs)  # refused before anything begins
        self.candidates.check_gates()
        guard_models(self.plan, Trust(self.plan.custom_objects, self.options.trust_model))

    def _baseline(self, outliner: Outliner) -> dict[str, float]:
        """Return the baseline's figures on validation examples."""
        self.console.say("the baseline, on validation examples")
        late = StageError(
            "the time was over before the baseline was measured",
            subject="--time",
            hint="allow more: the same command goes on from where this one was",
        )
        try:
            with until(self._deadline()):
                self._work_ahead(outliner)
                result = self.runs.choose(
                    self.plan, self.folder / TRIALS / BASELINE, last=self.plan.baseline.name
                )
        except OutOfTime as error:
            raise late from error
        if isinstance(result.error, OutOfTime):
            raise late
        if result.error is not None:
            raise result.error
        keep_scores(result, self.folder / TRIALS / BASELINE)
        self._data = result.report.data
        return _figures(result.report.stages[0])

    def _deadline(self) -> float | None:
        return None if self.asking.time_s is None else self._started + self.asking.time_s

    @property
    def _place(self) -> str:
        return self.asking.storage or str(self.folder / JOURNAL)

    def _begin_anew(self) -> bool:
        """Delete the trials, where `force` asks for it and no other worker shares them."""
        if not self.options.force or self.asking.storage is not None:
            return False
        (self.folder / JOURNAL).unlink(missing_ok=True)
        return True

    def _study(self, goal: Goal, storage: BaseStorage | None = None, worker: int = 0) -> Study:
        asking = self.asking
        limits = {**goal.limits, MAX_DROP: goal.max_drop, "objectives": list(goal.objectives)}
        measured = {"baseline": self.runs.key(self.plan), "latency": self.runs.latency}
        return Study(
            storage or open_storage(self._place),
            self.plan.recipe.name,
            goal,
            self.candidates.space,
            asking.sampler or SAMPLERS[0],
            asking.seed + worker,
            self.candidates.identity({**limits, **measured}),
        )

    def _budget(self, study: Study) -> Budget:
        """Return when to end, with what the last measurement needs set aside."""
        deadline = self._deadline()
        if deadline is not None:
            given = sum(step.config is None for step in self.plan.steps)  # a baseline is no stage
            stages = [one.stages for one in study.space.chains]
            longest = max(len(one) + given if one else len(self.plan.steps) for one in stages)
            deadline -= longest * self._measuring_s()
        return Budget(self.asking.trials, deadline, self.asking.rungs, self.asking.warm_starts)

    def _measuring_s(self) -> float:
        """Return what measuring a stage of the best point takes, as the baseline's did."""
        made = made_before(self.runs.key(self.plan), self.runs.store)
        if made is None or made.result.duration_s is None:
            return _MEASURE_S
        took = made.result.duration_s - made.result.timing.stage_s
        return max(_MEASURE_S, _OF_BASELINE * took)

    def _finish(self, study: Study, goal: Goal, baseline: Figures) -> Searched:
        trials = study.trials()
        every = sorted([*trials, *study.left()], key=lambda one: one.number)
        chosen = goal.best(trials)
        searched = Searched(
            name=self.plan.recipe.name,
            metric=goal.metric,
            objectives=goal.ranking[: max(1, len(goal.objectives))],
            limits={**goal.limits, **({} if goal.max_drop is None else {MAX_DROP: goal.max_drop})},
            baseline=baseline,
            trials=tuple(every),
            front=goal.front(trials),
            best=None,
            time_s=0.0,
            warnings=(_NO_CONTROL,) if self.candidates.leaves_out_control else (),
        )
        failed: ShrinkError | None = None
        if chosen is not None and self.stop is None:
            try:
                best, self.exit_code = self._show_best(chosen, trials, goal)
                searched = replace(searched, best=best)
            except (Interrupted, Terminated) as error:
                self.stop = error
            except ShrinkError as error:  # the points are kept all the same
                failed = error
        searched = replace(searched, warnings=(*searched.warnings, *self.told))
        searched = replace(searched, time_s=round(time.monotonic() - self._started, 1))
        write(searched, self.folder)
        if failed is not None:
            raise failed
        if chosen is None and self.stop is None:
            raise StageError(
                f"no point keeps to the limits ({goal.in_words()}): {impossible(trials, goal)}",
                subject=self.folder / SEARCH_NAME,
                hint="allow more of one of them, or search longer: the same command goes on",
            )
        return searched

    def _show_best(self, chosen: Trial, trials: Sequence[Trial], goal: Goal) -> tuple[Best, int]:
        """Run the best point as any other run, measured on the test split, and tell of it."""
        self.console.say(f"point {chosen.number} is the best; its figures on the test split")
        for gate in self.candidates.gates_without_stage(chosen.settings):
            self.told.append(f"gate {gate} is not checked: the best point has no such stage")
        plan = self.candidates.plan(chosen.settings, gated=True)
        result = self.runs.show(plan, self.folder / BEST)
        if result.error is not None:
            raise result.error
        report = result.report
        for one in report.gates:
            if not one.passed:
                self.told.append(
                    f"the best point misses the recipe's gate {one.name}, so the exit code is 1; "
                    "--flash, --ram and --max-drop are what points keep to"
                )
        baseline, last = report.stages[0], report.ends[-1]
        figures = self.runs.figures(report, self.folder / BEST)
        before = _figures(baseline)
        if self.runs.latency not in ("", HOST):  # a command measures the best alone
            before = {k: v for k, v in before.items() if k not in ("p50_ms", "p90_ms")}
        return Best(
            number=chosen.number,
            recipe=f"{BEST}/{RESOLVED_NAME}",
            artifact=f"{BEST}/{last.artifact}",
            figures=figures,
            baseline=before,
            drop=goal.drop(figures, before),
            luck=self._luck(trials, goal),
        ), result.exit_code

    def _luck(self, trials: Sequence[Trial], goal: Goal) -> Luck | None:
        """Return how much the choice flatters; None where the examples' scores are not here."""
        folders = {one.number: self.folder / one.run for one in trials if one.run is not None}
        scores = {number: scores_in(folder) for number, folder in folders.items()}
        evidence = {n: one[goal.metric] for n, one in scores.items() if goal.metric in one}
        baseline = scores_in(self.folder / TRIALS / BASELINE).get(goal.metric)
        return luck_of(trials, evidence, baseline, goal)


def _why_not_predicted(goal: Goal, warm_starts: bool) -> str:
    """Return why `gp` cannot say which point is next; empty where it can."""
    if warm_starts:
        return "warm starts change what a point is"
    unknown = [name for name in names_known(goal) if name not in UNTRAINED]
    return f"{', '.join(unknown)} is not known of a point before it is trained" if unknown else ""


def _figures(stage: Stage) -> dict[str, float]:
    found = stage_figures(stage)
    return {k: v for k, v in found.items() if k not in ("duration_s", "threads", "examples")}


def _main_metric(baseline: Figures) -> str:
    metrics = [n for n in baseline if n != LOSS and figure_of(n).group == "metrics"]
    return metrics[0] if metrics else LOSS
