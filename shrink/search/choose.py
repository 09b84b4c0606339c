"""Which trial is next: the one with the largest expected improvement per second of training.

1. Candidates are drawn at random, half of them mixed with trials of the Pareto front (`Chooser`).
2. A Gaussian process over the trained trials predicts the main metric of each candidate from its
   sizes and settings (`predict`).
3. The expected improvement follows in closed form (`gains_of`): of the metric, of the file size
   times the probability to keep the drop, or of the hypervolume where several objectives count.
4. It is divided by the seconds that training is expected to take (`Steps.seconds`; Snoek et al.
   2012, section 3.2).
5. Sizes are exact before anything is trained: the most promising candidates are built and converted
   untrained in one worker (`Sizes`), and ranked again. Until then they are predicted, too.
"""

from __future__ import annotations

import itertools
import json
import math
import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from shrink.base.errors import Interrupted, ModelError, RecipeError, ShrinkError, Terminated
from shrink.base.figures import LOSS, figure_of
from shrink.base.metrics import metric_of
from shrink.contract.codec import from_plain
from shrink.contract.job import OF_STEP, Outline, OutlineJob, StepJob
from shrink.contract.model_source import ModelKind, ModelSource, Trust
from shrink.contract.report import Figures
from shrink.contract.searched import Trial
from shrink.data.config import DataConfig
from shrink.data.fingerprint import fingerprint
from shrink.recipe.plan import Plan, Source, Step
from shrink.recipe.resolved import recipe_sha256
from shrink.run.judged import ARTIFACT, made_before
from shrink.run.keys import step_keys
from shrink.run.lineage import Splits, splits_of
from shrink.run.process import run_worker
from shrink.run.steps import step_job
from shrink.run.store import Store
from shrink.search.candidates import Candidates
from shrink.search.goal import SIZE, SLACK, UNTRAINED, Goal, cost_of, undominated
from shrink.search.space import AS_WRITTEN, CHAIN, Settings

if TYPE_CHECKING:
    from shrink.base.types import Array

_DRAWN, _ROUNDS = 60, 4
"""Candidates that are drawn at a time, and how often at most until one promises anything."""
_OUTLINED = 2
"""Candidates whose exact sizes are found before one is chosen."""
_MIXED = 0.5
"""The share of the candidates that are mixed with a trial of the front, and of their settings."""
_LEAST_SPREAD = 0.1
"""The least standard deviation of a prediction, as a share of that of the known values: maximum
likelihood is too sure of itself with few of them."""
_RESERVE = 1.15
"""Expected seconds are multiplied by it to tell whether a trial ends in time."""
_START_S, _EPOCH_S, _LEAST_S = 5.0, 1.0, 0.1
"""Expected of a stage, and of each of its epochs, before one of its kind was computed."""


class Steps:
    """Finds the steps of plans in the store, and what computing the others takes.

    Args:
        store: of finished steps.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._digests: list[tuple[DataConfig, str]] = []

    def keys(self, plan: Plan) -> tuple[Splits, dict[str, str]]:
        """Return how a plan's data are divided, and the key of each step by its name."""
        digest = self._digest(plan.data_config)
        splits = splits_of(plan, digest, self.store)
        return splits, step_keys(plan, digest, splits)

    def seconds(self, plans: Sequence[Plan], trained: Sequence[Plan]) -> list[float]:
        """Return what computing plans is expected to take, without the steps that are stored.

        Args:
            plans: that are asked about.
            trained: plans whose steps show what a step of a kind takes.
        """
        durations: dict[str, list[tuple[int, float]]] = {}
        stored: dict[str, bool] = {}
        for plan in trained:
            keys = self.keys(plan)[1]
            for step in plan.steps:
                made = (
                    None if keys[step.name] in stored else made_before(keys[step.name], self.store)
                )
                if made is not None and made.result.duration_s is not None:
                    stored[keys[step.name]] = True
                    took = (step.epochs, made.result.duration_s)
                    durations.setdefault(step.kind, []).append(took)
        found = []
        for plan in plans:
            total = _LEAST_S
            for name, key in self.keys(plan)[1].items():
                if key not in stored:
                    stored[key] = made_before(key, self.store) is not None
                total += 0.0 if stored[key] else _expected_s(plan.step(name), durations)
            found.append(total)
        return found

    def _digest(self, config: DataConfig) -> str:
        """Return the fingerprint of data, which stay as they are during a search."""
        for known, digest in self._digests:
            if known == config:
                return digest
        self._digests.append((config, fingerprint(config)))
        return self._digests[-1][1]


