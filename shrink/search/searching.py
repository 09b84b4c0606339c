"""One worker of a search: asks for a point, looks at it, tells what became of it, and again."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from shrink.base.console import Console
from shrink.base.errors import (
    Interrupted,
    ModelError,
    RecipeError,
    ResourceError,
    ShrinkError,
    Terminated,
)
from shrink.base.foreign import Json
from shrink.contract.job import Outline
from shrink.contract.report import Figures
from shrink.contract.searched import Rung, Trial
from shrink.recipe.plan import Plan
from shrink.recipe.resolved import recipe_sha256
from shrink.search.candidates import Candidates
from shrink.search.goal import SLACK
from shrink.search.looked import OutOfTime, Runs, keep_scores, until
from shrink.search.outliner import Outliner
from shrink.search.points import (
    failed,
    in_words,
    place_of,
    place_of_rung,
    rung_of,
    untrained,
    worth,
)
from shrink.search.proposing import Known, Proposer
from shrink.search.rungs import (
    SHARES,
    Ladder,
    Reached,
    most_gained,
    pays,
    training_share,
)
from shrink.search.space import Settings
from shrink.search.study import Asked, Study
from shrink.search.telling import Telling
from shrink.search.warm import warmed

_DULL_IN_A_ROW, _KNOWN_IN_A_ROW, _UNABLE_IN_A_ROW, _SPENT_IN_A_ROW = 20, 20, 100, 3
_KNOWN_BEFORE_CHANCE = 3
"""Known points in a row after which a new one is drawn at random."""
_BEAT_S = 20.0


@dataclass(frozen=True)
class Budget:
    """When a search ends.

    Attributes:
        trials: that are trained, over all workers; None for no limit.
        deadline: by `time.monotonic`, of the last training; None for no limit.
        rungs: shares of the epochs that points are trained for first; None for what pays.
        warm_starts: whether points go on from the nearest that was trained.
    """

    trials: int | None
    deadline: float | None
    rungs: tuple[float, ...] | None = None
    warm_starts: bool = False


@dataclass
class Progress:
    """What a worker has seen.

    Attributes:
        longest_s: that a point took.
        dull, known, unable: points in a row that could win nothing, that were known already, or
            that cannot keep to the limits.
        spent: points in a row that the environment gave out for.
        training: share of a point's seconds that was training; None before one is known.
        why: it ended, for people.
    """

    longest_s: float = 0.0
    dull: int = 0
    known: int = 0
    unable: int = 0
    spent: int = 0
    training: float | None = None
    why: str = ""


@dataclass(frozen=True)
class Means:
    """What a worker looks at points with.

    Attributes:
        candidates: the recipes that points stand for.
        runs: what runs a point.
        outliner: what says of a point what it takes untrained.
        folder: of the search.
        console: told what happens.
        proposer: says which point is next; None for the study's sampler.
    """

    candidates: Candidates
    runs: Runs
    outliner: Outliner
    folder: Path
    console: Console
    proposer: Proposer | None = None


class Worker:
    """Looks at points until the budget is spent.

    Args:
        study: that points are asked of, and told to; its goal is what is looked for.
        baseline: figures on validation examples.
        means: what runs points, and where.
        budget: when to end.
    """

    def __init__(self, study: Study, baseline: Figures, means: Means, budget: Budget) -> None:
        self.study, self.goal, self.baseline = study, study.goal, baseline
        self.ladder = Ladder(study.goal, baseline)
        self.candidates, self.runs, self.outliner = means.candidates, means.runs, means.outliner
        self.folder, self.console = means.folder, means.console
        self._proposer = means.proposer
        self.budget = budget
        self.progress = Progress()
        self._told = set[str]()
        self._telling = Telling(study.goal, budget.deadline)
        self.console.above = self._telling.so_far

    def work(self) -> None:
        """Look at points until the budget is spent, or nothing new is to be had.

        Raises:
            Interrupted, Terminated: by the user; the point is left to whoever asks next.
            ResourceError: memory or disk gave out for several points in a row; the same.
        """
        while self._goes_on():
            try:
                asked = self._ask()
            except OutOfTime:
                self.progress.why = "the time is over"
                break
            if not self._is_in_budget(asked):
                self.study.decline(asked)
                continue
            try:
                self._look_at(asked)
            except OutOfTime:
                self.study.give_back(asked)
                self.progress.why = "the time is over"
            except (Interrupted, Terminated, ResourceError):
                self.study.give_back(asked)
                raise

    def _ask(self) -> Asked:
        """Return the next point, of those that wait or by what was trained so far."""
        study, proposer = self.study, self._proposer
        if proposer is None:
            return study.ask()

        def choose() -> Settings | None:
            deadline = self.budget.deadline
            left_s = math.inf if deadline is None else deadline - time.monotonic()
            trials, seen, running = study.trials(), study.seen(), study.running_points()
            known = Known(trials, seen, running, study.asked(), left_s)
            with until(self.budget.deadline):
                return proposer.propose(known)

        return study.ask_if_none_waits(choose)

    def _goes_on(self) -> bool:
        seen, budget = self.progress, self.budget
        if seen.why:
            return False
        trained = self._trained()
        if budget.trials is not None and trained + self.study.running() >= budget.trials:
            seen.why = f"what {trained:.3g} points take was trained"
        elif seen.known >= _KNOWN_IN_A_ROW:
            seen.why = "no point is left that was not looked at"
        elif seen.unable >= _UNABLE_IN_A_ROW:
            seen.why = f"{seen.unable} points in a row cannot keep to the limits"
        elif budget.deadline is not None and time.monotonic() >= budget.deadline:
            seen.why = "the time is over"
        return not seen.why

    def _is_in_budget(self, asked: Asked) -> bool:
        """Whether a point is not one too many, where others were asked for at the same moment."""
        most = self.budget.trials
        return most is None or self._trained() + self.study.running(before=asked) < most

    def _trained(self) -> float:
        """Return how many whole points' training all workers have done."""
        return sum(worth(one) for one in self.study.trials())

    def _look_at(self, asked: Asked) -> None:
        seen, started = self.progress, time.monotonic()
        asked = self.study.change(asked, self._settings(asked.settings))
        try:
            plan = self.candidates.plan(asked.settings)
        except (RecipeError, ModelError) as error:
            self._tell(asked, failed(asked, error, started))
            return
        if self.study.is_known(asked, recipe_sha256(plan)):
            seen.known += 1
            self.study.leave(asked, untrained(asked, "duplicate", {}, started))
            if seen.known % _KNOWN_BEFORE_CHANCE == 0 and not self.study.propose(self._is_new):
                seen.known = _KNOWN_IN_A_ROW
            return
        seen.known = 0
        with until(self.budget.deadline), self._beating(asked):
            outline = self._outline(plan)
        if outline.stage_failed:
            seen.unable += 1
            trial = untrained(asked, "failed", {}, started)
            self._tell(asked, replace(trial, error=outline.error or "a stage would fail"))
            return
        broken = self._broken_untrained(outline)
        if broken:
            seen.unable += 1
            trial = untrained(asked, "infeasible", outline.figures, started)
            self._tell(asked, replace(trial, broken=broken), outline)
            return
        seen.unable = 0
        if self._is_dull(outline):
            seen.dull += 1
            self.study.leave(asked, untrained(asked, "pruned", outline.figures, started))
            return
        seen.dull = 0
        self._train(asked, plan, started)

    def _settings(self, given: Settings) -> dict[str, Json]:
        """Return settings with what they start from, where warm starts are asked for."""
        return warmed(given, self.study.trials()) if self.budget.warm_starts else dict(given)

    def _is_new(self, settings: Settings) -> bool:
        try:
            plan = self.candidates.plan(self._settings(settings))
            return not self.study.has_seen(recipe_sha256(plan))
        except (RecipeError, ModelError):
            return False

    def _outline(self, plan: Plan) -> Outline:
        """Return what is known untrained, where that decides anything."""
        asks = self.goal.asks_of_untrained
        found = self.outliner.outline(plan) if asks else Outline(figures={})
        if found.error and not found.stage_failed and found.error not in self._told:
            self._told.add(found.error)
            self.console.warn(f"a point is trained before its size is known: {found.error}")
        return found

    def _broken_untrained(self, outline: Outline) -> tuple[str, ...]:
        known = self.goal.known_excesses(outline.figures, 0.0 if outline.exact else SLACK)
        return tuple(name for name, excess in known.items() if excess > 0)

    def _is_dull(self, outline: Outline) -> bool:
        """Whether a point cannot be better than the best, by what is known untrained."""
        best = self.goal.best(self.study.trials())
        if best is None or self.progress.dull >= _DULL_IN_A_ROW:
            return False
        slack = 0.0 if outline.exact else SLACK
        return self.goal.cannot_win(outline.figures, best.figures, slack)

    def _train(self, asked: Asked, plan: Plan, started: float) -> None:
        left = None if self.budget.deadline is None else self.budget.deadline - time.monotonic()
        if left is not None and left < 0.5 * self.progress.longest_s:
            raise OutOfTime("another point would take longer than is left")
        self.console.say(f"point {asked.number}: {in_words(asked.settings)}")
        rungs = self._climb(asked, plan, started)
        if rungs is None:
            return
        figures = self._run(asked, plan, started, rungs)
        if figures is None:
            return
        self.progress.longest_s = max(self.progress.longest_s, time.monotonic() - started)
        excesses = self.goal.excesses(figures, self.baseline)
        broken = tuple(name for name, excess in excesses.items() if excess > 0)
        trial = Trial(
            number=asked.number,
            settings=asked.settings,
            figures=figures,
            feasible=not broken,
            status="done",
            broken=broken,
            duration_s=round(time.monotonic() - started, 1),
            run=place_of(asked),
            rungs=rungs,
        )
        self.study.tell(asked, trial, excesses)
        self.console.say(self._telling.line(trial, self.study.trials()))

    def _climb(self, asked: Asked, plan: Plan, started: float) -> tuple[Rung, ...] | None:
        """Train a point for shares of its epochs; None where it goes no further, which is told."""
        rungs, known = list[Rung](), [recipe_sha256(plan)]
        for share in self._shares():
            try:
                short = self.candidates.plan(asked.settings, share=share)
            except (RecipeError, ModelError):
                continue
            if recipe_sha256(short) in known:
                continue
            known.append(recipe_sha256(short))
            began = time.monotonic()
            self.console.say(f"point {asked.number}, {share:.2f} of its epochs")
            figures = self._run(asked, short, started, tuple(rungs), share)
            if figures is None:
                return None
            rungs.append(rung_of(asked, len(rungs), share, figures, began))
            self.study.reach(asked, rungs)
            if not self._goes_further(asked, tuple(rungs), started):
                return None
        return tuple(rungs)

    def _shares(self) -> tuple[float, ...]:
        """Return the rungs of the next point."""
        if self.budget.rungs is not None:
            return self.budget.rungs
        training, known = self.progress.training, self.study.trials()
        if training is None:  # by this worker; what others have measured decides
            training = 1.0 if any(one.rungs for one in known) else 0.0
        return tuple(one for one in SHARES if pays(one, training, known))

    def _goes_further(self, asked: Asked, rungs: tuple[Rung, ...], started: float) -> bool:
        """Whether a point is worth more epochs; where not, it is told."""
        last, known = rungs[-1], self.study.trials()
        mine = Reached(asked.number, last.figures)
        others = [r for r in self.study.reached(last.share) if r.number != asked.number]
        gain = most_gained(last.share, self.goal.metric, known)
        if self.ladder.goes_on(mine, others, gain):
            return True
        halted = untrained(asked, "halted", last.figures, started)
        limits = self.goal.known_excesses(last.figures)
        drop = {} if self.goal.max_drop is None else {"": self.ladder.excess(mine.figures, gain)}
        self.study.tell(asked, replace(halted, rungs=rungs), {**limits, **drop})
        self.console.say(
            f"point {asked.number}: {self._telling.in_short(last.figures)} after {last.share:.2f} "
            f"of its epochs, where others did better: halted"
        )
        return False

    def _run(
        self,
        asked: Asked,
        plan: Plan,
        started: float,
        rungs: tuple[Rung, ...],
        share: float | None = None,
    ) -> Figures | None:
        """Run a plan, and return its figures; None where it failed, which is told.

        Args:
            asked: the point.
            plan: it, or a shorter training of it.
            started: when the point was, by `time.monotonic`.
            rungs: that it has reached.
            share: of its epochs; None for all of them.
        """
        began = time.monotonic()
        place = place_of(asked) if share is None else place_of_rung(asked, len(rungs))
        folder = self.folder / place
        with until(self.budget.deadline), self._beating(asked):
            try:
                result = self.runs.choose(plan, folder)
                error = result.error
                if isinstance(error, Interrupted | Terminated):
                    raise error
                figures = {} if error else self.runs.figures(result.report, folder)
                keep_scores(result, folder)
                training = None if error else training_share(result.report)
            except (OutOfTime, Interrupted, Terminated):
                raise
            except ShrinkError as raised:
                error, figures, training = raised, {}, None
        seen = self.progress
        seen.spent = seen.spent + 1 if isinstance(error, ResourceError) else 0
        if isinstance(error, ResourceError) and seen.spent >= _SPENT_IN_A_ROW:
            raise error
        if error is not None:
            seen.longest_s = max(seen.longest_s, time.monotonic() - started)
            if share is not None:
                rungs = (*rungs, rung_of(asked, len(rungs), share, {}, began))
            self._tell(asked, replace(failed(asked, error, started, place), rungs=rungs))
            return None
        if share is None and training is not None:
            seen.training = training
        return figures

    @contextmanager
    def _beating(self, asked: Asked) -> Iterator[None]:
        """Say now and then that this worker lives: elsewhere nobody can see it."""
        over = threading.Event()

        def beat() -> None:
            while not over.wait(_BEAT_S):
                # A storage that is away for a moment, or a point that others took, ends nothing.
                with contextlib.suppress(Exception):
                    self.study.beat(asked)

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()

    def _tell(self, asked: Asked, trial: Trial, outline: Outline | None = None) -> None:
        excesses = {} if outline is None else self.goal.known_excesses(outline.figures)
        self.study.tell(asked, trial, excesses or {"": 1.0})
        if trial.error:
            self.console.say(f"point {trial.number}: {trial.error}")
