"""Memory over the course of each training, a plot per stage."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from shrink.base.figures import format_value
from shrink.base.numbers import is_number
from shrink.report import svg
from shrink.report.content import Report, Stage

_HEIGHT = 150
_CURVES = {"device_bytes": "device", "host_bytes": "process"}
"""The columns, each with what it is called; a plot each, as their scales are far apart."""


def timeline_plots(report: Report) -> list[svg.Plot]:
    """Return plots of memory by update: of the device's allocator, and of the whole process."""
    found = []
    for index, stage in enumerate(report["stages"]):
        columns = (stage["training"] or {}).get("memory_timeline")
        if isinstance(columns, Mapping):
            for name in _CURVES:
                points = _points(columns, name)
                if len(points) > 1:
                    found.append(_plot(index, stage, name, points))
    return found


def _plot(index: int, stage: Stage, name: str, points: Sequence[svg.Point]) -> svg.Plot:
    values = [value for _, value in points]
    limit = _near_limit(stage, max(values)) if name == "device_bytes" else None
    x = svg.Scale(points[0][0], points[-1][0])
    y = svg.scale_of([0.0, *values, *([limit] if limit else [])], log=False)
    x_ticks = [(tick, f"{tick:.6g}") for tick in x.ticks(4) if tick == int(tick)]
    y_ticks = [(tick, format_value(tick, "bytes")) for tick in y.ticks(3) if tick >= 0]
    parts = [svg.axes(x, y, x_ticks, y_ticks, ("update", "memory (bytes)"))]
    parts.append(svg.stretched([svg.line([(x(u), y(v)) for u, v in points], "curve loss")]))
    if limit:
        parts.append(svg.rule((0, y(limit)), (100, y(limit)), "limit"))
    title = f"{stage['name']}, {_CURVES[name]}"
    highest = format_value(max(values), "bytes")
    caption = f"At most {highest}, over {int(points[-1][0]):,} updates."
    caption += f" The red line is the limit, {format_value(limit, 'bytes')}." if limit else ""
    identifier = f"timeline-{index}-{_CURVES[name]}"
    told = f"{title}: memory by update"
    markup = svg.picture(identifier, _HEIGHT, told, caption, "".join(parts))
    return svg.Plot(title=title, caption=caption, markup=markup)


def _near_limit(stage: Stage, highest: float) -> float | None:
    """Return the memory limit, unless it lies so far above that the line would be pressed flat."""
    limit = (stage["training"] or {}).get("memory_limit_bytes")
    return float(limit) if is_number(limit) and 0 < limit <= 2 * highest else None


def _points(columns: Mapping[str, Any], name: str) -> list[svg.Point]:
    updates, values = columns.get("update"), columns.get(name)
    if not isinstance(updates, list) or not isinstance(values, list):
        return []
    pairs = zip(updates, values, strict=False)
    found = [(float(u), float(v)) for u, v in pairs if is_number(u) and is_number(v)]
    is_rising = all(a[0] < b[0] for a, b in itertools.pairwise(found))
    return found if is_rising else []