def _expected_s(step: Step, durations: Mapping[str, Sequence[tuple[int, float]]]) -> float:
    own = _START_S + _EPOCH_S * step.epochs
    known = durations.get(step.kind, ())
    scaled = [took * own / (_START_S + _EPOCH_S * epochs) for epochs, took in known]
    return sum(scaled) / len(scaled) if scaled else own


class Sizes:
    """Finds the sizes of models before they are trained, in a worker.

    Args:
        steps: the store.
        trust_model: whether model files are loaded without a look at the code that they may hold.
    """

    def __init__(self, steps: Steps, trust_model: bool = False) -> None:
        self._steps, self._trust_model = steps, trust_model
        self._known: dict[str, Outline] = {}

    def of(self, plans: Sequence[Plan]) -> list[Outline]:
        """Return what the last step of each plan makes; without figures and with an error if not.

        Raises:
            Interrupted, Terminated: by the user, or because the time is over.
        """
        keys = [self._steps.keys(plan)[1][plan.finals[-1]] for plan in plans]
        new = {k: plan for k, plan in zip(keys, plans, strict=True) if k not in self._known}
        if new:
            self._known |= dict(zip(new, self._outlines([*new.values()]), strict=True))
        return [self._known[key] for key in keys]

    def _outlines(self, plans: Sequence[Plan]) -> list[Outline]:
        try:
            with self._steps.store.work_folder() as work:
                job = OutlineJob(name="sizes", chains=tuple(map(self._chain, plans)))
                found = run_worker(job, work, lambda event: None)["outlines"]
            return [from_plain(Outline, one) for one in found]
        except (Interrupted, Terminated):
            raise
        except ShrinkError as error:
            if len(plans) == 1:
                return [Outline(figures={}, error=error.message)]
            return [one for plan in plans for one in self._outlines([plan])]

    def _chain(self, plan: Plan) -> tuple[StepJob, ...]:
        """Return the steps that lead to the last one, from what the store has of them."""
        trust = Trust(plan.custom_objects, self._trust_model)
        splits, keys = self._steps.keys(plan)
        jobs: list[StepJob] = []
        needed = [plan.finals[-1]]
        for step in reversed(plan.steps):
            if step.name in needed:
                given = self._source(step.inputs["model"], keys, trust)
                needed += [str(given.path)] if given.function == OF_STEP else []
                key = keys[step.name]
                job = step_job(plan, step, (), {"model": given}, splits, self._steps.store, key)
                jobs.append(replace(job, checkpoints=None))
        return tuple(reversed(jobs))

    def _source(self, source: Source, keys: Mapping[str, str], trust: Trust) -> ModelSource:
        if source.step is None:
            assert source.reference is not None, "an input has a source"
            return source.reference.source(trust, source.arguments)
        arguments = dict(source.arguments)
        made = made_before(keys[source.step], self._steps.store)
        if made is None:
            return ModelSource("keras", Path(source.step), OF_STEP, arguments, trust)
        path = made.files[ARTIFACT]
        kind: ModelKind = "tflite" if path.suffix == ".tflite" else "keras"
        return ModelSource(kind, path, None, arguments, trust)


class Point(NamedTuple):
    """What a trial is predicted from: its settings, and the figures that are known untrained."""

    settings: Settings
    figures: Figures


