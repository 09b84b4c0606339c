"""The `search` section of a recipe: what to vary, what to optimise, and within which limits.

The flags of `shrink search` and the keywords of `shrink.search` are made from these models.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from shrink.base.fields import Bytes, CalledAs, Config, Count, Positive
from shrink.base.figures import FIGURES, LOSS
from shrink.base.metrics import is_known_name

_TIME = re.compile(r"(\d+(?:\.\d+)?) ?(ms|s|m|h)?")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_seconds(value: object) -> float:
    """Return seconds from a number, or from text such as `90s`, `30m` or `2h`.

    Raises:
        ValueError: not a time above 0.
    """
    return _parse(value, "s", "a time is a number of seconds, or has a unit: 90s, 30m, 2h")


def parse_milliseconds(value: object) -> float:
    """Return milliseconds from a number, or from text such as `5ms`.

    Raises:
        ValueError: not a time above 0.
    """
    return _parse(value, "ms", "a latency is a number of milliseconds, or has a unit: 5ms") * 1000


def _parse(value: object, unit: str, says: str) -> float:
    text = str(value).strip() if isinstance(value, int | float | str) else ""
    found = None if isinstance(value, bool) else _TIME.fullmatch(text)
    if found is None or not float(found[1]) > 0:
        raise ValueError(says)
    return float(found[1]) * _SECONDS[found[2] or unit]


_TIME_SCHEMA = WithJsonSchema(
    {
        "anyOf": [
            {"type": "number", "exclusiveMinimum": 0},
            {"type": "string", "pattern": r"^\d+(\.\d+)? ?(ms|s|m|h)$"},
        ]
    }
)
Seconds = Annotated[float, BeforeValidator(parse_seconds), _TIME_SCHEMA]
Milliseconds = Annotated[float, BeforeValidator(parse_milliseconds), _TIME_SCHEMA]


class Range(Config):
    """Numbers from `low` to `high`."""

    low: float | int
    """The smallest value."""
    high: float | int
    """The largest value."""
    step: Positive | None = None
    """Distance between values; by default 1 if both ends are integers, else continuous."""
    log: bool = False
    """Sample uniformly in the logarithm of the value."""

    @model_validator(mode="after")
    def _check(self) -> Range:
        if self.low >= self.high:
            raise ValueError("low must be below high")
        if self.log and self.low <= 0:
            raise ValueError("log needs a low above 0")
        if self.log and self.step is not None:
            raise ValueError("log takes no step")
        return self


Choices = Annotated[tuple[object, ...], Field(strict=False, min_length=1)]


class Constraints(Config):
    """Limits. A trial that breaks one is not chosen; the recipe's gates are limits too."""

    tflite_bytes: Annotated[Bytes | None, CalledAs("flash")] = None
    """The largest .tflite file: 64KB."""
    arena_bytes: Annotated[Bytes | None, CalledAs("ram")] = None
    """The largest tensor arena in TFLite Micro: 40KB; schemes that it cannot run are left out."""
    p50_ms: Annotated[Milliseconds | None, CalledAs("latency")] = None
    """The longest inference, such as 5ms: on this host, or as `search.latency.command` measures
    it."""
    max_drop: Annotated[float, Field(ge=0)] | None = None
    """How much the main metric may lose against the baseline: 0.01 is one percentage point. The
    best trial is then the smallest file within it; without it, the most accurate one."""
    macs: Count | None = None
    """The most multiply-accumulates per example."""
    parameters: Count | None = None
    """The most weights."""
    gzip_bytes: Bytes | None = None
    """The largest file after gzip -9."""


class LatencyConfig(Config):
    """How latency is measured."""

    command: str
    """Shell command that measures latency, for example on a board; `{artifact}` is replaced by
    the path of the .tflite file. The last number it prints is the latency in milliseconds."""


class SearchConfig(Config):
    """What `shrink search` varies and optimises, and when it ends."""

    space: dict[str, Range | Choices] = Field(default_factory=dict)
    """Keys of the recipe, as `--set` takes them, each with a list of values or a range; by default
    a space is built from the model."""
    objectives: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Figures to optimise; by default the file size with `max_drop`, else the main metric. Several
    give a Pareto front."""
    constraints: Constraints = Constraints()
    """Limits."""
    trials: Count | None = None
    """The most trials to train."""
    time: Seconds | None = None
    """When to stop, such as 30m; includes the last measurement."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Random seed of the candidates."""
    storage: str | None = None
    """A journal file on a shared disk, for several searches that share their trials; start the
    same command on each machine."""
    latency: LatencyConfig | None = None
    """A command that measures latency, instead of this host."""

    @model_validator(mode="after")
    def _check(self) -> SearchConfig:
        for name in self.objectives:
            if name not in FIGURES and name != LOSS and not is_known_name(name):
                raise ValueError(f"objectives: {name!r} is not a figure of a report")
        if len(set(self.objectives)) < len(self.objectives):
            raise ValueError("objectives: a figure is listed twice")
        if self.storage is not None and "://" in self.storage:
            raise ValueError("storage: must be a file on a shared disk, not the URL of a database")
        return self


NOT_FLAGS = ("space", "latency")
"""Keys that only a recipe has, or `--set`."""
