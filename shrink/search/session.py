"""A search from its first question to what it leaves behind."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from shrink.base import files
from shrink.base.console import Console
from shrink.base.errors import Interrupted, RecipeError, ShrinkError, StageError, Terminated
from shrink.base.figures import LOSS
from shrink.contract.model_source import Trust
from shrink.contract.report import Figures, Stage
from shrink.contract.searched import SEARCH_NAME, Best, Luck, Searched, Trial
from shrink.report.content import stage_figures
from shrink.run.folder import RESOLVED_NAME
from shrink.run.options import RunOptions
from shrink.run.session import guard_models
from shrink.search.candidates import Candidates
from shrink.search.goal import LATENCY, MAX_DROP, Goal
from shrink.search.looked import Runs, until
from shrink.search.optimism import luck_of
from shrink.search.outliner import Outliner
from shrink.search.output import impossible, show, write
from shrink.search.searching import TRIALS, Budget, Worker, keep_scores, scores_in
from shrink.search.study import Study, open_storage

BEST, BASELINE = "best", "baseline"
JOURNAL = "search.journal"
_MEASURE_S, _OF_OUTLINE = 3.0, 0.6
"""Seconds that measuring one stage of the best point takes at least; and as a share of what the
first outline of a whole chain took here."""


@dataclass(frozen=True)
class Asking:
    """What a search is asked for.

    Attributes:
        limits: by figure.
        max_drop: of the main metric.
        objectives: figures; none for what the limits suggest.
        trials, time_s: when to end; None for no limit.
        sampler, seed: how points are chosen.
        command: that measures latency.
        storage: a file or URL that workers share; None for a file in the folder.
    """

    limits: Mapping[str, float] = field(default_factory=dict)
    max_drop: float | None = None
    objectives: tuple[str, ...] = ()
    trials: int | None = None
    time_s: float | None = None
    sampler: str | None = None
    seed: int = 0
    command: str | None = None
    storage: str | None = None

    def goal(self, metric: str) -> Goal:
        """Return what is looked for."""
        traded = len(self.objectives) > 1
        return Goal(metric, self.limits, self.max_drop, self.objectives, traded)


class Search:
    """A search.

    Args:
        candidates: the recipes that it chooses among.
        asking: what for.
        options: of every run; `output` is the search's folder.
        console: told what happens.

    Attributes:
        runs: what runs a point.
        outliner: what says of a point what it takes untrained.
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
        self.outliner = Outliner(self.runs.store, options.trust_model)
        self.plan = candidates.baseline()
        self._first_outline_s = 0.0

    def run(self) -> int:
        """Search, write what was found, show it, and return the exit code.

        Raises:
            ShrinkError: the search could not begin, or no point keeps to the limits.
        """
        self._check()
        files.make_folder(self.folder)
        with self.runs.store.in_use(), self.outliner as out:
            baseline = self._baseline()
            goal = self.asking.goal(_main_metric(baseline))
            study = self._study(goal)
            worker = self._worker(study, baseline, out)
            stop: ShrinkError | None = None
            try:
                study.begin([*self.candidates.space.first()])
                worker.work()
            except (Interrupted, Terminated) as error:
                stop = error
        if worker.progress.why:
            self.console.say(f"the search ends: {worker.progress.why}")
        return self._finish(study, goal, baseline, stop)

    def _check(self) -> None:
        if self.folder.is_file():
            raise RecipeError("the output folder is a file", subject=self.folder)
        known = files.read_mapping(self.folder / SEARCH_NAME)
        name = self.plan.recipe.name
        ours = known.get("name") == name or (self.folder / JOURNAL).exists()
        holds = self.folder.is_dir() and any(self.folder.iterdir())
        if holds and not ours and not self.options.force:
            raise RecipeError(
                "the output folder holds what no search of this recipe left",
                subject=self.folder,
                hint="choose another folder with --output, or go on with --force",
            )
        guard_models(self.plan, Trust(self.plan.custom_objects, self.options.trust_model))

    def _baseline(self) -> dict[str, float]:
        """Return the baseline's figures on validation examples."""
        self.console.say("the baseline, on validation examples")
        with until(self._deadline()):
            result = self.runs.choose(
                self.plan, self.folder / TRIALS / BASELINE, last=self.plan.baseline.name
            )
        if result.error is not None:
            raise result.error
        keep_scores(result, self.folder / TRIALS / BASELINE)
        return _figures(result.report.stages[0])

    def _deadline(self) -> float | None:
        return None if self.asking.time_s is None else self._started + self.asking.time_s

    def _study(self, goal: Goal) -> Study:
        asking = self.asking
        place = asking.storage or str(self.folder / JOURNAL)
        if self.options.force and asking.storage is None:
            Path(place).unlink(missing_ok=True)
        limits = {**goal.limits, MAX_DROP: goal.max_drop, "objectives": list(goal.objectives)}
        return Study(
            open_storage(place),
            self.plan.recipe.name,
            goal,
            self.candidates.space,
            asking.sampler or ("nsga2" if goal.traded else "tpe"),
            asking.seed,
            self.candidates.identity(limits),
        )

    def _worker(self, study: Study, baseline: Figures, outliner: Outliner) -> Worker:
        deadline = self._deadline()
        with until(deadline):
            self._first_outline_s = outliner.outline(self.plan).duration_s
        if deadline is not None:
            longest = max(len(one.stages or self.plan.steps) for one in study.space.chains)
            deadline -= longest * max(_MEASURE_S, _OF_OUTLINE * self._first_outline_s)
        budget = Budget(self.asking.trials, deadline)
        worker = Worker(
            study,
            self.candidates,
            baseline,
            self.runs,
            outliner,
            self.folder,
            budget,
            self.console,
        )
        worker.beats = self.asking.storage is not None
        return worker

    def _finish(self, study: Study, goal: Goal, baseline: Figures, stop: ShrinkError | None) -> int:
        trials = study.trials()
        chosen = goal.best(trials)
        searched = Searched(
            name=self.plan.recipe.name,
            metric=goal.metric,
            objectives=goal.ranking[: max(1, len(goal.objectives))],
            limits={**goal.limits, **({} if goal.max_drop is None else {MAX_DROP: goal.max_drop})},
            baseline=baseline,
            trials=tuple(trials),
            front=goal.front(trials),
            best=None,
            time_s=0.0,
        )
        code = 0
        if chosen is not None and stop is None:
            try:
                best, code = self._show_best(chosen, trials, goal)
                searched = replace(searched, best=best)
            except (Interrupted, Terminated) as error:
                stop = error
        searched = replace(searched, time_s=round(time.monotonic() - self._started, 1))
        write(searched, self.folder)
        if stop is not None:
            self.console.error(stop)
            return stop.exit_code
        if chosen is None:
            raise StageError(
                f"no point keeps to the limits ({goal.in_words()}): {impossible(trials, goal)}",
                subject=self.folder / SEARCH_NAME,
                hint="allow more of one of them, or search longer: the same command goes on",
            )
        show(searched, self.folder, self.console)
        return code

    def _show_best(self, chosen: Trial, trials: Sequence[Trial], goal: Goal) -> tuple[Best, int]:
        """Run the best point as any other run, measured on the test split, and tell of it."""
        self.console.say(f"point {chosen.number} is the best; its figures on the test split")
        try:
            plan = self.candidates.plan(chosen.settings, gated=True)
        except RecipeError:  # a gate is about a stage that the best point does not have
            plan = self.candidates.plan(chosen.settings)
        result = self.runs.show(plan, self.folder / BEST)
        if result.error is not None:
            raise result.error
        report = result.report
        baseline, last = report.stages[0], report.ends[-1]
        figures = self.runs.figures(report, self.folder / BEST)
        before = _figures(baseline)
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


def _figures(stage: Stage) -> dict[str, float]:
    found = stage_figures(stage)
    return {k: v for k, v in found.items() if k not in ("duration_s", "threads", "examples")}


def _main_metric(baseline: Figures) -> str:
    from shrink.base.figures import figure_of

    metrics = [n for n in baseline if n != LOSS and figure_of(n).group == "metrics"]
    return metrics[0] if metrics else LOSS
