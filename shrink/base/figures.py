"""Every figure of a report: its name, unit, direction, gates and how it is written."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeGuard

from shrink.base.intervals import Bounds
from shrink.base.metrics import METRICS, is_known_name, metric_of, named_after


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is finite and no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


Group = Literal["size", "memory", "latency", "metrics"]
Unit = Literal["bytes", "count", "ms", "s", "fraction", "points", "per_hour", "none"]

LOSS = "loss"
_PREFIXES = ("", "K", "M", "G", "T", "P")
_SECONDS_PER_MINUTE = 60
_SHOWN_AS_MICROSECONDS = 0.0995
"""Milliseconds below which two decimals hold fewer than two digits."""


@dataclass(frozen=True)
class Figure:
    """One figure of a stage.

    Args:
        name: the key in the report.
        group: the report's section that holds it.
        unit: bytes, count, ms, s, fraction (0 to 1), per_hour, or none; points, which are
            percentage points, is the unit of differences of fractions.
        larger_is_better: true for accuracies.
        everywhere: whether each stage has it, or says why not; if not, those alone that have it
            name it.
        head: heading of a narrow column.
        title: what it is called on pages and axes.
        meaning: a sentence for the documentation.
        range: what it and its interval cannot leave; None where nothing is known of that.
        largest: whether a run's own value is the largest of all stages.
    """

    name: str
    group: Group
    unit: Unit
    larger_is_better: bool = False
    everywhere: bool = True
    head: str = ""
    title: str = ""
    meaning: str = ""
    range: Bounds | None = None
    largest: bool = False

    @property
    def bounds(self) -> tuple[float, float] | None:
        """What it cannot leave on either side, as an accuracy; None where a side is open."""
        return self.range if self.range and all(map(math.isfinite, self.range)) else None

    @property
    def is_from_0_to_1(self) -> bool:
        """Whether it lies between 0 and 1, as fractions do and the area under a curve does."""
        return self.range == (0.0, 1.0)

    @property
    def can_be_negative(self) -> bool:
        """Whether its own limit in a gate may lie below 0."""
        return self.range is not None and self.range[0] < 0

    def text(self, value: float | None) -> str:
        """Return the value for people: `1.20 KB`, `12.5 M`, `98.33 %`; `-` for null."""
        return "-" if value is None else format_value(value, self.unit)


FIGURES: dict[str, Figure] = {
    figure.name: figure
    for figure in (
        Figure(
            *("file_bytes", "size", "bytes"),
            head="file",
            title="artifact file size",
            meaning="The artifact.",
        ),
        Figure(
            *("gzip_bytes", "size", "bytes"),
            head="gzip",
            title="size under gzip -9",
            meaning="The artifact under gzip -9.",
        ),
        Figure(
            *("tflite_bytes", "size", "bytes"),
            head="tflite",
            title="TFLite file size",
            meaning="The TFLite file; of a Keras stage its float32 conversion, so that "
            "stages compare.",
        ),
        Figure(
            *("parameters", "size", "count"),
            head="parameters",
            title="parameters",
            meaning="Weights.",
        ),
        Figure(
            *("nonzero_parameters", "size", "count"),
            head="nonzero",
            title="nonzero parameters",
            meaning="Weights that are not zero.",
        ),
        Figure(
            *("macs", "size", "count"),
            head="MACs",
            title="MACs per example",
            meaning="Multiply-accumulates of one example.",
        ),
        Figure(
            *("training_peak_bytes", "memory", "bytes"),
            largest=True,
            head="training",
            title="training peak",
            meaning="The most memory that any one device held while training.",
        ),
        Figure(
            *("training_peak_predicted_bytes", "memory", "bytes"),
            largest=True,
            head="predicted training",
            title="predicted training peak",
            meaning="The planner's prediction of it, fixed before training.",
        ),
        Figure(
            *("training_peak_allocator_bytes", "memory", "bytes"),
            largest=True,
            head="allocator",
            title="training peak, allocator's part",
            meaning="The part of it that the device's allocator counts.",
        ),
        Figure(
            *("training_peak_small_bytes", "memory", "bytes"),
            largest=True,
            head="small tensors",
            title="training peak, small tensors' part",
            meaning="The part of it in small tensors on a CPU, which bypass that allocator.",
        ),
        Figure(
            *("training_host_peak_bytes", "memory", "bytes"),
            largest=True,
            head="training host",
            title="host memory while training",
            meaning="The most resident memory of the worker process up to the end of "
            "training, from the kernel.",
        ),
        Figure(
            *("stage_host_peak_bytes", "memory", "bytes"),
            largest=True,
            head="process",
            title="host memory of the process",
            meaning="The most resident memory of the stage's process, conversion and "
            "measuring included, whether it trains or not.",
        ),
        Figure(
            *("inference_peak_bytes", "memory", "bytes"),
            head="inference",
            title="inference peak",
            meaning="Resident memory that loading and running the artifact adds, against a "
            "one-operator model.",
        ),
        Figure(
            *("arena_bytes", "memory", "bytes"),
            head="arena",
            title="tensor arena",
            meaning="The smallest tensor arena in which TFLite Micro allocates the model, "
            "to 16 bytes.",
        ),
        Figure(
            *("arena_estimate_bytes", "memory", "bytes"),
            head="arena estimate",
            title="tensor arena, estimated",
            meaning="The arena that a plan of the file's tensors needs, where TFLite Micro "
            "does not run it.",
        ),
        Figure(
            *("arena_32_bytes", "memory", "bytes"),
            head="arena 32-bit",
            title="tensor arena on 32-bit targets, estimated",
            meaning="An estimate of the arena on 32-bit targets with CMSIS-NN.",
        ),
        Figure(
            *("arena_32_reference_bytes", "memory", "bytes"),
            head="arena 32-bit reference",
            title="the same with reference kernels",
            meaning="The same with the reference kernels.",
        ),
        Figure(
            *("p50_ms", "latency", "ms"),
            head="p50",
            title="median latency",
            meaning="Median latency on this host, one thread.",
        ),
        Figure(
            *("p90_ms", "latency", "ms"),
            head="p90",
            title="90th percentile of latency",
            meaning="90th percentile of latency on this host, one thread.",
        ),
        Figure(
            *("cpu_operators", "latency", "count"),
            head="on CPU",
            title="operators on the CPU",
            meaning="Of a file that `compact` placed on an accelerator: operators that stay "
            "on the CPU.",
            everywhere=False,
        ),
    )
}
"""The figures that reports have, whatever the task; metrics come on top."""
STAGE_COLUMNS = (
    *("tflite_bytes", "training_peak_bytes", "arena_bytes", "cpu_operators", "p50_ms", "macs"),
    *("parameters", "gzip_bytes", "inference_peak_bytes"),
)
"""Columns of the table of stages, in its order; those without a value are left out."""
MORE_COLUMNS = (
    *("file_bytes", "nonzero_parameters", "training_peak_predicted_bytes"),
    *("training_host_peak_bytes", "stage_host_peak_bytes", "p90_ms"),
)
"""Columns that only Markdown and HTML have room for."""
COSTS = (
    *("tflite_bytes", "arena_bytes", "p50_ms", "macs", "parameters", "nonzero_parameters"),
    *("gzip_bytes", "training_peak_bytes", "inference_peak_bytes", "cpu_operators"),
)
"""What a metric is weighed against, the most important first: plots, comparisons, headlines."""
PEAK = "training_peak_bytes"
PICTURE = ("tflite_bytes", "arena_bytes", PEAK)
"""Bars by stage on the first screen of a report."""
MEMORY_BARS = ("training_host_peak_bytes", "inference_peak_bytes")
"""Bars by stage further down."""


def figures_of(group: Group) -> tuple[str, ...]:
    """Return the names of a group's figures, in the report's order; not for metrics."""
    return tuple(name for name, figure in FIGURES.items() if figure.group == group)


def metric_names() -> tuple[str, ...]:
    """Return the names of all metrics that a report may hold; `loss` is always one."""
    return tuple(dict.fromkeys((*METRICS, LOSS)))


_ABBREVIATIONS = {one.lower(): one for one in ("ROC", "AUC", "IoU", "mAP", "MAE", "MAPE", "RMSE")}


def metric_figure(name: str) -> Figure:
    """Return the figure of a metric.

    A report of another version may hold a metric that is not known here, and is still shown; of
    such, and of a user's function, the name's ending tells whether larger is better.
    """
    known = metric_of(name)
    info = METRICS.get(name) if known is None else known.info
    if info is None:
        larger, unit = named_after(name)
        return Figure(
            name, "metrics", unit, larger, range=(0.0, 1.0) if unit == "fraction" else None
        )
    words = (_ABBREVIATIONS.get(word, word) for word in name.split("_"))
    title = " ".join(words) if name in METRICS else name
    higher = info.higher_is_better
    return Figure(name, "metrics", info.unit, higher, title=title, range=info.range)


def figure_of(name: str) -> Figure:
    """Return the figure of this name; what is not in `FIGURES` is a metric."""
    return FIGURES.get(name) or metric_figure(name)


DURATION = "duration_s"
WORST_SLICE = "worst_slice_drop"
TargetKind = Literal["figure", "drop", "rise", "duration", "slice"]


@dataclass(frozen=True)
class Target:
    """What a gate's name means.

    Args:
        kind: a figure itself, how much worse a metric is than the baseline's, or a duration.
            A drop is a worsening whichever way is better; of losses it is also called a rise.
            A slice is the largest drop in any slice of the examples.
        figure: the figure that is looked at.
    """

    kind: TargetKind
    figure: Figure

    @property
    def is_minimum(self) -> bool:
        """Whether the limit is the least that is allowed."""
        return self.kind == "figure" and self.figure.larger_is_better


def _targets() -> dict[str, Target]:
    targets = {name: Target("figure", figure) for name, figure in FIGURES.items()}
    for name in metric_names():
        targets |= _metric_targets(name)
    targets[DURATION] = Target("duration", Figure(DURATION, "latency", "s"))
    targets[WORST_SLICE] = Target("slice", Figure(WORST_SLICE, "metrics", "none"))
    return targets


def _metric_targets(name: str) -> dict[str, Target]:
    metric = metric_figure(name)
    targets = {name: Target("figure", metric), f"{name}_drop": Target("drop", metric)}
    if not metric.larger_is_better:
        targets[f"{name}_rise"] = Target("rise", metric)
    return targets


TARGETS: dict[str, Target] = _targets()
"""Every legal name of a gate but those of metrics with arguments, and of users' functions."""


