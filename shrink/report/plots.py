"""Plots of training, memory and sensitivity."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from shrink.base.figures import LOSS, format_value
from shrink.contract.details import Columns, Training
from shrink.contract.report import Report, Stage
from shrink.report import svg

_CURVE_HEIGHT = 150
_LOSSES = {"loss": "training", "val_loss": "validation"}


def loss_plots(report: Report) -> list[svg.Plot]:
    """Return a plot per stage that trained: its loss by epoch, and that on held-out examples."""
    found = []
    for index, stage in enumerate(report.stages):
        curves = dict(_loss_curves(stage))
        if curves:
            found.append(_loss_plot(index, stage, curves))
    return found


def _loss_curves(stage: Stage) -> Iterator[tuple[str, list[tuple[int, float]]]]:
    history = (stage.training or Training()).history
    for name in ("loss", "val_loss"):
        values = enumerate(history.get(name, ()), start=1)
        if pairs := [(epoch, value) for epoch, value in values if value is not None]:
            yield name, pairs


def _loss_plot(
    index: int, stage: Stage, curves: Mapping[str, Sequence[tuple[int, float]]]
) -> svg.Plot:
    epochs = max(epoch for pairs in curves.values() for epoch, _ in pairs)
    x = svg.Scale(1, max(epochs, 2))
    y = svg.scale_of([value for pairs in curves.values() for _, value in pairs])
    marks = sorted({1, *(int(t) for t in x.ticks(4) if t >= 1 and t == int(t) and t <= epochs)})
    y_ticks = [(tick, f"{tick:.3g}") for tick in y.ticks(3)]
    titles = ("epoch", "loss, logarithmic" if y.log else "loss")
    dots = [
        svg.dot(0, y(pairs[0][1]), f"dot {name}", f"{pairs[0][1]:.4g}")
        for name, pairs in curves.items()
        if epochs == 1
    ]
    x_ticks = [(mark, str(mark)) for mark in marks]
    chart = svg.Chart(x, y, x_ticks, y_ticks, titles, curves, dots)
    ends = [f"{_LOSSES[name]} {pairs[-1][1]:.4g}" for name, pairs in curves.items()]
    title = f"{stage.name}: loss by epoch"
    caption = f"After epoch {epochs}: {', '.join(ends)}"
    return svg.Plot(
        title=stage.name,
        caption=f"{caption}.",
        markup=chart.image(f"loss-{index}", _CURVE_HEIGHT, title, caption),
    )


_SENSITIVITY_HEIGHT = 120
_MOST_PLOTS = 24
_MARKS = [(0.0, "0"), (0.5, "50 %"), (1.0, "100 %")]


def sensitivity_plots(report: Report) -> list[svg.Plot]:
    """Return a plot per pruned group: the loss on held-out examples by the channels removed.

    The groups of a stage share one axis; a stage shows its first 24.
    """
    found = []
    for index, stage in enumerate(report.stages):
        curves = list(_layer_curves(stage))[:_MOST_PLOTS]
        if curves:
            y = svg.scale_of([loss for _, points in curves for _, loss in points])
            metric = stage.told.sensitivity[0].metric
            what = metric if metric == LOSS else f"worsening of {metric}"
            found += [
                _layer_plot(f"sensitivity-{index}-{n}", f"{stage.name}: {layers}", points, y, what)
                for n, (layers, points) in enumerate(curves)
            ]
    return found


def _layer_curves(stage: Stage) -> Iterator[tuple[str, list[tuple[float, float]]]]:
    for one in stage.told.sensitivity:
        pairs = zip(one.ratios, one.losses, strict=False)
        if points := [(ratio, loss) for ratio, loss in pairs if loss is not None]:
            yield str(one.layers), points


def _layer_plot(
    identifier: str, title: str, points: Sequence[tuple[float, float]], y: svg.Scale, what: str
) -> svg.Plot:
    x = svg.Scale(0.0, 1.0)
    ticks = [(tick, f"{tick:.3g}") for tick in y.ticks(3)]
    titles = ("channels of the group removed (%)", f"{what}, logarithmic" if y.log else what)
    dots = [
        svg.dot(x(ratio), y(loss), "dot loss", f"{ratio:.0%} removed: {loss:.4g}")
        for ratio, loss in points
    ]
    last, worst = points[-1]
    caption = f"{points[0][1]:.4g} with all channels, {worst:.4g} without {last:.0%} of them."
    chart = svg.Chart(x, y, _MARKS, ticks, titles, {"loss": points}, dots)
    return svg.Plot(title, caption, chart.image(identifier, _SENSITIVITY_HEIGHT, title, caption))


_MEMORY_HEIGHT = 150
_MEMORY_COLUMNS = {"device_bytes": "device", "host_bytes": "process"}
"""The columns, each with what it is called; a plot each, as their scales are far apart."""


def timeline_plots(report: Report) -> list[svg.Plot]:
    """Return plots of memory by update: of the device's allocator, and of the whole process."""
    found = []
    for index, stage in enumerate(report.stages):
        for name in _MEMORY_COLUMNS:
            points = _points((stage.training or Training()).memory_timeline, name)
            if len(points) > 1:
                found.append(_memory_plot(index, stage, name, points))
    return found


