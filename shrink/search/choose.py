"""Choice of the next trial: the largest expected improvement per second of training.

1. Candidates are drawn at random; half of them are crossed with trials of the Pareto front
   (`Chooser`).
2. A Gaussian process over the trained trials predicts the main metric of each candidate from its
   sizes and settings (`predicted_values`).
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
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from shrink.base.errors import Interrupted, ModelError, RecipeError, ShrinkError, Terminated
from shrink.base.foreign import Json
from shrink.contract.codec import from_plain
from shrink.contract.job import OF_STEP, Outline, OutlineJob, StepJob
from shrink.contract.model_source import ModelKind, ModelSource, Trust
from shrink.contract.report import Figures
from shrink.contract.search import Trial
from shrink.data.config import DataConfig
from shrink.data.fingerprint import fingerprint
from shrink.recipe.plan import Plan, Source, Step
from shrink.recipe.resolution import recipe_sha256
from shrink.run.keys import step_keys
from shrink.run.lineage import Splits, splits_of
from shrink.run.process import run_worker
from shrink.run.steps import step_job
from shrink.run.store import Store, StoredStep
from shrink.run.stored_step import ARTIFACT, made_before
from shrink.search.candidates import Candidates
from shrink.search.goal import (
    SIZE,
    SIZE_TOLERANCE,
    UNTRAINED,
    Goal,
    cost_of,
    tolerance_of,
    undominated,
)
from shrink.search.space import AS_WRITTEN, CHAIN, Settings
from shrink.search.trials import Journal

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
        made = dict[str, StoredStep | None]()

        def cached(key: str) -> StoredStep | None:
            if key not in made:
                made[key] = made_before(key, self.store)
            return made[key]

        rates: dict[str, list[float]] = {}
        for plan in trained:
            for name, key in self.keys(plan)[1].items():
                known = None if key in made else cached(key)
                if known is not None and known.result.duration_s is not None:
                    step = plan.step(name)
                    rate = known.result.duration_s / _assumed_s(step)
                    rates.setdefault(step.kind, []).append(rate)
        factors = {kind: sum(found) / len(found) for kind, found in rates.items()}
        return [
            _LEAST_S
            + sum(
                _assumed_s(step) * factors.get(step.kind, 1.0)
                for step, key in ((plan.step(n), k) for n, k in self.keys(plan)[1].items())
                if cached(key) is None
            )
            for plan in plans
        ]

    def _digest(self, config: DataConfig) -> str:
        """Return the fingerprint of data, read once per search."""
        for known, digest in self._digests:
            if known == config:
                return digest
        self._digests.append((config, fingerprint(config)))
        return self._digests[-1][1]


def _assumed_s(step: Step) -> float:
    return _START_S + _EPOCH_S * step.epochs


class Sizes:
    """Computes the sizes of models before they are trained, in a worker.

    Args:
        steps: cached steps.
        trust_model: whether model files may contain code.

    Attributes:
        mean_s: seconds that the sizes of a model took to compute; 0 before the first.
    """

    mean_s = 0.0

    def __init__(self, steps: Steps, trust_model: bool = False) -> None:
        self._steps, self._trust_model = steps, trust_model
        self._known: dict[str, Outline] = {}

    def of(self, plan: Plan) -> Outline:
        """Return the sizes after the last step of a plan; an error if they are unknown.

        Raises:
            Interrupted, Terminated: by the user, or because the time is over.
        """
        key = self._steps.keys(plan)[1][plan.finals[-1]]
        if key not in self._known:
            started = time.monotonic()
            try:
                with self._steps.store.work_folder() as work:
                    job = OutlineJob(name="sizes", steps=self._chain(plan))
                    found = from_plain(Outline, run_worker(job, work, lambda event: None))
                self._known[key] = found
            except (Interrupted, Terminated):
                raise
            except ShrinkError as error:
                self._known[key] = Outline(figures={}, error=error.message)
            self.mean_s += (time.monotonic() - started - self.mean_s) / len(self._known)
        return self._known[key]

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


class Features(NamedTuple):
    """The inputs of a prediction: settings, and the figures that are known before training."""

    settings: Settings
    figures: Figures


def predicted_values(
    known: Sequence[Features],
    values: Sequence[float],
    queries: Sequence[Features],
    names: Sequence[str],
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


def _columns(points: Sequence[Features], names: Sequence[str]) -> Array:
    """Return points as numbers, (points, columns): log sizes, numeric settings, one-hot settings.

    A number that is not known is the mean of those that are.
    """
    import numpy as np

    columns = list[list[Json]]()
    for name in names:
        found = [one.figures.get(name) for one in points]
        columns.append([None if v is None else math.log(max(v, 1e-9)) for v in found])
    for key in dict.fromkeys(key for one in points for key in one.settings):
        values = [one.settings.get(key) for one in points]
        if all(isinstance(v, int | float | None) and not isinstance(v, bool) for v in values):
            columns.append(values)
        else:
            kinds = dict.fromkeys(map(repr, values))
            columns += [[repr(v) == kind for v in values] for kind in kinds]
    array = np.array(columns or [[0.0] * len(points)], np.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a column without any number
        means = np.nan_to_num(np.nanmean(array, axis=1, keepdims=True))
    return np.where(np.isnan(array), means, array).T


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
    points: Sequence[Features],
    running: Sequence[Features] = (),
) -> list[float]:
    """Return the expected improvement of points that were not trained.

    It is the expected gain of dominated volume over the figures that are optimised: of one figure
    its improvement, of several the hypervolume. Where the metric is not optimised, but its drop is
    limited, it is multiplied by the probability of keeping the limit. With a limited drop, the
    upper confidence bounds of trained trials are what is predicted.

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
    baseline_cost = cost_of(goal.metric, baseline[goal.metric])
    # Costs beyond, as of a training that diverged, would hide all others.
    worst = baseline_cost + max(abs(baseline_cost), 1e-12)
    most = worst if goal.max_drop is None else baseline_cost + goal.max_drop
    feasible = list[tuple[Figures, float]]()
    known, costs = [Features({}, baseline)], [baseline_cost]
    for trial in trials:
        cost = cost_of(goal.metric, trial.figures.get(goal.metric))
        if trial.status != "done" or not math.isfinite(cost):
            continue
        if goal.max_drop is not None and trial.drop_bound is not None:
            cost = baseline_cost + trial.drop_bound
        known.append(Features(trial.settings, trial.figures))
        costs.append(min(cost, worst))
        if trial.feasible and goal.keeps(trial.drop_bound):
            feasible.append((trial.figures, cost))
    if running:
        believed = [float(one) for one in predicted_values(known, costs, running, goal.names)[0]]
        known, costs = [*known, *running], [*costs, *believed]
        feasible += [(one.figures, cost) for one, cost in zip(running, believed, strict=True)]
    sizes = [name for name in goal.optimised if name != goal.metric]
    every = [*(figures for figures, _ in feasible), *(one.figures for one in points)]
    # A little beyond a limit, which a size may equal, or be predicted above.
    ends = [
        (1 + SIZE_TOLERANCE) * goal.limits[n]
        if goal.limits.get(n)
        else 2 * max(one.get(n) or 0.0 for one in every)
        for n in sizes
    ]
    is_judged = goal.metric in goal.optimised

    def place(figures: Figures) -> list[float]:
        return [cost_of(n, figures.get(n)) / (end or 1) for n, end in zip(sizes, ends, strict=True)]

    corner = [*[1.0] * len(sizes), min(worst, most) if is_judged else 1.0]
    front = undominated([[*place(one), cost if is_judged else 0.0] for one, cost in feasible])
    gains = list[float]()
    for one, mean, deviation in zip(
        points, *predicted_values(known, costs, points, goal.names), strict=True
    ):
        if is_judged:
            gain = expected_hypervolume_gain(place(one.figures), mean, deviation, front, corner)
        else:
            gain = expected_hypervolume_gain(place(one.figures), 0.0, 0.0, front, corner)
            gain *= 1.0 if goal.max_drop is None else probability_within(most, mean, deviation)
        gains.append(float(gain))
    return gains


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