def predict(
    known: Sequence[Point], values: Sequence[float], asked: Sequence[Point], names: Sequence[str]
) -> tuple[Array, Array]:
    """Return the expected values at points, and their standard deviations, float64 (points,) each.

    A Gaussian process with a linear trend and a Matern 5/2 kernel, hyperparameters by maximum
    likelihood.

    Args:
        known: points whose values are known; at least one.
        values: of them.
        asked: points whose values are wanted.
        names: of the figures that describe a point, by their logarithms.
    """
    import numpy as np

    if len(known) < 2 or not asked:
        spread = 0.05 * max(abs(values[0]), 1e-9)
        return np.full(len(asked), values[0]), np.full(len(asked), spread)
    from sklearn.gaussian_process import GaussianProcessRegressor, kernels

    columns = _columns([*known, *asked], names)
    deviation = columns.std(axis=0)
    columns = (columns - columns.mean(axis=0)) / np.where(deviation > 1e-9, deviation, 1.0)
    one, half = kernels.ConstantKernel(1.0), kernels.ConstantKernel(0.5)
    smooth = one * kernels.Matern(1.5, (0.3, 30.0), nu=2.5)
    noise = kernels.WhiteKernel(1e-2, (1e-4, 1e-1))
    process = GaussianProcessRegressor(
        smooth + half * kernels.DotProduct() + noise, normalize_y=True, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a hyperparameter at its bound
        process.fit(columns[: len(known)], np.asarray(values, np.float64))
        mean, spread = process.predict(columns[len(known) :], return_std=True)
    return mean, np.maximum(spread, _LEAST_SPREAD * np.std(values))


def _columns(points: Sequence[Point], names: Sequence[str]) -> Array:
    """Return points as numbers, (points, columns): sizes, numeric settings, one-hot settings."""
    import numpy as np

    columns = [_logarithms([one.figures.get(name) for one in points]) for name in names]
    for key in dict.fromkeys(key for one in points for key in one.settings):
        values = [one.settings.get(key) for one in points]
        numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
        if len(numbers) == sum(value is not None for value in values) > 0:
            middle = sum(numbers) / len(numbers)
            columns.append([float(str(middle if v is None else v)) for v in values])
        else:
            kinds = dict.fromkeys(map(repr, values))
            columns += [[float(repr(v) == kind) for v in values] for kind in kinds]
    return np.asarray(columns or [[0.0] * len(points)], np.float64).T


def _logarithms(values: Sequence[float | None]) -> list[float]:
    """Return logarithms; their mean where a value is not known."""
    found = [None if value is None else math.log(max(value, 1e-9)) for value in values]
    known = [value for value in found if value is not None]
    middle = sum(known) / max(1, len(known))
    return [middle if value is None else value for value in found]


def expected_improvement(level: float, mean: float, deviation: float) -> float:
    """Return by how much a normally distributed cost is expected to fall below a level, at least 0.

    Jones et al. 1998, equation 15.
    """
    if deviation < 1e-12:
        return max(0.0, level - mean)
    z = (level - mean) / deviation
    density = math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    return max(0.0, (level - mean) * _normal(z) + deviation * density)


def probability_within(limit: float, mean: float, deviation: float) -> float:
    """Return the probability that a cost is at most a limit."""
    if deviation < 1e-12:
        return float(mean <= limit)
    return _normal((limit - mean) / deviation)


def _normal(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2))


