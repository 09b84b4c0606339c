"""Which trial is next: the one with the largest expected improvement per second of training.

1. Candidates are drawn at random; half of them are crossed with trials of the Pareto front
   (`Chooser`).
2. A Gaussian process over the trained trials predicts the main metric of each candidate from its
   sizes and settings (`predict`).
3. The expected improvement follows in closed form (`gains_of`): of the metric, of the file size
   times the probability of keeping the drop, or of the hypervolume of several objectives.
4. It is divided by the expected training time (`Steps.seconds`; Snoek et al. 2012, section 3.2).
5. The most promising candidate is built and converted untrained in a worker (`Sizes`), and all are
   ranked again with its exact sizes. Sizes are predicted until then.
"""

from __future__ import annotations

import itertools
import json
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
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
from shrink.search.goal import SIZE, UNTRAINED, Goal, cost_of, tolerance_of, undominated
from shrink.search.space import AS_WRITTEN, CHAIN, Settings

if TYPE_CHECKING:
    from shrink.base.types import Array

_DRAWN = 60
"""Random candidates per round."""
_ROUNDS = 8
"""Rounds of one choice; each computes the exact sizes of at most one candidate."""
_MIXED = 0.5
"""Fraction of the candidates that are crossed with a trial of the front, and of their settings."""
_LEAST_SPREAD = 0.1
"""Least standard deviation of a prediction, as a fraction of that of the known values: maximum
likelihood underestimates it from few values."""
_RESERVE = 1.15
"""Safety factor on the expected seconds of a trial that has to end in time."""
_START_S, _EPOCH_S, _LEAST_S = 5.0, 1.0, 0.1
"""Seconds assumed for a stage and each of its epochs before a stage of its kind was computed."""


class Steps:
    """Finds the cached steps of plans, and estimates the duration of the others.

    Args:
        store: the cache of finished steps.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._digests: list[tuple[DataConfig, str]] = []

    def keys(self, plan: Plan) -> tuple[Splits, dict[str, str]]:
        """Return the splits of a plan's data, and the cache key of each step by its name."""
        digest = self._digest(plan.recipe.data)
        splits = splits_of(plan, digest, self.store)
        return splits, step_keys(plan, digest, splits)

    def seconds(self, plans: Sequence[Plan], trained: Sequence[Plan]) -> list[float]:
        """Return the expected seconds of each plan, without its cached steps.

        Args:
            plans: to be estimated.
            trained: plans of finished trials; a step is estimated from their steps of its kind.
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
        """Return the fingerprint of data, read once per search."""
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
    """Computes the sizes of models before they are trained, in a worker.

    Args:
        steps: cached steps.
        trust_model: whether model files may contain code.
    """

    def __init__(self, steps: Steps, trust_model: bool = False) -> None:
        self._steps, self._trust_model = steps, trust_model
        self._known: dict[str, Outline] = {}

    def of(self, plans: Sequence[Plan]) -> list[Outline]:
        """Return the sizes after the last step of each plan; an error if they are unknown.

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
        """Return the jobs of the steps that the last step needs; cached models are their inputs."""
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
    """The inputs of a prediction: settings, and the figures that are known before training."""

    settings: Settings
    figures: Figures


def predict(
    known: Sequence[Point], values: Sequence[float], queries: Sequence[Point], names: Sequence[str]
) -> tuple[Array, Array]:
    """Return the means and standard deviations of predictions, float64 (queries,) each.

    A Gaussian process with a linear trend and a Matern 5/2 kernel, hyperparameters by maximum
    likelihood.

    Args:
        known: points with known values; at least one.
        values: of them.
        queries: points to predict.
        names: figures whose logarithms describe a point.
    """
    import numpy as np

    if len(known) < 2 or not queries:
        spread = 0.05 * max(abs(values[0]), 1e-9)
        return np.full(len(queries), values[0]), np.full(len(queries), spread)
    from sklearn.gaussian_process import GaussianProcessRegressor, kernels

    columns = _columns([*known, *queries], names)
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
    """Return the expected amount by which a normally distributed cost falls below a level.

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
        recipe: hash of the recipe; different settings can give the same recipe.
        outline: exact sizes; None until they are computed.
    """

    settings: Settings
    plan: Plan
    recipe: str
    outline: Outline | None = None

    @property
    def trains_nothing(self) -> bool:
        """Whether no stage but the baseline trains."""
        baseline = self.plan.baseline.name
        return not any(one.epochs for one in self.plan.steps if one.name != baseline)