def target_of(name: str) -> Target | None:
    """Return what a gate's name means, None where no gate has this name."""
    if name in TARGETS:
        return TARGETS[name]
    for ending in ("_drop", "_rise", ""):
        metric = name.removesuffix(ending)
        if not name.endswith(ending) or not is_known_name(metric):
            continue
        if name in (targets := _metric_targets(metric)):
            return targets[name]
    return None


def unit_hint(size: float, limit: float) -> str:
    """Return the unit that was likely meant for a limit below a size, in a sentence; else ""."""
    if limit < 1000:
        return f"the limit is {limit:g} bytes; if KB are meant, write {limit:g}KB"
    for power, letter in ((3, "G"), (2, "M"), (1, "K")):
        count = limit / 1000**power
        if count.is_integer() and size <= (meant := count * 1024**power):
            return f"if {count:g} {letter}B are {meant:,.0f} bytes, write {count:g}{letter}iB"
    return ""


def format_value(value: float, unit: Unit) -> str:
    """Return a number for people, with its unit; KB and MB are powers of 1000."""
    if unit == "bytes":
        return _scaled(value, "B")
    if unit == "count":
        return _scaled(value, "").strip()
    if unit == "ms":
        if value == 0 or abs(value) >= _SHOWN_AS_MICROSECONDS:
            return f"{_three_digits(value)} ms"
        return f"{_three_digits(1000 * value)} µs"
    if unit == "s":
        seconds = value
        if seconds < _SECONDS_PER_MINUTE:
            return f"{seconds:.1f} s"
        minutes, rest = divmod(round(seconds), _SECONDS_PER_MINUTE)
        hours, minutes = divmod(minutes, 60)
        return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"
    if unit == "fraction":
        return f"{100 * value:.2f} %"
    if unit == "points":
        return _points(f"{100 * value:.{_decimals(100 * value)}f}")
    return f"{value:.4g} per hour" if unit == "per_hour" else f"{value:.4g}"