def expected_hypervolume_gain(
    known: Sequence[float],
    mean: float,
    deviation: float,
    front: Sequence[Sequence[float]],
    reference: Sequence[float],
) -> float:
    """Return by how much a point is expected to enlarge the dominated volume.

    Only its last cost is uncertain. Above each place of the certain costs the volume grows by the
    part of that cost below the lowest of those that dominate the place, so that the expectation is
    the sum of expected improvements over the cells between the points, each times its size: the
    expected hypervolume improvement of Emmerich et al. 2011, in closed form.

    Args:
        known: the certain costs of the point, (k,).
        mean: of the uncertain one.
        deviation: of that.
        front: costs of trained trials, (n, k + 1).
        reference: the worst costs that count, (k + 1,).
    """
    *ends, worst = reference
    if any(cost >= end for cost, end in zip(known, ends, strict=True)):
        return 0.0
    axes = [
        sorted({mine, *(min(max(other[axis], mine), end) for other in front), end})
        for axis, (mine, end) in enumerate(zip(known, ends, strict=True))
    ]
    gain = 0.0
    for cell in itertools.product(*(itertools.pairwise(axis) for axis in axes)):
        below = [low for low, _ in cell]
        better = [
            other[-1]
            for other in front
            if all(one <= low for one, low in zip(other[:-1], below, strict=True))
        ]
        size = math.prod(high - low for low, high in cell)
        gain += size * expected_improvement(min([worst, *better]), mean, deviation)
    return gain


def gains_of(
    goal: Goal,
    baseline: Figures,
    trials: Sequence[Trial],
    points: Sequence[Point],
    running: Sequence[Point] = (),
) -> list[float]:
    """Return the expected improvement of points that were not trained, in the goal's own unit.

    Where a drop is limited, the upper confidence bounds of trained trials are what is predicted.

    Args:
        goal: what is optimised.
        baseline: figures on the validation split.
        trials: that were trained.
        points: candidates, with all figures of `goal.names`.
        running: points that other workers train now, taken to become what is expected of them
            (Ginsbourger et al. 2010, the "kriging believer").
    """
    if not points or baseline.get(goal.metric) is None:
        return [0.0] * len(points)
    before = cost_of(goal.metric, baseline[goal.metric])
    worst = _worst(goal, before)
    able = list[tuple[Figures, float]]()
    known, costs = [Point({}, baseline)], [before]
    for one in trials:
        cost = cost_of(goal.metric, one.figures.get(goal.metric))
        if one.status != "done" or not math.isfinite(cost):
            continue
        if goal.max_drop is not None and one.drop_bound is not None:
            cost = before + one.drop_bound
        known.append(Point(one.settings, one.figures))
        costs.append(min(cost, worst))
        if one.feasible and goal.keeps(one.drop_bound):
            able.append((one.figures, cost))
    if running:
        believed = [float(one) for one in predict(known, costs, running, goal.names)[0]]
        known, costs = [*known, *running], [*costs, *believed]
        able += [(one.figures, cost) for one, cost in zip(running, believed, strict=True)]
    means, deviations = predict(known, costs, points, goal.names)
    gain = _gain(goal, baseline, able, before, worst)
    return [
        gain(one.figures, float(mean), float(deviation))
        for one, mean, deviation in zip(points, means, deviations, strict=True)
    ]


