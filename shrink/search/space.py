"""What a search varies: keys of the recipe with their values, for each chain of stages."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shrink.base.foreign import Json, JsonObject

if TYPE_CHECKING:
    import optuna

CHAIN = "chain"
"""The setting that names a chain of stages; no recipe has such a key."""
Settings = Mapping[str, Json]


@dataclass(frozen=True)
class Choice:
    """A key with a list of values, of any kind."""

    values: tuple[Json, ...]

    def suggest(self, trial: optuna.Trial, name: str) -> Json:
        """Return one of the values; Optuna knows it by its place in the list."""
        if len(self.values) == 1:
            return self.values[0]
        return self.values[int(trial.suggest_categorical(name, [*range(len(self.values))]))]

    def encode(self, value: Json) -> int | None:
        """Return what Optuna knows a value by; None where it is none of the values, or alone."""
        known = value in self.values and len(self.values) > 1
        return self.values.index(value) if known else None

    def count(self) -> float:
        """Return how many values there are."""
        return len(self.values)


@dataclass(frozen=True)
class Interval:
    """A key with the numbers of a range; whole numbers where both ends are."""

    low: float
    high: float
    step: float | None = None
    log: bool = False

    def suggest(self, trial: optuna.Trial, name: str) -> Json:
        """Return a number of the range."""
        if self._whole:
            low, high = int(self.low), int(self.high)
            return trial.suggest_int(name, low, high, step=int(self.step or 1), log=self.log)
        value = trial.suggest_float(name, self.low, self.high, step=self.step, log=self.log)
        return round(value, 10) if self.step else float(f"{value:.4g}")

    def encode(self, value: Json) -> float | None:
        """Return the value itself, where it is in the range."""
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return value if is_number and self.low <= value <= self.high else None

    def count(self) -> float:
        """Return how many values there are."""
        step = self.step or (1 if self._whole and not self.log else None)
        if self._whole and self.log:
            step = 1
        return math.inf if step is None else math.floor((self.high - self.low) / step) + 1

    @property
    def _whole(self) -> bool:
        ends_are = isinstance(self.low, int) and isinstance(self.high, int)
        return ends_are and float(self.step or 1).is_integer()


Dimension = Choice | Interval


@dataclass(frozen=True)
class Chain:
    """Stages, and what is varied of them.

    Attributes:
        name: of the chain; empty for the recipe's own stages.
        stages: as a recipe has them; None for the recipe's own.
        dimensions: by the recipe's keys.
        first: settings to begin with.
    """

    name: str
    stages: tuple[JsonObject, ...] | None
    dimensions: Mapping[str, Dimension]
    first: tuple[Settings, ...] = ()

    def count(self) -> float:
        """Return how many points there are."""
        return math.prod(one.count() for one in self.dimensions.values())


@dataclass(frozen=True)
class Space:
    """The chains of stages that a search tries; at least one."""

    chains: tuple[Chain, ...]

    def chain(self, settings: Settings) -> Chain:
        """Return the chain of a point."""
        name = settings.get(CHAIN, self.chains[0].name)
        return next(one for one in self.chains if one.name == name)

    def suggest(self, trial: optuna.Trial) -> dict[str, Json]:
        """Return a point that a sampler suggests."""
        chain, settings = self.chains[0], dict[str, Json]()
        if len(self.chains) > 1:
            name = trial.suggest_categorical(CHAIN, [one.name for one in self.chains])
            chain = next(one for one in self.chains if one.name == name)
        if chain.name:
            settings[CHAIN] = chain.name
        for key, dimension in chain.dimensions.items():
            settings[key] = dimension.suggest(trial, _parameter(chain, key))
        return settings

    def encode(self, settings: Settings) -> dict[str, int | float | str]:
        """Return a point by the names and values that Optuna knows it by."""
        chain = self.chain(settings)
        found: dict[str, int | float | str] = {CHAIN: chain.name} if len(self.chains) > 1 else {}
        for key, dimension in chain.dimensions.items():
            if key in settings and (value := dimension.encode(settings[key])) is not None:
                found[_parameter(chain, key)] = value
        return found

    def first(self) -> Iterator[dict[str, Json]]:
        """Yield the points to begin with, one of each chain in turn."""
        for turn in itertools.zip_longest(*(chain.first for chain in self.chains)):
            for chain, settings in zip(self.chains, turn, strict=True):
                if settings is not None:
                    named = {CHAIN: chain.name} if chain.name else {}
                    yield {**named, **settings}

    def count(self) -> float:
        """Return how many points there are."""
        return sum(chain.count() for chain in self.chains)


def _parameter(chain: Chain, key: str) -> str:
    """Return Optuna's name of a key: chains share those that mean the same in each."""
    return key if not chain.name else f"{chain.name}:{key}"