def exact_value(value: float, unit: Unit) -> str:
    """Return a number for people with every digit that counts, to tell it from another one."""
    if unit in ("bytes", "count"):
        return f"{value:,} B" if unit == "bytes" else f"{value:,}"
    if unit == "fraction":
        return f"{100 * value:.10g} %"
    if unit == "points":
        return _points(f"{100 * value:.10g}")
    return f"{value:.10g}" if unit == "none" else f"{value:.10g} {unit.replace('_', ' ')}"


def format_change(value: float, unit: Unit, decimals: int = 2) -> str:
    """Return a signed difference for people; of fractions in percentage points, without unit.

    What is not 0 is not printed as 0: points have as many more decimals as they need.
    """
    if unit == "fraction":
        points = 100 * value + 0.0
        return f"{points:+.{_decimals(points, decimals)}f}"
    sign = "-" if value < 0 else "+"
    return sign + format_value(abs(value), unit)


def _points(number: str) -> str:
    return f"{number} point" if number == "1" else f"{number} points"


def _decimals(value: float, least: int = 2) -> int:
    """Return the least decimals, or as many more as the first digit of a small number needs."""
    size = abs(value)
    needs_more = 1e-9 <= size < 0.5 * 10**-least  # not so for NaN
    return -math.floor(math.log10(size)) if needs_more else least


def format_ratio(ratio: float | None) -> str:
    """Return a ratio for people, as a multiple: `0.26x`; `-` for null."""
    return "-" if ratio is None else f"{ratio:.2f}x" if ratio < 10 else f"{ratio:.0f}x"


def _scaled(value: float, symbol: str) -> str:
    power = 0
    size = abs(value)
    # 999.5 would print as 1000: the next prefix begins there, not at 1000.
    while size >= 999.5 and power < len(_PREFIXES) - 1:
        size /= 1000
        power += 1
    number = f"{value:.0f}" if power == 0 else _three_digits(value / 1000**power)
    return f"{number} {_PREFIXES[power]}{symbol}"


def _three_digits(value: float) -> str:
    size = abs(value)
    if 0 < size < 0.005:
        return f"{value:.1g}"
    decimals = 2 if size < 9.995 else 1 if size < 99.95 else 0
    return f"{value:.{decimals}f}"