class Chooser:
    """Chooses the next trial.

    Args:
        goal: limits and objectives.
        baseline: figures on the validation split.
        plans: makes the plan of a trial from its settings.
        steps: cached stages and the durations of stages.
        sizes: computes exact sizes.
        seed: of the random candidates.

    Attributes:
        rejected: candidates of the last choice whose exact sizes exceed a limit, or of which a
            stage would fail; by recipe.
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
        self.rejected: dict[str, Candidate] = {}

    def begin(self) -> list[Settings]:
        """Return the starting trials: all that train nothing, or else the shortest one.

        The recipe as written follows, unless several objectives are traded.
        """
        first = self._known(self._first)
        chosen = [
            one
            for one in first
            if not any(s.epochs for s in one.plan.steps if s.name != one.plan.baseline.name)
        ]
        if not chosen and first:
            seconds = self._steps.seconds([one.plan for one in first], [])
            chosen = [first[seconds.index(min(seconds))]]
        if first and not self._goal.traded and first[0].settings.get(CHAIN) in (None, AS_WRITTEN):
            chosen.append(first[0])
        return [*{one.recipe: one.settings for one in chosen}.values()]

    def next(self, journal: Journal, left_s: float = math.inf) -> Settings | None:
        """Return the settings with the largest expected improvement per second.

        Trials that end in time go before others. While the most promising candidate has predicted
        sizes, its exact sizes are computed if it can still be trained after that, and all
        candidates are ranked again. After `_ROUNDS` rounds the trial may have predicted sizes; its
        worker computes the exact ones.

        Args:
            journal: all trials so far.
            left_s: seconds until the search ends.

        Returns:
            None if no candidate promises an improvement.
        """
        deadline = time.monotonic() + left_s
        pool: dict[str, Candidate] = {}
        rejected = self.rejected = {}
        recipes = journal.recipes
        promising = list[Candidate]()
        sized = any(name in UNTRAINED for name in self._goal.names)
        for number in range(_ROUNDS):
            for one in self._known(() if promising else self._draw(journal, number)):
                if one.recipe not in recipes and one.recipe not in rejected:
                    pool.setdefault(one.recipe, one)
            left_s = deadline - time.monotonic()
            promising, smallest = self._ranked(journal, [*pool.values()], left_s)
            if promising and (not sized or promising[0].outline is not None):
                break
            if promising and not self.can_size(promising[0].plan, journal, left_s):
                break
            # if no candidate is promising, the smallest shows whether the limits can be kept
            unsized = [one for one in promising or smallest if sized and one.outline is None]
            for one in unsized[:1]:
                outline = self._sizes.of(one.plan)
                found = pool[one.recipe] = replace(one, outline=outline)
                self._candidates[_text(one.settings)] = found
                if outline.stage_failed or self._goal.broken_by(outline):
                    rejected[one.recipe] = pool.pop(one.recipe)
                    promising = [other for other in promising if other is not one]
        else:
            promising, _ = self._ranked(journal, [*pool.values()], deadline - time.monotonic())
        return promising[0].settings if promising else None

    def can_size(self, plan: Plan, journal: Journal, left_s: float) -> bool:
        """Whether the time left is enough to compute a plan's exact sizes and then to train it."""
        if not self._sizes.mean_s:
            return True
        done = self._known(one.settings for one in journal.trials if one.status == "done")
        (took,) = self._steps.seconds([plan], [one.plan for one in done])
        return self._sizes.mean_s + _RESERVE * took <= left_s

    def _ranked(
        self, journal: Journal, candidates: Sequence[Candidate], left_s: float
    ) -> tuple[list[Candidate], list[Candidate]]:
        """Return the candidates that promise an improvement, the best first; and all, by size."""
        trials, running = journal.trials, self._known(journal.running)
        points = self._points([*candidates, *running], trials)
        pairs = [*zip(candidates, points, strict=False)]
        within = [
            (one, point)
            for one, point in pairs
            if all(
                (point.figures[name] or math.inf) <= limit * (1 + tolerance_of(one.outline))
                for name, limit in self._goal.limits.items()
                if name != self._goal.metric
            )
        ]
        gains = gains_of(
            self._goal,
            self._baseline,
            trials,
            [point for _, point in within],
            points[len(candidates) :],
        )
        better = [(one, gain) for (one, _), gain in zip(within, gains, strict=True) if gain > 0]
        done = self._known(one.settings for one in trials if one.status == "done")
        seconds = self._steps.seconds([one.plan for one, _ in better], [one.plan for one in done])
        ranked = [
            ((_RESERVE * took <= left_s, gain / took), one)
            for (one, gain), took in zip(better, seconds, strict=True)
        ]
        ranked.sort(key=lambda pair: pair[0], reverse=True)
        smallest = sorted(pairs, key=lambda pair: pair[1].figures.get(SIZE) or 0.0)
        return [one for _, one in ranked], [one for one, _ in smallest]

    def _points(self, candidates: Sequence[Candidate], trials: Sequence[Trial]) -> list[Features]:
        """Return candidates with exact sizes, or else optimistic ones predicted from settings."""
        figures = [dict(one.outline.figures) if one.outline else {} for one in candidates]
        known = [(one.settings, one.figures) for one in trials]
        for sized in self._candidates.values():
            if sized is not None and sized.outline:
                known.append((sized.settings, sized.outline.figures))
        for name in self._goal.names:
            measured = [(Features(s, {}), math.log(v)) for s, f in known if (v := f.get(name))]
            if not measured:
                limit = self._goal.limits.get(name, math.inf)
                before = self._baseline.get(name) or min(limit, 1e9)
                measured = [(Features({}, {}), math.log(max(min(before, limit), 1e-9)))]
            unknown = [n for n, one in enumerate(figures) if name not in one]
            points = [Features(candidates[n].settings, {}) for n in unknown]
            means, spreads = predicted_values(
                [p for p, _ in measured], [v for _, v in measured], points, ()
            )
            for n, mean, spread in zip(unknown, means, spreads, strict=True):
                figures[n][name] = math.exp(mean - spread)
        return [Features(one.settings, f) for one, f in zip(candidates, figures, strict=True)]

    def _draw(self, journal: Journal, number: int) -> Iterator[Settings]:
        """Yield the first settings of the space, then random ones, half of them near the front."""
        random = Random(f"{self._seed}:{len(journal.entries)}:{number}")
        yield from self._first if number == 0 else ()
        front = self._goal.front(journal.trials)
        parents = [one.settings for one in journal.trials if one.number in front] + self._first
        draws = self._plans.space.random(random.randrange(2**31))
        for drawn in itertools.islice(draws, _DRAWN):
            alike = [one for one in parents if one.get(CHAIN) == drawn.get(CHAIN)]
            parent = random.choice(alike) if alike and random.random() >= _MIXED else {}
            yield {
                key: parent[key] if key in parent and random.random() < _MIXED else value
                for key, value in drawn.items()
            }

    def _known(self, several: Iterable[Settings]) -> list[Candidate]:
        """Return the candidates of settings that give a valid recipe."""
        found = list[Candidate]()
        for settings in several:
            text = _text(settings)
            if text not in self._candidates:
                try:
                    plan = self._plans.plan(settings)
                    self._candidates[text] = Candidate(settings, plan, recipe_sha256(plan))
                except (RecipeError, ModelError):
                    self._candidates[text] = None
            if (one := self._candidates[text]) is not None:
                found.append(one)
        return found


def _text(settings: Settings) -> str:
    return json.dumps(dict(settings), sort_keys=True)
