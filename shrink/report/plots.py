"""Plots and bars of training and memory."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from shrink.base.figures import (
    PEAK,
    figure_of,
    format_value,
)
from shrink.contract.details import Training
from shrink.contract.report import Report, Stage
from shrink.report.page import Bar, BarGroup, capital
from shrink.report.svg import Dot, Plot, StraightLine, axis, whole_axis

_LOSSES = {"loss": "training", "val_loss": "validation"}
_MEMORY_COLUMNS = {"device_bytes": "device", "host_bytes": "process"}
"""The columns, each with what it is called; a plot each, as their scales are far apart."""


def loss_plots(report: Report) -> list[Plot]:
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
        x = whole_axis(1, epochs, "epoch")
        y = axis([value for _, value in every], "loss")
        dots = tuple(
            Dot(*points[0], f"dot {name}", f"{points[0][1]:.4g}")
            for name, points in curves.items()
            if epochs == 1
        )
        ends = [f"{_LOSSES[name]} {points[-1][1]:.4g}" for name, points in curves.items()]
        caption = f"After epoch {epochs}: {', '.join(ends)}."
        shown = {f"curve {name}": points for name, points in curves.items()}
        plots.append(Plot(stage.name, caption, f"loss-{index}", x, y, shown, dots))
    return plots


def timeline_plots(report: Report) -> list[Plot]:
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
            x = whole_axis(int(points[0][0]), int(points[-1][0]), "update")
            values = [0.0, *(value for _, value in points), *([limit] if limit else [])]
            y = axis(values, "memory (bytes)", "bytes", log=False)
            rules = [StraightLine((x.low, limit), (x.high, limit), "limit")] if limit else []
            caption = f"At most {format_value(highest, 'bytes')}, over {int(points[-1][0]):,} "
            caption += "updates."
            if limit:
                caption += f" The red line is the limit, {format_value(limit, 'bytes')}."
            title, place = f"{stage.name}, {called}", f"timeline-{index}-{called}"
            curves = {"curve loss": points}
            plots.append(Plot(title, caption, place, x, y, curves, rules=tuple(rules)))
    return plots


_LOOKS_FULL = 98


def _pairs(xs: Sequence[float | None], ys: Sequence[float | None]) -> list[tuple[float, float]]:
    pairs = zip(xs, ys, strict=False)
    return [(float(x), float(y)) for x, y in pairs if x is not None and y is not None]


def bar_groups(report: Report, names: Sequence[str]) -> list[BarGroup]:
    """Return bars by stage of those figures that have a limit, or visibly differ."""
    groups = [_bars(report, name) for name in names]
    return [g for g in groups if g.caption or any(b.percent < _LOOKS_FULL for b in g.bars)]


def _bars(report: Report, name: str) -> BarGroup:
    rows = []
    for stage in report.stages:
        limit = _limit(stage) if name == PEAK else None
        rows.append((stage.name, stage.figure(name), limit, "measured"))
        if name == PEAK:
            predicted = stage.figure("training_peak_predicted_bytes")
            rows.append((f"{stage.name}, predicted", predicted, limit, "predicted"))
    return _bar_group(capital(figure_of(name).title), rows)


def _bar_group(title: str, rows: Sequence[tuple[str, float | None, float | None, str]]) -> BarGroup:
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
