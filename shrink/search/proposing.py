"""Which point is to be trained next: the one that promises most for its time.

What a metric may be is predicted from the points that were trained, and the one goes first whose
expected improvement is largest for the seconds that it is expected to take (Snoek et al. 2012,
section 3.2, on improvement per second). Sizes are known of points that nobody has trained; as
asking for them takes a second or more, they are predicted, too, until a point comes near its turn.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from shrink.base.errors import Interrupted, ModelError, RecipeError, ShrinkError, Terminated
from shrink.base.foreign import Json
from shrink.contract.job import Outline
from shrink.contract.report import Figures
from shrink.contract.searched import Trial
from shrink.recipe.plan import Plan
from shrink.recipe.resolved import recipe_sha256
from shrink.search.candidates import Candidates
from shrink.search.default_space import AS_WRITTEN
from shrink.search.expected_size import expected_share, fixed_part
from shrink.search.gains import TRAINED, gains_of, names_known
from shrink.search.goal import SIZE, SLACK, Goal, cost_of
from shrink.search.keyed import Keyed
from shrink.search.relearning import NOTHING_KNOWN, Relearning
from shrink.search.space import CHAIN, Settings
from shrink.search.surrogate import Described, predict

_DRAWN, _POOL, _ROUNDS = 48, 120, 6
"""Points that are drawn each time, that are kept in mind, and how often more are drawn where none
promises anything."""
_OUTLINED, _AHEAD = 3, 4
"""Points whose sizes are asked for each time, at the most; and that are worked out meanwhile, as
they will probably be asked for next."""
_NEAR = 0.5
"""Of the points that are drawn, the share that are mixed with one of the front, or of the first."""
_LEAST_S = 0.1
_DOUBT = 2.0
"""Standard deviations within which a size that nobody asked for may be within a limit."""
_LATE = 1.15
"""What a point is taken to need of its expected seconds, where it is asked whether they are left: a
point that is stopped at the end has told nothing."""


@dataclass(frozen=True)
class Looked:
    """A point that was looked at, and not trained.

    Attributes:
        settings: of the point.
        recipe: a hash of what it stands for: other settings may mean the same.
        plan: of its run; None where no run is meant.
        share: of a file that it leaves, by what its recipe says.
        behind: which part of the way to guessing its model stays after training, likewise.
        outline: what is known of it; None before that was asked for.
    """

    settings: Settings
    recipe: str
    plan: Plan | None = None
    share: float = 1.0
    behind: float = 0.0
    outline: Outline | None = None

    @property
    def trains_nothing(self) -> bool:
        """Whether its run is known to have no epochs but the baseline's."""
        plan = self.plan
        if plan is None:
            return False
        return not any(one.epochs for one in plan.steps if one.name != plan.baseline.name)


@dataclass(frozen=True)
class Looker:
    """Looks at points without training them.

    Attributes:
        candidates: the recipes that points stand for.
        outline: says what is known of a plan untrained; None where nothing of it is asked for.
        keyed: says what a plan takes.
        relearning: says what training brings back.
        expect: is told of plans that will probably be asked for.
    """

    candidates: Candidates
    outline: Callable[[Plan], Outline] | None
    keyed: Keyed
    relearning: Relearning = NOTHING_KNOWN
    expect: Callable[[Plan], None] | None = None

    def look(self, settings: Settings) -> Looked | None:
        """Return a point without what is known of it; None where it is no legal recipe."""
        try:
            plan = self.candidates.plan(settings)
        except (RecipeError, ModelError):
            return None
        share, behind = expected_share(plan), self.relearning.behind(plan)
        return Looked(settings, recipe_sha256(plan), plan, share, behind)

    def outlined(self, looked: Looked) -> Looked:
        """Return a point with what is known of it untrained."""
        known = None if self.outline is None or looked.plan is None else self.outline(looked.plan)
        return replace(looked, outline=known or Outline(figures={}))

    def work_ahead(self, looked: Looked) -> None:
        """Have worked out what is known of a point, which will probably be asked for.

        Where that fails, it fails again once it is asked for.
        """
        if self.expect is None or looked.plan is None:
            return
        try:
            self.expect(looked.plan)
        except (Interrupted, Terminated):
            raise
        except (ShrinkError, OSError):
            return

    def seconds(self, looked: Sequence[Looked]) -> list[float]:
        """Return what training points is expected to take, beside what is in the store."""
        return self.keyed.seconds([one.plan for one in looked if one.plan is not None])


