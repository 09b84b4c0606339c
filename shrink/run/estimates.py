"""Time and memory of stages before they run, from what stages took that were computed before.

Each computed stage leaves a small file in the store: seconds, the peak of its process, and its
work. A stage that was computed itself takes as long again. Others of its kind are scaled: time is
a fixed part and one that grows with the work, memory grows with copies of the weights. Of a single
record the training grows with the passes over the examples, and what is beside it with the model's
multiply-accumulates.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace

from shrink.base import cache, files
from shrink.base.foreign import Json
from shrink.contract.codec import from_plain, to_plain
from shrink.contract.estimates import Estimate, StageTiming
from shrink.contract.result import StepResult
from shrink.recipe.plan import Step
from shrink.run.host_plan import MODEL_COPIES
from shrink.run.store import Store, StoredStep

_KIND = "timings"
_BACKWARD = 3.0
"""Passes that a training step counts for: forward, and gradients of inputs and of weights."""
_NEAREST = 8
_LEAST_S = 0.01
_AGAIN = 1.25
"""Within which a step takes as long again on the same machine."""
_LEAST_SPREAD, _MOST_SPREAD = 1.25, 10.0


def variant_of(step: Step) -> str:
    """Return a stage's method or scheme, which decide what it does; empty where it has neither.

    Channels that layers share by curves are a variant of their own: measuring these takes longer
    than cutting channels.
    """
    config: dict[str, Json] = {} if step.config is None else step.config.model_dump(mode="json")
    variant = str(config.get("scheme") or config.get("method") or "")
    return f"{variant}, {config['allocation']}" if measures_curves(step) else variant


def measures_curves(step: Step) -> bool:
    """Return whether a stage measures what each layer misses without some of its channels."""
    method, allocation = (getattr(step.config, key, None) for key in ("method", "allocation"))
    return method == "channels" and allocation in ("auto", "sensitivity")


def timing_of(step: Step, result: StepResult, baseline: StepResult | None) -> StageTiming | None:
    """Return what a computed stage took; None where its time is not known.

    Args:
        step: the stage.
        result: what came of it.
        baseline: of the recipe's first step, which tells the model's size and the examples.
    """
    if result.duration_s is None:
        return None
    size = {} if baseline is None else baseline.size
    examples = (None if baseline is None else baseline.data.examples) or {}
    parameters, macs, peak = (
        size.get("parameters"), size.get("macs"), result.memory.get("stage_host_peak_bytes")
    )  # fmt: skip
    timing = result.timing
    found = StageTiming(
        kind=step.kind,
        variant=variant_of(step),
        weights_bytes=None if parameters is None else round(4 * parameters),
        duration_s=result.duration_s,
        start_s=max(0.0, result.duration_s - timing.stage_s - timing.measure_s),
        train_s=_training_s(result, examples.get("train")),
        host_peak_bytes=None if peak is None else round(peak),
        macs=None if macs is None else round(macs),
        train=examples.get("train"),
        test=examples.get("test"),
    )
    return replace(found, work=_work(step, found))


def _training_s(result: StepResult, examples: int | None) -> float | None:
    """Return what a stage's updates took; None where it went on from a checkpoint, too."""
    if result.training is None:
        return 0.0
    seconds = result.training.seconds(examples)
    return None if seconds is None or seconds > result.timing.stage_s else seconds


def _work(step: Step, sizes: StageTiming | None) -> float | None:
    """Return what a step computes with a model and data of these sizes."""
    if sizes is None or sizes.macs is None or sizes.train is None:
        return None
    passes = _BACKWARD * step.epochs * sizes.train + (sizes.test or 0)
    return float(sizes.macs) * max(passes, 1.0)


def keep_timing(
    step: Step, stored: StoredStep, key: str, baseline: StoredStep | None, store: Store
) -> None:
    """Remember what a stage took, under its key; what cannot be written is not missed."""
    begins = None if baseline is None else baseline.result
    path = store.root / _KIND / f"{key}.json"
    if not path.exists() and (timing := timing_of(step, stored.result, begins)) is not None:
        cache.keep(path, files.encoded(json.dumps(to_plain(timing))))


class Estimator:
    """Estimates the steps of one plan.

    Args:
        store: that remembers what stages took.
        baseline: key of the plan's first step.
    """

    def __init__(self, store: Store, baseline: str) -> None:
        self._folder, self._baseline = store.root / _KIND, baseline
        self._looked_at: set[str] = set()
        self._known: dict[str, StageTiming] = {}
        self.look_again()

    def look_again(self) -> None:
        """Read what stages have left since the last time."""
        for path in sorted(self._folder.glob("*.json")):
            if path.stem in self._looked_at:
                continue
            self._looked_at.add(path.stem)
            if (timing := _read(files.read_mapping(path))) is not None:
                self._known[path.stem] = timing

    @property
    def _sizes(self) -> StageTiming | None:
        return self._known.get(self._baseline)

    def knows(self, step: Step) -> bool:
        """Return whether a stage of this kind and variant was computed before."""
        wanted = (step.kind, variant_of(step))
        return any((one.kind, one.variant) == wanted for one in self._known.values())

    def estimate(self, step: Step, key: str) -> Estimate:
        """Return what computing a step takes.

        Args:
            step: of the plan.
            key: of the step, by which the same one is known again.
        """
        if (same := self._known.get(key)) is not None:
            seconds = same.duration_s
            return Estimate(
                duration_s=seconds,
                low_s=seconds / _AGAIN,
                high_s=seconds * _AGAIN,
                host_peak_bytes=same.host_peak_bytes,
                basis="same_step",
                records=1,
                why="this very stage was computed before",
            )
        variant = variant_of(step)
        others = [one for one in self._known.values() if one.kind == step.kind]
        alike = [one for one in others if one.variant == variant]
        if not others:
            return Estimate(why=f"no stage of the kind {step.kind} was computed before")
        named = f"{step.kind} ({variant})" if variant else step.kind
        which = named if alike else f"{step.kind}, but of no {variant}"
        return _of_kind(alike or others, _work(step, self._sizes), self._sizes, which)


