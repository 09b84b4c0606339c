"""Plots and bars of training, memory, sensitivity and quantization error."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from shrink.base.figures import LOSS, format_value
from shrink.contract.details import OperatorRow, Training
from shrink.contract.report import Report, Stage
from shrink.report import svg

_LOSSES = {"loss": "training", "val_loss": "validation"}
_MOST_PLOTS = 24
_MEMORY_COLUMNS = {"device_bytes": "device", "host_bytes": "process"}
"""The columns, each with what it is called; a plot each, as their scales are far apart."""


def loss_plots(report: Report) -> list[svg.Plot]:
    """Return a plot per stage that trained: its loss by epoch, and that on held-out examples."""
    plots = []
    for index, stage in enumerate(report.stages):
        history = (stage.training or Training()).history
        curves = {
            name: [(n, value) for n, value in enumerate(values, 1) if value is not None]
            for name in _LOSSES
            if (values := history.get(name))
        }
        curves = {name: points for name, points in curves.items() if points}
        if not curves:
            continue
        every = [point for points in curves.values() for point in points]
        epochs = max(epoch for epoch, _ in every)
        x = svg.whole_axis(1, epochs, "epoch")
        y = svg.axis([value for _, value in every], "loss")
        dots = [
            svg.dot(0, y(points[0][1]), f"dot {name}", f"{points[0][1]:.4g}")
            for name, points in curves.items()
            if epochs == 1
        ]
        ends = [f"{_LOSSES[name]} {points[-1][1]:.4g}" for name, points in curves.items()]
        caption = f"After epoch {epochs}: {', '.join(ends)}."
        plots.append(svg.chart(f"loss-{index}", stage.name, caption, x, y, curves, dots))
    return plots


def sensitivity_plots(report: Report) -> list[svg.Plot]:
    """Return a plot per pruned group: the loss on held-out examples by the channels removed.

    The groups of a stage share one axis; a stage shows its first 24.
    """
    plots = []
    x = svg.Axis(0.0, 1.0, (0.0, 0.5, 1.0), "channels removed (%)", svg.tick_text("fraction"))
    for index, stage in enumerate(report.stages):
        curves = [
            (str(one.layers), points)
            for one in stage.told.sensitivity
            if (points := _pairs(one.ratios, one.losses))
        ][:_MOST_PLOTS]
        if not curves:
            continue
        metric = stage.told.sensitivity[0].metric
        what = metric if metric == LOSS else f"worsening of {metric}"
        y = svg.axis([loss for _, points in curves for _, loss in points], what)
        for number, (layers, points) in enumerate(curves):
            dots = [
                svg.dot(x(ratio), y(loss), "dot loss", f"{ratio:.0%} removed: {loss:.4g}")
                for ratio, loss in points
            ]
            last, worst = points[-1]
            caption = (
                f"{points[0][1]:.4g} with all channels, {worst:.4g} without {last:.0%} of them."
            )
            name, title = f"sensitivity-{index}-{number}", f"{stage.name}: {layers}"
            plots.append(svg.chart(name, title, caption, x, y, {"loss": points}, dots, 120))
    return plots


def timeline_plots(report: Report) -> list[svg.Plot]:
    """Return plots of memory by update: of the device's allocator, and of the whole process."""
    plots = []
    for index, stage in enumerate(report.stages):
        columns = (stage.training or Training()).memory_timeline
        for name, called in _MEMORY_COLUMNS.items():
            points = _pairs(columns.get("update", ()), columns.get(name, ()))
            if len(points) < 2 or any(a[0] >= b[0] for a, b in itertools.pairwise(points)):
                continue
            highest = max(value for _, value in points)
            limit = _limit(stage) if name == "device_bytes" else None
            if limit is not None and limit > 2 * highest:
                limit = None  # so far above that the curve would be flat
            x = svg.whole_axis(int(points[0][0]), int(points[-1][0]), "update")
            values = [0.0, *(value for _, value in points), *([limit] if limit else [])]
            y = svg.axis(values, "memory (bytes)", "bytes", log=False)
            marks = [svg.rule((0, y(limit)), (100, y(limit)), "limit")] if limit else []
            caption = f"At most {format_value(highest, 'bytes')}, over {int(points[-1][0]):,} "
            caption += "updates."
            if limit:
                caption += f" The red line is the limit, {format_value(limit, 'bytes')}."
            title, place = f"{stage.name}, {called}", f"timeline-{index}-{called}"
            plots.append(svg.chart(place, title, caption, x, y, {"loss": points}, marks))
    return plots