def _gain(
    goal: Goal,
    baseline: Figures,
    able: Sequence[tuple[Figures, float]],
    before: float,
    worst: float,
) -> Callable[[Figures, float, float], float]:
    """Return a point's expected improvement by its figures, and its cost's mean and deviation.

    Args:
        goal: what is optimised.
        baseline: figures on the validation split.
        able: figures and costs of the trials that keep every limit.
        before: the baseline's cost.
        worst: the highest cost that counts.
    """
    most = None if goal.max_drop is None else before + goal.max_drop
    first = goal.ranking[0]

    def within(mean: float, deviation: float) -> float:
        return 1.0 if most is None else probability_within(most, mean, deviation)

    if not goal.traded and first == goal.metric:
        best = min((cost for _, cost in able), default=worst)
        return lambda _, mean, spread: (
            within(mean, spread) * expected_improvement(best, mean, spread)
        )
    if not goal.traded:
        sizes = [cost_of(first, one.get(first)) for one, _ in able]
        start = cost_of(first, baseline.get(first))
        smallest = min(sizes, default=start)

        def smaller(figures: Figures, mean: float, deviation: float) -> float:
            size = cost_of(first, figures.get(first))
            gain = smallest - size if math.isfinite(smallest) else 1 / max(size, 1.0)
            return within(mean, deviation) * max(0.0, gain)

        return smaller
    axes = [name for name in goal.objectives if name != goal.metric]
    is_judged = goal.metric in goal.objectives
    places = [
        [*(float(one[name] or 0.0) for name in axes), cost if is_judged else 0.0]
        for one, cost in able
        if all(one.get(name) is not None for name in axes)
    ]
    ends = [_end(goal, baseline, name, [one[n] for one in places]) for n, name in enumerate(axes)]
    corner = (worst if most is None else min(worst, most)) if is_judged else 1.0
    front = undominated([[*_scaled(one, ends), one[-1]] for one in places])

    def volume(figures: Figures, mean: float, deviation: float) -> float:
        cost = (mean, deviation) if is_judged else (0.0, 0.0)
        place = _scaled([float(figures[name] or 0.0) for name in axes], ends)
        gain = expected_hypervolume_gain(place, *cost, front, [*([1.0] * len(axes)), corner])
        return gain if is_judged else within(mean, deviation) * gain

    return volume


def _scaled(place: Sequence[float], ends: Sequence[float]) -> list[float]:
    return [value / end for value, end in zip(place, ends, strict=False)]


def _end(goal: Goal, baseline: Figures, name: str, trained: Sequence[float]) -> float:
    """Return the figure that a front is measured from: the limit, the baseline's, or twice the
    largest one that was trained.
    """
    end = goal.limits.get(name) or baseline.get(name)
    return max(1e-9, float(end or 2 * max(trained, default=1.0)))


def _worst(goal: Goal, before: float) -> float:
    """Return the highest cost that counts: the end of the metric's range, or twice the baseline's.

    Costs beyond, as of a training that diverged, would hide all others.
    """
    info = None if goal.metric == LOSS else metric_of(goal.metric)
    ends = None if info is None else info.info.range
    better = figure_of(goal.metric).larger_is_better
    end = None if ends is None else (-ends[0] if better else ends[1])
    if end is not None and math.isfinite(end):
        return end
    return before + max(abs(before), 1e-12)


@dataclass(frozen=True)
class Candidate:
    """Settings that may be the next trial.

    Attributes:
        settings: of the trial.
        plan: of its run.
        recipe: a hash of the recipe: other settings may mean the same.
        outline: its exact sizes, once they are known.
    """

    settings: Settings
    plan: Plan
    recipe: str
    outline: Outline | None = None

    @property
    def slack(self) -> float:
        """The share by which training may still make its known sizes smaller."""
        return 0.0 if self.outline is None or self.outline.exact else SLACK

    def broken(self, goal: Goal) -> tuple[str, ...]:
        """Return the limits that its exact sizes break; `stage` where a stage would fail."""
        if self.outline is None:
            return ()
        excesses = goal.known_excesses(self.outline.figures, self.slack)
        failed = ("stage",) if self.outline.stage_failed else ()
        return (*failed, *(name for name, excess in excesses.items() if excess > 0))

    @property
    def trains_nothing(self) -> bool:
        """Whether its run has no epochs but the baseline's."""
        baseline = self.plan.baseline.name
        return not any(one.epochs for one in self.plan.steps if one.name != baseline)


@dataclass(frozen=True)
class Known:
    """What the workers of a search know together.

    Attributes:
        trials: that have ended.
        seen: the recipes of all trials.
        running: settings of the trials that others train now.
        asked: number of all trials.
        left_s: seconds that are left of the search.
    """

    trials: Sequence[Trial]
    seen: frozenset[str] = frozenset()
    running: Sequence[Settings] = ()
    asked: int = 0
    left_s: float = math.inf


