"""Where the memory of a compacted file goes: live bytes by operator, and what holds the peak."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from shrink.contract.compaction import Holder, MemoryMap
from shrink.contract.report import Report
from shrink.report import svg

_HEIGHT = 170
_MOST_STEPS = 180
_MOST_HOLDERS = 3
_LONGEST_NAME = 40
"""Pixels that names stand above peaks, off the line that goes on beside them."""
_BEFORE, _AFTER = "val_loss", "loss"
"""Classes of the style sheet: dashed in the second colour, and solid in the first."""


class _Span(NamedTuple):
    """An operator's part of the width, in operators of the given file, and its live bytes."""

    start: float
    end: float
    live: int


def memory_map_sentences(report: Report) -> Iterator[tuple[str, str]]:
    """Yield the name of each compacted stage, and what holds its peak, before and after."""
    for name, before, after in _maps(report):
        if after is None:
            yield name, f"at most {_peak(before)}; the file is as it was given."
        else:
            yield name, f"at most {_peak(after)}; before, {_peak(before)}."


def memory_map_plots(report: Report) -> list[svg.Plot]:
    """Return a plot per compacted stage: bytes of activations by operator, before and after.

    Both curves run over the operators of the given file: row tiles of several of them share their
    part of the width.
    """
    captions = dict(memory_map_sentences(report))
    return [
        _plot(f"memory-map-{index}", name, captions[name], before, after)
        for index, (name, before, after) in enumerate(_maps(report))
    ]


def _maps(report: Report) -> Iterator[tuple[str, MemoryMap, MemoryMap | None]]:
    for stage in report.stages:
        compaction = stage.told.compact
        before = compaction.memory_before if compaction else None
        if compaction and before and before.live_bytes:
            after = compaction.memory_after
            yield stage.name, before, after if after and after.live_bytes else None


def _plot(
    identifier: str, name: str, caption: str, before: MemoryMap, after: MemoryMap | None
) -> svg.Plot:
    count = len(before.live_bytes)
    numbers = svg.whole_axis(1, count, "operator of the given file")
    marks_of = tuple(number - 0.5 for number in numbers.marks)
    x = svg.Axis(0, count, marks_of, numbers.title, lambda middle: f"{middle + 0.5:.0f}")
    live = [0, *before.live_bytes, *(after.live_bytes if after else ())]
    y = svg.axis(live, "activations that are needed (bytes)", "bytes", log=False)
    curves = [("before", _BEFORE, before, [(float(n), n + 1.0) for n in range(count)])]
    curves += [("after", _AFTER, after, _widths(after, count))] if after else []
    outlines: dict[str, list[svg.Point]] = {}
    marks: list[str] = []
    for word, kind, one, widths in curves:
        spans = [_Span(*w, live) for w, live in zip(widths, one.live_bytes, strict=True)]
        thinned = _thinned(spans)
        outlines[kind] = [(at, span.live) for span in thinned for at in (span.start, span.end)]
        peak = spans[_peak_number(one) - 1]
        number = _given_number(one)  # as the axis counts
        label = f"{number or ''} {one.peak_operator.removesuffix('_2D')}".strip()
        at, height = x((peak.start + peak.end) / 2), y(peak.live)
        marks.append(svg.dot(at, height, f"dot {kind}", f"{word}: {_peak(one)}"))
        marks.append(svg.text(at, height, label, "label end" if at > 60 else "label", 0, -9))
    caption = f"{caption[0].upper()}{caption[1:]}"
    return svg.chart(identifier, name, caption, x, y, outlines, marks, _HEIGHT)


def _widths(after: MemoryMap, count: int) -> list[tuple[float, float]]:
    """Return where each operator begins and ends, in operators of the given file, of so many.

    Where all that ran so far comes before all that follows, in the given file too, both files
    have the same position; between such positions operators are equally wide.
    """
    total = len(after.live_bytes)
    even = [(n * count / total, (n + 1) * count / total) for n in range(total)]
    known = [origin for origin in after.origins if origin is not None]
    if len(after.origins) != total or any(not 0 <= origin < count for origin in known):
        return even
    upto, ahead = [-1], [count]
    for origin in after.origins:
        upto.append(upto[-1] if origin is None else max(upto[-1], origin))
    for origin in reversed(after.origins):
        ahead.append(ahead[-1] if origin is None else min(ahead[-1], origin))
    ahead.reverse()
    brought = [origin is None for origin in after.origins]
    # Operators that tiles add belong to the tiles, behind the operator before them.
    cuts = [n for n in range(1, total) if 0 <= upto[n] < ahead[n] and not brought[n]]
    shared = [(0, 0), *((n, ahead[n]) for n in cuts), (total, count)]
    widths: list[tuple[float, float]] = []
    for (first, start), (last, end) in itertools.pairwise(shared):
        width = (end - start) / (last - first)
        widths += [(start + n * width, start + (n + 1) * width) for n in range(last - first)]
    return widths


def _thinned(spans: Sequence[_Span]) -> list[_Span]:
    """Return no more spans than a line has room for; each has the most bytes of its operators."""
    step = math.ceil(len(spans) / _MOST_STEPS)
    groups = [spans[n : n + step] for n in range(0, len(spans), step)]
    return [_Span(g[0].start, g[-1].end, max(s.live for s in g)) for g in groups]


def _peak_number(one: MemoryMap) -> int:
    return one.live_bytes.index(max(one.live_bytes)) + 1


def _given_number(one: MemoryMap) -> int | None:
    """Return which of the given file's operators, from 1, holds the peak, or is tiled there."""
    origins = one.origins[_peak_number(one) - 1 : _peak_number(one)]
    return next((origin + 1 for origin in origins if origin is not None), None)


def _peak(one: MemoryMap) -> str:
    """Return how high the peak is, at which operator, and what holds it."""
    shown = [_held(holder) for holder in one.holders[:_MOST_HOLDERS]]
    if rest := len(one.holders) - len(shown):
        shown.append(f"{rest} more")
    held = " and ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))
    number = _given_number(one)
    band = number is not None and one.origins.count(number - 1) > 1
    kind = f"{one.peak_operator}, a band of {number}" if band else one.peak_operator
    return (
        f"{max(one.live_bytes):,} bytes of activations at operator {_peak_number(one)} of "
        f"{len(one.live_bytes)} ({kind}){held and f', held by {held}'}"
    )


def _held(holder: Holder) -> str:
    name = holder.name.partition(";")[0]  # what a converter fused has all of their names
    shown = name if len(name) <= _LONGEST_NAME else f"…{name[-_LONGEST_NAME:]}"
    whole = f" of {holder.size_bytes:,}" if holder.live_bytes < holder.size_bytes else ""
    return f"{shown} ({holder.live_bytes:,}{whole})"
