"""The keys of a plan's steps, by which the store knows them, and what computing the rest takes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from shrink.data.config import DataConfig
from shrink.data.fingerprint import fingerprint
from shrink.recipe.plan import Plan, Step
from shrink.run.estimates import Estimator, measures_curves
from shrink.run.judged import made_before
from shrink.run.keys import step_keys
from shrink.run.lineage import Splits, splits_of
from shrink.run.store import Store

_START_S, _EPOCH_S, _CHANNELS_S, _CURVES_S = 8.0, 1.0, 8.0, 40.0
"""What a step is taken to need, each of its epochs, solving for the channels that stay, and curves
of what each layer misses, before one of its kind has been computed: enough to tell long ones from
short."""


@dataclass(frozen=True)
class Keys:
    """What the store knows the steps of a plan by.

    Attributes:
        splits: of its data.
        of_steps: the key of each step, by its name.
    """

    splits: Splits
    of_steps: dict[str, str]


class Keyed:
    """Finds the keys of plans; data are looked at once, as they stay as they are in a search.

    Args:
        store: of finished steps, and of what they took.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._digests: list[tuple[DataConfig, str]] = []
        self._estimators: dict[str, Estimator] = {}

    def keys(self, plan: Plan) -> Keys:
        """Return the keys of a plan's steps."""
        digest = self._digest(plan.data_config)
        splits = splits_of(plan, digest, self._store)
        return Keys(splits, step_keys(plan, digest, splits))

    def seconds(self, plans: Sequence[Plan]) -> list[float]:
        """Return what runs of a search's plans are expected to take, beside what is stored."""
        if not plans:
            return []
        keys = [self.keys(plan).of_steps for plan in plans]
        estimator = self._estimator(keys[0][plans[0].baseline.name])
        stored = functools.cache(lambda key: made_before(key, self._store) is not None)
        return [
            sum(
                _seconds(estimator, step, known[step.name])
                for step in plan.steps
                if not stored(known[step.name])
            )
            for plan, known in zip(plans, keys, strict=True)
        ]

    def _estimator(self, baseline: str) -> Estimator:
        """Return what estimates steps behind a baseline, by what the store has now."""
        if baseline in self._estimators:
            self._estimators[baseline].look_again()
        else:
            self._estimators[baseline] = Estimator(self._store, baseline)
        return self._estimators[baseline]

    def _digest(self, config: DataConfig) -> str:
        for known, digest in self._digests:
            if known == config:
                return digest
        self._digests.append((config, fingerprint(config)))
        return self._digests[-1][1]


def _seconds(estimator: Estimator, step: Step, key: str) -> float:
    found = estimator.estimate(step, key).duration_s
    curves = _CURVES_S if measures_curves(step) and not estimator.knows(step) else 0.0
    if found is not None:
        return found + curves
    solves = _CHANNELS_S if getattr(step.config, "method", None) == "channels" else 0.0
    return _START_S + _EPOCH_S * step.epochs + solves + curves