def _memory_plot(index: int, stage: Stage, name: str, points: Sequence[svg.Point]) -> svg.Plot:
    values = [value for _, value in points]
    limit = _near_limit(stage, max(values)) if name == "device_bytes" else None
    x = svg.Scale(points[0][0], points[-1][0])
    y = svg.scale_of([0.0, *values, *([limit] if limit else [])], log=False)
    x_ticks = [(tick, f"{tick:.6g}") for tick in x.ticks(4) if tick == int(tick)]
    y_ticks = [(tick, format_value(tick, "bytes")) for tick in y.ticks(3) if tick >= 0]
    marks = [svg.rule((0, y(limit)), (100, y(limit)), "limit")] if limit else []
    titles = ("update", "memory (bytes)")
    chart = svg.Chart(x, y, x_ticks, y_ticks, titles, {"loss": points}, marks)
    title = f"{stage.name}, {_MEMORY_COLUMNS[name]}"
    highest = format_value(max(values), "bytes")
    caption = f"At most {highest}, over {int(points[-1][0]):,} updates."
    caption += f" The red line is the limit, {format_value(limit, 'bytes')}." if limit else ""
    identifier = f"timeline-{index}-{_MEMORY_COLUMNS[name]}"
    description = f"{title}: memory by update"
    markup = chart.image(identifier, _MEMORY_HEIGHT, description, caption)
    return svg.Plot(title, caption, markup)


def _near_limit(stage: Stage, highest: float) -> float | None:
    """Return the memory limit, unless it lies so far above that the line would be pressed flat."""
    limit = _limit(stage)
    return limit if limit is not None and limit <= 2 * highest else None


def _points(columns: Columns, name: str) -> list[svg.Point]:
    pairs = zip(columns.get("update", ()), columns.get(name, ()), strict=False)
    found = [(float(u), float(v)) for u, v in pairs if u is not None and v is not None]
    is_rising = all(a[0] < b[0] for a, b in itertools.pairwise(found))
    return found if is_rising else []


@dataclass(frozen=True)
class Bar:
    """One bar of memory: a length in percent, and where its limit stands, if that is near."""

    label: str
    value: str
    percent: float
    limit_percent: float | None
    kind: str


@dataclass(frozen=True)
class BarGroup:
    """The bars of one kind of memory, on one scale."""

    title: str
    caption: str
    bars: tuple[Bar, ...]


def memory_groups(report: Report) -> list[BarGroup]:
    """Return the bars of training memory (device, host) and of memory on the device."""
    stages = report.stages
    device = [
        _Row(f"{stage.name}{suffix}", stage.figure(name), _limit(stage), kind)
        for stage in stages
        for suffix, name, kind in (
            ("", "training_peak_bytes", "measured"),
            (", predicted", "training_peak_predicted_bytes", "predicted"),
        )
    ]
    groups = [_group("Training peak, on the device", device)]
    for title, name in (
        ("Training peak, whole process on the host", "training_host_peak_bytes"),
        ("Inference, above an empty process", "inference_peak_bytes"),
        ("Tensor arena on a microcontroller", "arena_bytes"),
    ):
        rows = [_Row(stage.name, stage.figure(name), None, "measured") for stage in stages]
        groups.append(_group(title, rows))
    return [group for group in groups if group is not None]


@dataclass(frozen=True)
class _Row:
    label: str
    value: float | None
    limit: float | None
    kind: str


def _group(title: str, rows: Sequence[_Row]) -> BarGroup | None:
    known = [(row, row.value) for row in rows if row.value is not None]
    if not known:
        return None
    longest = max(value for _, value in known) or 1
    limits = {row.limit for row, _ in known} - {None, 0}
    near = [limit for limit in limits if limit is not None and limit <= 2 * longest]
    full = max([longest, *near])
    bars = tuple(
        Bar(
            label=row.label,
            value=format_value(value, "bytes"),
            percent=100 * value / full,
            limit_percent=100 * row.limit / full if row.limit in near and row.limit else None,
            kind="over" if row.limit and value > row.limit else row.kind,
        )
        for row, value in known
    )
    return BarGroup(title, _limit_caption(sorted(x for x in limits if x), near, longest), bars)


def _limit_caption(limits: Sequence[float], near: Sequence[float], longest: float) -> str:
    texts = []
    for limit in limits:
        text = f"Limit {format_value(limit, 'bytes')}"
        far = (
            f", {limit / longest:.3g} times the longest bar" if limit not in near else ", the tick"
        )
        texts.append(text + far)
    return "; ".join(texts)


def _limit(stage: Stage) -> float | None:
    limit = (stage.training or Training()).memory_limit_bytes
    return float(limit) if limit is not None and limit > 0 else None