def _read(plain: dict[str, Json]) -> StageTiming | None:
    try:
        return from_plain(StageTiming, plain)
    except (KeyError, TypeError, ValueError):
        return None  # of another version


def _of_kind(
    known: Sequence[StageTiming], work: float | None, sizes: StageTiming | None, which: str
) -> Estimate:
    count = len(known)
    runs = f"1 earlier run of {which}" if count == 1 else f"{count} earlier runs of {which}"
    weights = None if sizes is None else sizes.weights_bytes
    scalable = [one for one in known if one.work is not None]
    if work is None or not scalable:
        times = sorted(one.duration_s for one in known)
        peaks = [one.host_peak_bytes for one in known if one.host_peak_bytes is not None]
        return Estimate(
            duration_s=times[count // 2],
            low_s=times[0] / _AGAIN,
            high_s=times[-1] * _AGAIN,
            host_peak_bytes=max(peaks, default=None),
            basis="same_kind",
            records=count,
            why=f"{runs}, not scaled: this version has not computed the model's baseline",
        )
    asked = replace(sizes or scalable[0], work=work)
    nearest = sorted(scalable, key=lambda one: _apart(one, work))[:_NEAREST]
    seconds, spread = _seconds(nearest, asked), _spread(nearest, asked)
    return Estimate(
        duration_s=seconds,
        low_s=seconds / spread,
        high_s=seconds * spread,
        host_peak_bytes=_peak(known, weights),
        basis="scaled",
        records=len(nearest),
        why=f"{runs}, scaled to this model and data",
    )


def _apart(one: StageTiming, work: float) -> float:
    return abs(math.log((one.work or 1.0) / work))


def _seconds(known: Sequence[StageTiming], asked: StageTiming) -> float:
    """Return the time of a step by those of others: a line through them, fixed part and slope.

    Of relative errors the least squares; where the works are the same, or the line falls, the
    nearest is scaled: see `_scaled`.

    Args:
        known: what others took.
        asked: the step's work, and the model and data that it is of.
    """
    work = asked.work or 1.0
    pairs = [(one.work or 1.0, one.duration_s) for one in known]
    total = sum(1 / t**2 for _, t in pairs)
    mean_w = sum(w / t**2 for w, t in pairs) / total
    mean_t = sum(1 / t for _, t in pairs) / total
    spread = sum((w - mean_w) ** 2 / t**2 for w, t in pairs)
    slope = 0.0
    if spread > (1e-3 * mean_w) ** 2 * total:
        slope = sum((w - mean_w) * (t - mean_t) / t**2 for w, t in pairs) / spread
    fixed = mean_t - slope * mean_w
    if slope > 0 and fixed > 0:
        return fixed + slope * work
    return _scaled(min(known, key=lambda one: _apart(one, work)), asked)


def _scaled(one: StageTiming, asked: StageTiming) -> float:
    """Return the time of a step by that of another, whose start takes as long.

    Training grows with its part of the work, what is beside it with the model alone; all with the
    work, where it is not known what the training took, or there was none.
    """
    start, trained = min(one.start_s, one.duration_s), _trained_work(one)
    if not one.train_s or not trained:
        grown = (one.duration_s - start) * (asked.work or 1.0) / (one.work or 1.0)
        return start + grown
    rest = max(_LEAST_S, one.duration_s - start - one.train_s)
    larger = (asked.macs or 1) / (one.macs or 1)
    return start + rest * larger + one.train_s * _trained_work(asked) / trained


def _trained_work(one: StageTiming) -> float:
    """Return the part of a step's work that is training."""
    return max(0.0, (one.work or 0.0) - (one.macs or 0) * max(one.test or 0, 1))


def _spread(known: Sequence[StageTiming], asked: StageTiming) -> float:
    """Return a factor within which an estimate probably lies.

    What each record would have been estimated at from the others; of one alone, how far its work
    is away.
    """
    if len(known) > 2:
        missed = [
            abs(math.log(_seconds([*known[:i], *known[i + 1 :]], one) / one.duration_s))
            for i, one in enumerate(known)
        ]
        factor = math.exp(max(missed))
    else:
        factor = math.exp(min(_apart(one, asked.work or 1.0) for one in known))
    return min(max(factor, _LEAST_SPREAD), _MOST_SPREAD)


def _peak(known: Sequence[StageTiming], weights: int | None) -> int | None:
    """Return the peak by that of the model nearest in size, with the copies that a larger takes."""
    peaks = [one for one in known if one.host_peak_bytes is not None]
    sized = [one for one in peaks if one.weights_bytes is not None]
    if weights is None or not sized:
        return max((one.host_peak_bytes or 0 for one in peaks), default=None)
    near = min(sized, key=lambda one: abs((one.weights_bytes or 0) - weights))
    more = round(MODEL_COPIES * (weights - (near.weights_bytes or 0)))
    return max((near.host_peak_bytes or 0) + more, 0)
