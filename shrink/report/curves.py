"""Losses by epoch, a plot per stage that trained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from shrink.base.numbers import is_number
from shrink.report import svg
from shrink.report.content import Report, Stage

_HEIGHT = 150
_CURVES = {"loss": "training", "val_loss": "validation"}


def loss_plots(report: Report) -> list[svg.Plot]:
    """Return a plot per stage that trained: its loss by epoch, and that on held-out examples."""
    found = []
    for index, stage in enumerate(report["stages"]):
        curves = dict(_curves(stage))
        if curves:
            found.append(_loss_plot(index, stage, curves))
    return found


def _curves(stage: Stage) -> Iterator[tuple[str, list[tuple[int, float]]]]:
    history = (stage["training"] or {}).get("history") or {}
    for name in ("loss", "val_loss"):
        values = history.get(name)
        if isinstance(values, list):
            pairs = [(epoch, v) for epoch, v in enumerate(values, start=1) if is_number(v)]
            if pairs:
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
    parts = [svg.axes(x, y, [(mark, str(mark)) for mark in marks], y_ticks, titles)]
    lines = [
        svg.line([(x(epoch), y(value)) for epoch, value in pairs], f"curve {name}")
        for name, pairs in curves.items()
    ]
    parts.append(svg.stretched(lines))
    if epochs == 1:
        parts += [
            svg.dot(0, y(pairs[0][1]), f"dot {name}", f"{pairs[0][1]:.4g}")
            for name, pairs in curves.items()
        ]
    ends = [f"{_CURVES[name]} {pairs[-1][1]:.4g}" for name, pairs in curves.items()]
    title = f"{stage['name']}: loss by epoch"
    caption = f"After epoch {epochs}: {', '.join(ends)}"
    return svg.Plot(
        title=str(stage["name"]),
        caption=f"{caption}.",
        markup=svg.picture(f"loss-{index}", _HEIGHT, title, caption, "".join(parts)),
    )