@dataclass(frozen=True)
class Known:
    """What the workers of a search know together.

    Attributes:
        trials: that were looked at.
        seen: the recipes of the points that somebody has asked for.
        running: settings of those that others look at now.
        asked: how many there are.
        left_s: seconds that are left of the search.
    """

    trials: Sequence[Trial]
    seen: frozenset[str] = frozenset()
    running: Sequence[Settings] = ()
    asked: int = 0
    left_s: float = math.inf


class Proposer:
    """Says which point is next, from what the study knows.

    Args:
        goal: what is looked for; all but its metric is known of a point untrained.
        baseline: figures on validation examples.
        looker: says what is known of points.
        first: points that are likely to be good, the recipe as it stands before others.
        draw: yields points at random, from a seed.
        seed: of what is drawn.
    """

    def __init__(
        self,
        goal: Goal,
        baseline: Figures,
        looker: Looker,
        first: Iterable[Settings],
        draw: Callable[[int], Iterator[Settings]],
        seed: int,
    ) -> None:
        self._goal, self._baseline, self._looker = goal, baseline, looker
        self._draw, self._seed = draw, seed
        self._names = names_known(goal)
        self._pool: dict[str, Looked] = {}
        self._looked: dict[int, Looked | None] = {}
        self._to_guess = _way_to_guess(goal, baseline, looker.relearning)
        self._first = [*first]
        self._waiting = [*self._first]
        self._figures: dict[str, Figures] = {}
        self._running: list[Described] = []
        self._vain = -1  # so many were trained when nothing was promised

    def begin(self) -> list[Settings]:
        """Return the points to begin with: those that train nothing, or the one that takes least.

        Then comes the recipe as it stands. Those that are too large by what their recipes say wait.
        Of a search for a front the recipe is one point of many, and waits, too.
        """
        looked = [self._looker.look(settings) for settings in self._waiting]
        legal = [number for number, one in enumerate(looked) if one is not None]
        taken = self._looker.seconds([one for one in looked if one is not None])
        seconds = dict(zip(legal, taken, strict=True))
        shares = {n: one.share for n, one in enumerate(looked) if one is not None}
        size, limit = self._baseline.get(SIZE), self._goal.limits.get(SIZE, math.inf)
        able = [n for n in legal if (size or 0.0) * shares[n] <= limit]
        in_order = sorted(able or legal, key=lambda number: (seconds[number], number))
        plain = {n for n, one in enumerate(looked) if one is not None and one.trains_nothing}
        numbers = [number for number in in_order if number in plain] or in_order[:1]
        stands = self._waiting[0].get(CHAIN) in (None, AS_WRITTEN) if self._waiting else False
        if not self._goal.traded and stands and 0 in seconds and 0 not in numbers:
            numbers.append(0)
        chosen = [self._waiting[number] for number in numbers]
        self._waiting = [one for one in self._waiting if one not in chosen]
        return chosen

    def propose(self, known: Known) -> Settings | None:
        """Return the point that promises most; None where nothing is promised.

        Of those that are expected to end within the time, where there are any.
        """
        trained = sum(one.status in TRAINED for one in known.trials)
        if trained == self._vain:
            return None
        gains: dict[str, float] = {}
        for number in range(_ROUNDS):
            self._draw_more(known, number)
            if gains := self._promising(known):
                break
        else:
            self._vain = trained
        promising = [self._pool[recipe] for recipe in gains]
        seconds = dict(zip(gains, self._looker.seconds(promising), strict=True))
        in_time = {r: gain for r, gain in gains.items() if _LATE * seconds[r] <= known.left_s}
        late = {r: gain for r, gain in gains.items() if r not in in_time}
        for gains in (in_time, late):
            if (found := self._best(known, gains, seconds)) is not None:
                self._work_ahead(replace(known, running=[*known.running, found]))
                return found
        return None

    def _work_ahead(self, known: Known) -> None:
        """Have the sizes worked out that will probably be asked for once what runs has ended.

        As it is believed to end.
        """
        if self._looker.expect is None:
            return
        gains = self._promising(known)
        looked = [self._pool[recipe] for recipe in gains]
        seconds = dict(zip(gains, self._looker.seconds(looked), strict=True))
        waiting = [one.recipe for one in looked if one.outline is None]
        waiting.sort(key=lambda recipe: -_rate(recipe, gains, seconds))
        for recipe in waiting[:_AHEAD]:
            self._looker.work_ahead(self._pool[recipe])

    def _best(
        self, known: Known, gains: dict[str, float], seconds: Mapping[str, float]
    ) -> Settings | None:
        """Return the point of most gain for its seconds, asking for sizes of a few."""
        for looks in range(_OUTLINED + 1):
            able = [r for r in gains if looks < _OUTLINED or self._pool[r].outline is not None]
            if not able:
                return None
            best = max(able, key=lambda recipe: _rate(recipe, gains, seconds))
            if self._pool[best].outline is not None:
                return self._pool.pop(best).settings
            expected = self._figures[best]
            looked = self._pool[best] = self._looker.outlined(self._pool[best])
            del gains[best]
            gains |= self._gains(known, [(looked, _figures(looked) or expected)])
        return None

    def _promising(self, known: Known) -> dict[str, float]:
        """Return the gains of the points that promise any, by their recipes."""
        looked = [*self._pool.values()]
        running = [one for one in map(self._looker.look, known.running) if one is not None]
        figures = self._expected([*looked, *running], known.trials)
        self._figures = {one.recipe: f for one, f in zip(looked, figures, strict=False)}
        self._running = [
            self._described(one, f)
            for one, f in zip(running, figures[len(looked) :], strict=True)
            if all(f.get(name) is not None for name in self._names)
        ]
        return self._gains(known, [*zip(looked, figures, strict=False)])

    def _gains(self, known: Known, looked: Sequence[tuple[Looked, Figures]]) -> dict[str, float]:
        """Return the gains of points that promise any, by their recipes."""
        able = [(one, figures) for one, figures in looked if self._may_be(one, figures)]
        described = [self._described(one, figures) for one, figures in able]
        gains = gains_of(
            self._goal,
            self._baseline,
            known.trials,
            described,
            self._running,
            self._expected_of(known.trials),
            self._looker.relearning.guess,
        )
        return {one.recipe: g for (one, _), g in zip(able, gains, strict=True) if g > 0}

    def _expected(self, looked: Sequence[Looked], trials: Sequence[Trial]) -> list[Figures]:
        """Return the known figures of points: predicted of those that were not asked for yet.

        In doubt, they are within a limit.
        """
        told = [
            ({}, self._baseline, 1.0),
            *((one.settings, one.figures, self._share(one)) for one in trials),
            *((one.settings, _figures(one), one.share) for one in looked if _figures(one)),
        ]
        told = [one for one in told if all(one[1].get(name) for name in self._names)]
        asked = [one for one in looked if not _figures(one)]
        sizes: list[dict[str, float]] = [{} for _ in asked]
        points = [Described(settings, {}) for settings, _, _ in told]
        wanted = [Described(one.settings, {}) for one in asked]
        for name in self._names if told and asked else ():
            values = [float(one[name] or 1.0) for _, one, _ in told]
            fixed = fixed_part(values, [share for _, _, share in told])
            logs = [math.log(v / (s + fixed)) for v, (_, _, s) in zip(values, told, strict=True)]
            limit = self._goal.limits.get(name, math.inf)
            rows = zip(asked, sizes, *predict(points, logs, wanted, ()), strict=True)
            for one, found, mean, spread in rows:
                share = one.share + fixed
                size, least = (share * math.exp(x) for x in (mean, mean - _DOUBT * spread))
                found[name] = size if size <= limit or least >= limit else (least + limit) / 2
        predicted = iter(sizes)
        return [_figures(one) or next(predicted) for one in looked]

    def _of_trial(self, trial: Trial) -> Looked | None:
        if trial.number not in self._looked:
            self._looked[trial.number] = self._looker.look(trial.settings)
        return self._looked[trial.number]

    def _share(self, trial: Trial) -> float:
        looked = self._of_trial(trial)
        return 1.0 if looked is None else looked.share

    def _described(self, looked: Looked, figures: Figures) -> Described:
        return Described(looked.settings, figures, self._to_guess * looked.behind)

    def _expected_of(self, trials: Sequence[Trial]) -> dict[int, float]:
        """Return by how much costs of trials were expected to be above the baseline's."""
        looked = {one.number: self._of_trial(one) for one in trials if one.status in TRAINED}
        return {n: self._to_guess * one.behind for n, one in looked.items() if one is not None}

    def _may_be(self, looked: Looked, figures: Figures) -> bool:
        is_told = all(figures.get(name) is not None for name in self._names)
        outline = looked.outline or Outline(figures={})
        slack = 0.0 if outline.exact else SLACK
        excesses = self._goal.known_excesses(figures, slack).values()
        return is_told and not outline.stage_failed and all(one <= 0 for one in excesses)

    def _draw_more(self, known: Known, number: int) -> None:
        """Draw points that nobody has asked for, and forget those of others and the oldest."""
        self._pool = {recipe: one for recipe, one in self._pool.items() if recipe not in known.seen}
        for settings in itertools.islice(self._drawn(known, number), _DRAWN):
            looked = self._looker.look(settings)
            if looked is not None and looked.recipe not in {*self._pool, *known.seen}:
                self._pool[looked.recipe] = looked
        while len(self._pool) > _POOL:
            del self._pool[next(iter(self._pool))]

    def _drawn(self, known: Known, number: int) -> Iterator[Settings]:
        """Yield what waits from the beginning, then points at random, and near the front."""
        while self._waiting:
            yield self._waiting.pop(0)
        chance = random.Random(f"{self._seed}:{known.asked}:{number}")
        front = {one.number: one for one in known.trials}
        parents = [front[number].settings for number in self._goal.front(known.trials)]
        parents += self._first
        for settings in self._draw(chance.randrange(2**31)):
            alike = [one for one in parents if one.get(CHAIN) == settings.get(CHAIN)]
            if alike and chance.random() < _NEAR:
                yield _mixed(settings, chance.choice(alike), chance)
            else:
                yield settings


def _rate(recipe: str, gains: Mapping[str, float], seconds: Mapping[str, float]) -> float:
    """Return what a point promises for each of its seconds."""
    return gains[recipe] / max(seconds[recipe], _LEAST_S)


def _way_to_guess(goal: Goal, baseline: Figures, relearning: Relearning) -> float:
    """Return by how much guessing costs more than the baseline does; 0 where it is not known."""
    before = baseline.get(goal.metric)
    if before is None or relearning.guess is None:
        return 0.0
    return max(0.0, cost_of(goal.metric, relearning.guess) - cost_of(goal.metric, before))


def _figures(looked: Looked) -> Figures:
    return {} if looked.outline is None else looked.outline.figures


def _mixed(drawn: Settings, parent: Settings, chance: random.Random) -> dict[str, Json]:
    """Return a point that has each setting from one of two."""
    return {
        k: parent[k] if k in parent and chance.random() < _NEAR else v for k, v in drawn.items()
    }
