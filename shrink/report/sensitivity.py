"""What pruning each group of channels alone costs, a small plot per group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shrink.base.numbers import is_number
from shrink.report import svg
from shrink.report.content import Report

_HEIGHT = 120
_MOST_PLOTS = 24
_MARKS = [(0.0, "0"), (0.5, "50 %"), (1.0, "100 %")]


def sensitivity_plots(report: Report) -> list[svg.Plot]:
    """Return a plot per pruned group: the loss on held-out examples by the channels removed.

    The groups of a stage share one axis; a stage shows its first 24.
    """
    found = []
    for index, stage in enumerate(report["stages"]):
        curves = list(_curves(stage.get("details") or {}))[:_MOST_PLOTS]
        if curves:
            y = svg.scale_of([loss for _, points in curves for _, loss in points])
            found += [
                _plot(f"sensitivity-{index}-{n}", f"{stage['name']}: {layers}", points, y)
                for n, (layers, points) in enumerate(curves)
            ]
    return found


def _curves(details: Mapping[str, Any]) -> Iterator[tuple[str, list[tuple[float, float]]]]:
    listed = details.get("sensitivity")
    for one in listed if isinstance(listed, list) else ():
        if isinstance(one, dict):
            pairs = zip(_numbers(one.get("ratios")), _numbers(one.get("losses")), strict=False)
            if points := list(pairs):
                yield str(one.get("layers")), points


def _numbers(values: Any) -> list[float]:
    return [v for v in values if is_number(v)] if isinstance(values, list) else []


def _plot(
    identifier: str, title: str, points: Sequence[tuple[float, float]], y: svg.Scale
) -> svg.Plot:
    x = svg.Scale(0.0, 1.0)
    ticks = [(tick, f"{tick:.3g}") for tick in y.ticks(3)]
    titles = ("channels of the group removed (%)", "loss, logarithmic" if y.log else "loss")
    parts = [svg.axes(x, y, _MARKS, ticks, titles)]
    parts.append(svg.stretched([svg.line([(x(r), y(v)) for r, v in points], "curve loss")]))
    parts += [
        svg.dot(x(ratio), y(loss), "dot loss", f"{ratio:.0%} removed: {loss:.4g}")
        for ratio, loss in points
    ]
    last, worst = points[-1]
    caption = f"{points[0][1]:.4g} with all channels, {worst:.4g} without {last:.0%} of them."
    return svg.Plot(
        title, caption, svg.picture(identifier, _HEIGHT, title, caption, "".join(parts))
    )