def _pairs(xs: Sequence[float | None], ys: Sequence[float | None]) -> list[tuple[float, float]]:
    pairs = zip(xs, ys, strict=False)
    return [(float(x), float(y)) for x, y in pairs if x is not None and y is not None]


@dataclass(frozen=True)
class Bar:
    """A bar of a length in percent, and where its limit is, if that is near."""

    label: str
    value: str
    percent: float
    limit_percent: float | None = None
    kind: str = "measured"


@dataclass(frozen=True)
class BarGroup:
    """Bars on one scale."""

    title: str
    caption: str
    bars: tuple[Bar, ...]


def memory_groups(report: Report) -> list[BarGroup]:
    """Return the bars of training memory (device, host) and of memory on the device."""
    stages = report.stages
    device = [
        (f"{stage.name}{suffix}", stage.figure(name), _limit(stage), kind)
        for stage in stages
        for suffix, name, kind in (
            ("", "training_peak_bytes", "measured"),
            (", predicted", "training_peak_predicted_bytes", "predicted"),
        )
    ]
    groups = [_memory_group("Training peak, on the device", device)]
    for title, name in (
        ("Training peak, whole process on the host", "training_host_peak_bytes"),
        ("Inference, above an empty process", "inference_peak_bytes"),
        ("Tensor arena on a microcontroller", "arena_bytes"),
    ):
        rows = [(stage.name, stage.figure(name), None, "measured") for stage in stages]
        groups.append(_memory_group(title, rows))
    return [group for group in groups if group.bars]


def _memory_group(
    title: str, rows: Sequence[tuple[str, float | None, float | None, str]]
) -> BarGroup:
    known = [(label, value, limit, kind) for label, value, limit, kind in rows if value is not None]
    longest = max((value for _, value, _, _ in known), default=0) or 1
    limits = sorted({limit for _, _, limit, _ in known if limit})
    full = max([longest, *(limit for limit in limits if limit <= 2 * longest)])
    bars = tuple(
        Bar(
            label=label,
            value=format_value(value, "bytes"),
            percent=100 * value / full,
            limit_percent=100 * limit / full if limit and limit <= full else None,
            kind="over" if limit and value > limit else kind,
        )
        for label, value, limit, kind in known
    )
    texts = [
        f"Limit {format_value(limit, 'bytes')}"
        + (", the tick" if limit <= full else f", {limit / longest:.3g} times the longest bar")
        for limit in limits
    ]
    return BarGroup(title, "; ".join(texts), bars)


def _limit(stage: Stage) -> float | None:
    return (stage.training or Training()).memory_limit_bytes or None


_MOST_BARS = 40
_LONGEST_NAME = 40


def error_groups(report: Report) -> list[BarGroup]:
    """Return per quantized artifact the signal to noise of its operators, at most the worst 40."""
    groups = []
    for stage in report.stages:
        operators = stage.told.audit.operators if stage.told.audit else ()
        rows = [
            (number, row, row.snr_db)
            for number, row in enumerate(operators, start=1)
            if row.snr_db is not None
        ]
        if not rows:
            continue
        worst = sorted(rows, key=lambda one: one[2])[:_MOST_BARS]
        highest = max(1.0, *(decibels for _, _, decibels in worst))
        number, row, least = worst[0]
        caption = (
            "Signal to noise by operator, in order of execution; the least is "
            f"{least:.1f} dB, at {number} {_operator(row)}. "
            "An error includes those of all operators before it."
        )
        if len(rows) > len(worst):
            caption += f" The worst {len(worst)} of {len(rows)}."
        bars = tuple(
            Bar(f"{number} {_operator(row)}", f"{value:.1f} dB", 100 * max(value, 0.0) / highest)
            for number, row, value in sorted(worst, key=lambda one: one[0])
        )
        groups.append(BarGroup(stage.name, caption, bars))
    return groups


def _operator(row: OperatorRow) -> str:
    name = row.layer or row.name
    return name if len(name) <= _LONGEST_NAME else f"…{name[-_LONGEST_NAME:]}"
