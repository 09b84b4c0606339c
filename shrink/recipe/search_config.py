"""The `search` section of a recipe: what to vary, what counts, what limits hold."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from shrink.base.fields import Bytes, Config, Count, NameIn, OpenFraction, Positive
from shrink.base.figures import FIGURES, LOSS
from shrink.base.metrics import is_known_name

SAMPLERS = ["gp", "tpe", "nsga2", "random"]
"""Names of what says which point of a search is next; the first is the default."""

_TIME = re.compile(r"(\d+(?:\.\d+)?) ?(ms|s|m|h)?")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_seconds(value: object) -> float:
    """Return seconds from a number, or from text such as `90s`, `30m` or `2h`.

    Raises:
        ValueError: it is no time above 0.
    """
    return _parse(value, "s", "a time is a number of seconds, or has a unit: 90s, 30m, 2h")


def parse_milliseconds(value: object) -> float:
    """Return milliseconds from a number, or from text such as `5ms`.

    Raises:
        ValueError: it is no time above 0.
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
    """The least."""
    high: float | int
    """The most."""
    step: Positive | None = None
    """Distance of two values; by default 1 where both ends are whole numbers, else none."""
    log: bool = False
    """True: small values are as likely as large ones, by their logarithm."""

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


Shares = Annotated[tuple[OpenFraction, ...], Field(strict=False)]


class Constraints(Config):
    """Limits on figures; a point that breaks one is not chosen."""

    tflite_bytes: Bytes | None = None
    """Of the file: `--flash`."""
    arena_bytes: Bytes | None = None
    """Of the tensor arena in TFLite Micro: `--ram`."""
    p50_ms: Milliseconds | None = None
    """Of the latency on this host, or of `latency.command`: `--latency`."""
    max_drop: Annotated[float, Field(ge=0)] | None = None
    """What the main metric may lose against the baseline, on validation examples."""
    macs: Count | None = None
    """Multiply-accumulates per example."""
    parameters: Count | None = None
    """Weights."""
    gzip_bytes: Bytes | None = None
    """Of the file under gzip -9."""


class LatencyConfig(Config):
    """How latency is measured."""

    command: str
    """Run in a shell with `{artifact}` in it replaced by the path of the .tflite file; the last
    number that it prints is the latency in milliseconds, such as that of a board."""


class SearchConfig(Config):
    """What `shrink search` varies, and what it looks for."""

    space: dict[str, Range | Choices] = Field(default_factory=dict)
    """Keys of the recipe, as `--set` takes them, each with a list of values or a range; by default
    what is built from the model."""
    objectives: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Figures to be good at; by default the smallest file with `max_drop`, else the main metric."""
    constraints: Constraints = Constraints()
    """Limits."""
    trials: Count | None = None
    """How many points are trained at most."""
    time: Seconds | None = None
    """Time for everything, the last measurement included."""
    sampler: Annotated[str, NameIn(SAMPLERS)] | None = None
    """gp, tpe, nsga2 or random. gp, the default, takes the point of largest expected improvement
    for each second of training, by sizes that are known untrained and a Gaussian process over what
    was trained; where a figure counts that training decides, such as latency, it is tpe."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Of the sampler."""
    rungs: Literal["auto"] | Shares = "auto"
    """Shares of the epochs that a point is trained for first; it goes on where others do no better.
    auto: 1/9 and 1/3, where training is most of what a point takes; an empty list for none."""
    warm_starts: bool = False
    """Whether a point that prunes further than one that was trained goes on from it: its recipe has
    both stages, and costs the epochs of both where the first is not in the store."""
    storage: str | None = None
    """What several workers share: a file on a shared disk, from the current folder, or the URL of a
    database: `--storage`."""
    latency: LatencyConfig | None = None
    """A command that measures latency, in place of this host's."""

    @model_validator(mode="after")
    def _check(self) -> SearchConfig:
        for name in self.objectives:
            if name not in FIGURES and name != LOSS and not is_known_name(name):
                raise ValueError(f"objectives: {name!r} is no figure of a report")
        if len(set(self.objectives)) < len(self.objectives):
            raise ValueError("objectives: a figure is there twice")
        return self