@dataclass(frozen=True)
class Choice:
    """What a chooser says.

    Attributes:
        settings: of the next trial; None where nothing promises an improvement.
        rejected: candidates whose exact sizes break a limit.
    """

    settings: Settings | None
    rejected: Sequence[Candidate] = ()


Rank = tuple[bool, float]


class Chooser:
    """Chooses the next trial.

    Args:
        goal: what is optimised.
        baseline: figures on the validation split.
        candidates: the recipes that settings stand for.
        steps: the store, with what steps take.
        sizes: finds exact sizes.
        seed: of the candidates that are drawn.
    """

    def __init__(
        self,
        goal: Goal,
        baseline: Figures,
        candidates: Candidates,
        steps: Steps,
        sizes: Sizes,
        seed: int,
    ) -> None:
        self._goal, self._baseline = goal, baseline
        self._candidates, self._steps, self._sizes = candidates, steps, sizes
        self._seed = seed
        self._first = [*candidates.space.first()]
        self._looked: dict[str, Candidate | None] = {}
        self._figures: dict[str, dict[str, float | None]] = {}

    def begin(self) -> list[Settings]:
        """Return the trials to begin with: those that train nothing, or the one that takes least.

        Then the recipe as it stands, unless several objectives are traded.
        """
        looked = [one for one in map(self._look, self._first) if one is not None]
        chosen = [one for one in looked if one.trains_nothing]
        if not chosen and looked:
            seconds = self._steps.seconds([one.plan for one in looked], [])
            chosen = [looked[seconds.index(min(seconds))]]
        if looked and not self._goal.traded:
            stands = looked[0].settings.get(CHAIN) in (None, AS_WRITTEN)
            chosen += [looked[0]] if stands else []
        return [*{one.recipe: one.settings for one in chosen}.values()]

    def next(self, known: Known) -> Choice:
        """Return the trial of largest expected improvement per second of those that end in time.

        Of all, where none does; no settings where no candidate promises any improvement.
        """
        pool: dict[str, Candidate] = {}
        rejected: dict[str, Candidate] = {}
        trained = [plan for one in known.trials if (plan := self._plan(one)) is not None]
        for number in range(_ROUNDS):
            for settings in itertools.islice(self._drawn(known, number), _DRAWN):
                one = self._look(settings)
                if one is not None and one.recipe not in {*known.seen, *rejected}:
                    pool.setdefault(one.recipe, one)
            gains = self._gains(known, pool)
            if not gains:  # the smallest may do, or show that nothing does
                sized = ((r, f.get(SIZE)) for r, f in self._figures.items())
                gains = {recipe: 1 / max(size or 1.0, 1.0) for recipe, size in sized}
            taken = self._steps.seconds([pool[recipe].plan for recipe in gains], trained)
            seconds = dict(zip(gains, taken, strict=True))

            def rank(item: tuple[str, float], seconds: Mapping[str, float] = seconds) -> Rank:
                in_time = _RESERVE * seconds[item[0]] <= known.left_s
                return in_time, item[1] / seconds[item[0]]

            promising = [recipe for recipe, _ in sorted(gains.items(), key=rank, reverse=True)]
            for recipe in self._outline(pool, promising[:_OUTLINED]):
                rejected[recipe] = pool.pop(recipe)
            exact = self._gains(known, {r: pool[r] for r in promising[:_OUTLINED] if r in pool})
            if exact:
                return Choice(pool[max(exact.items(), key=rank)[0]].settings, [*rejected.values()])
        return Choice(None, [*rejected.values()])

    def _outline(self, pool: dict[str, Candidate], recipes: Sequence[str]) -> list[str]:
        """Find the exact sizes of candidates; return those that break a limit or would fail."""
        if not any(name in UNTRAINED for name in self._goal.names):
            return []
        outlines = self._sizes.of([pool[recipe].plan for recipe in recipes])
        for recipe, outline in zip(recipes, outlines, strict=True):
            pool[recipe] = replace(pool[recipe], outline=outline)
            self._looked[_text(pool[recipe].settings)] = pool[recipe]
        return [recipe for recipe in recipes if pool[recipe].broken(self._goal)]

    def _gains(self, known: Known, pool: Mapping[str, Candidate]) -> dict[str, float]:
        """Return the gains of the candidates within the limits that promise any."""
        looked = [*pool.values()]
        running = [one for one in map(self._look, known.running) if one is not None]
        figures = self._predicted([*looked, *running], known.trials)
        self._figures = dict(zip(pool, figures, strict=False))
        points = [Point(o.settings, f) for o, f in zip([*looked, *running], figures, strict=True)]
        able = [
            (recipe, point)
            for (recipe, one), point in zip(pool.items(), points, strict=False)
            if all(
                (point.figures[name] or math.inf) <= limit * (1 + one.slack)
                for name, limit in self._goal.limits.items()
                if name != self._goal.metric
            )
        ]
        gains = gains_of(
            self._goal,
            self._baseline,
            known.trials,
            [point for _, point in able],
            points[len(looked) :],
        )
        return {recipe: gain for (recipe, _), gain in zip(able, gains, strict=True) if gain > 0}

    def _predicted(
        self, looked: Sequence[Candidate], trials: Sequence[Trial]
    ) -> list[dict[str, float | None]]:
        """Return the figures of candidates: exact where they are known, else optimistic."""
        figures = [dict(one.outline.figures) if one.outline else {} for one in looked]
        others = [one for one in self._looked.values() if one is not None and one.outline]
        known = [
            *((one.settings, one.figures) for one in trials),
            *((one.settings, one.outline.figures) for one in others if one.outline),
        ]
        for name in self._goal.names:
            told = [(Point(s, {}), math.log(v)) for s, f in known if (v := f.get(name))]
            asked = [n for n, one in enumerate(figures) if name not in one]
            limit = self._goal.limits.get(name, math.inf)
            if not told:
                before = self._baseline.get(name) or min(limit, 1e9)
                told = [(Point({}, {}), math.log(max(min(before, limit), 1e-9)))]
            points = [Point(looked[n].settings, {}) for n in asked]
            means, spreads = predict([p for p, _ in told], [v for _, v in told], points, ())
            for n, mean, spread in zip(asked, means, spreads, strict=True):
                figures[n][name] = math.exp(mean - spread)  # optimistic, as it is looked at next
        return figures

    def _drawn(self, known: Known, number: int) -> Iterator[Settings]:
        """Yield the first settings of the space, then random ones, half of them near the front."""
        chance = random.Random(f"{self._seed}:{known.asked}:{number}")
        yield from self._first if number == 0 else ()
        by_number = {one.number: one.settings for one in known.trials}
        parents = [*(by_number[n] for n in self._goal.front(known.trials)), *self._first]
        for drawn in self._candidates.space.random(chance.randrange(2**31)):
            alike = [one for one in parents if one.get(CHAIN) == drawn.get(CHAIN)]
            if not alike or chance.random() < _MIXED:
                yield drawn
                continue
            parent = chance.choice(alike)
            yield {
                key: parent[key] if key in parent and chance.random() < _MIXED else value
                for key, value in drawn.items()
            }

    def _plan(self, trial: Trial) -> Plan | None:
        looked = self._look(trial.settings) if trial.status == "done" else None
        return None if looked is None else looked.plan

    def _look(self, settings: Settings) -> Candidate | None:
        """Return what settings stand for; None where that is not a legal recipe."""
        text = _text(settings)
        if text not in self._looked:
            try:
                plan = self._candidates.plan(settings)
                self._looked[text] = Candidate(settings, plan, recipe_sha256(plan))
            except (RecipeError, ModelError):
                self._looked[text] = None
        return self._looked[text]


def _text(settings: Settings) -> str:
    return json.dumps(dict(settings), sort_keys=True)