@dataclass(frozen=True)
class History:
    """The state of a search, which its workers share.

    Attributes:
        trials: finished trials.
        recipes: hashes of the recipes of all trials.
        running: settings of the trials that other workers train now.
        count: number of all trials.
        left_s: seconds until the search ends.
    """

    trials: Sequence[Trial]
    recipes: frozenset[str] = frozenset()
    running: Sequence[Settings] = ()
    count: int = 0
    left_s: float = math.inf


@dataclass(frozen=True)
class Proposal:
    """The result of one choice.

    Attributes:
        settings: of the next trial; None if no candidate promises an improvement.
        rejected: candidates whose exact sizes exceed a limit, or of which a stage would fail.
    """

    settings: Settings | None
    rejected: Sequence[Candidate] = ()


class Chooser:
    """Chooses the next trial.

    Args:
        goal: limits and objectives.
        baseline: figures on the validation split.
        plans: makes the plan of a trial from its settings.
        steps: cached stages and the durations of stages.
        sizes: computes exact sizes.
        seed: of the random candidates.
    """

    def __init__(
        self,
        goal: Goal,
        baseline: Figures,
        plans: Candidates,
        steps: Steps,
        sizes: Sizes,
        seed: int,
    ) -> None:
        self._goal, self._baseline = goal, baseline
        self._plans, self._steps, self._sizes, self._seed = plans, steps, sizes, seed
        self._first = [*plans.space.first()]
        self._candidates: dict[str, Candidate | None] = {}

    def begin(self) -> list[Settings]:
        """Return the starting trials: all that train nothing, or else the shortest one.

        The recipe as written follows, unless several objectives are traded.
        """
        first = [one for one in map(self._candidate, self._first) if one is not None]
        chosen = [one for one in first if one.trains_nothing]
        if not chosen and first:
            seconds = self._steps.seconds([one.plan for one in first], [])
            chosen = [first[seconds.index(min(seconds))]]
        if first and not self._goal.traded:
            as_written = first[0].settings.get(CHAIN) in (None, AS_WRITTEN)
            chosen += [first[0]] if as_written else []
        return [*{one.recipe: one.settings for one in chosen}.values()]

    def next(self, history: History) -> Proposal:
        """Return the trial with the largest expected improvement per second.

        Trials that end in time go before others. While the most promising candidate has predicted
        sizes, its exact sizes are computed, and all candidates are ranked again. After `_ROUNDS`
        rounds the trial may have predicted sizes; its worker computes the exact ones.
        """
        pool: dict[str, Candidate] = {}
        rejected: dict[str, Candidate] = {}
        promising: list[str] = []
        sized = any(name in UNTRAINED for name in self._goal.names)
        for number in range(_ROUNDS):
            drawn = () if promising else self._draw(history, number)
            for one in filter(None, map(self._candidate, drawn)):
                if one.recipe not in history.recipes and one.recipe not in rejected:
                    pool.setdefault(one.recipe, one)
            promising, smallest = self._ranked(history, pool)
            if promising and (not sized or pool[promising[0]].outline is not None):
                break
            # if no candidate is promising, the smallest shows whether the limits can be kept
            unsized = [r for r in promising or smallest if sized and pool[r].outline is None]
            for recipe in unsized[:1]:
                (outline,) = self._sizes.of([pool[recipe].plan])
                one = pool[recipe] = replace(pool[recipe], outline=outline)
                self._candidates[_text(one.settings)] = one
                if outline.stage_failed or self._goal.broken_by(outline):
                    rejected[recipe] = pool.pop(recipe)
                    promising = [other for other in promising if other != recipe]
        else:
            promising, _ = self._ranked(history, pool)
        return Proposal(pool[promising[0]].settings if promising else None, [*rejected.values()])

    def _ranked(
        self, history: History, pool: Mapping[str, Candidate]
    ) -> tuple[list[str], list[str]]:
        """Return the recipes that promise an improvement, the best first; and all, by size."""
        candidates = [*pool.values()]
        running = [one for one in map(self._candidate, history.running) if one is not None]
        points = self._points([*candidates, *running], history.trials)
        within = [
            n
            for n, one in enumerate(candidates)
            if all(
                (points[n].figures[name] or math.inf) <= limit * (1 + tolerance_of(one.outline))
                for name, limit in self._goal.limits.items()
                if name != self._goal.metric
            )
        ]
        gains = gains_of(
            self._goal,
            self._baseline,
            history.trials,
            [points[n] for n in within],
            points[len(candidates) :],
        )
        gain_of = {n: gain for n, gain in zip(within, gains, strict=True) if gain > 0}
        done = [self._candidate(one.settings) for one in history.trials if one.status == "done"]
        seconds = self._steps.seconds(
            [candidates[n].plan for n in gain_of], [one.plan for one in done if one is not None]
        )
        ranks = {
            candidates[n].recipe: (_RESERVE * took <= history.left_s, gain_of[n] / took)
            for n, took in zip(gain_of, seconds, strict=True)
        }
        size_of = {
            one.recipe: point.figures.get(SIZE) or 0.0
            for one, point in zip(candidates, points, strict=False)
        }
        promising = sorted(ranks, key=ranks.__getitem__, reverse=True)
        return promising, sorted(size_of, key=size_of.__getitem__)

    def _points(self, candidates: Sequence[Candidate], trials: Sequence[Trial]) -> list[Point]:
        """Return candidates with exact sizes, or else optimistic ones predicted from settings."""
        figures = [dict(one.outline.figures) if one.outline else {} for one in candidates]
        sized = [one for one in self._candidates.values() if one is not None and one.outline]
        known = [
            *((one.settings, one.figures) for one in trials),
            *((one.settings, one.outline.figures) for one in sized if one.outline),
        ]
        for name in self._goal.names:
            measured = [(Point(s, {}), math.log(v)) for s, f in known if (v := f.get(name))]
            if not measured:
                limit = self._goal.limits.get(name, math.inf)
                before = self._baseline.get(name) or min(limit, 1e9)
                measured = [(Point({}, {}), math.log(max(min(before, limit), 1e-9)))]
            unknown = [n for n, one in enumerate(figures) if name not in one]
            points = [Point(candidates[n].settings, {}) for n in unknown]
            means, spreads = predict([p for p, _ in measured], [v for _, v in measured], points, ())
            for n, mean, spread in zip(unknown, means, spreads, strict=True):
                figures[n][name] = math.exp(mean - spread)
        return [Point(one.settings, f) for one, f in zip(candidates, figures, strict=True)]

    def _draw(self, history: History, number: int) -> Iterator[Settings]:
        """Yield the first settings of the space, then random ones, half of them near the front."""
        random = Random(f"{self._seed}:{history.count}:{number}")
        yield from self._first if number == 0 else ()
        by_number = {one.number: one.settings for one in history.trials}
        parents = [*(by_number[n] for n in self._goal.front(history.trials)), *self._first]
        draws = self._plans.space.random(random.randrange(2**31))
        for drawn in itertools.islice(draws, _DRAWN):
            alike = [one for one in parents if one.get(CHAIN) == drawn.get(CHAIN)]
            if not alike or random.random() < _MIXED:
                yield drawn
                continue
            parent = random.choice(alike)
            yield {
                key: parent[key] if key in parent and random.random() < _MIXED else value
                for key, value in drawn.items()
            }

    def _candidate(self, settings: Settings) -> Candidate | None:
        """Return the candidate of settings; None if they do not give a valid recipe."""
        text = _text(settings)
        if text not in self._candidates:
            try:
                plan = self._plans.plan(settings)
                self._candidates[text] = Candidate(settings, plan, recipe_sha256(plan))
            except (RecipeError, ModelError):
                self._candidates[text] = None
        return self._candidates[text]


def _text(settings: Settings) -> str:
    return json.dumps(dict(settings), sort_keys=True)
