"""The memory map of a compacted file: live bytes by operator, and the tensors at the peak."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from shrink.contract.compaction import Holder, MemoryMap
from shrink.contract.report import Report
from shrink.report.page import capital
from shrink.report.svg import Axis, Dot, Label, Plot, Point, axis, whole_axis

_HEIGHT = 170
_MOST_STEPS = 180
_MOST_HOLDERS = 3
_LONGEST_NAME = 40


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


def memory_map_plots(report: Report) -> list[Plot]:
    """Return a plot per compacted stage: bytes of activations by operator, before and after.

    Both curves run over the operators of the given file.
    """
    captions = dict(memory_map_sentences(report))
    return [
        _plot(f"memory-map-{index}", name, captions[name], before, after)
        for index, (name, before, after) in enumerate(_maps(report))
    ]


def _maps(report: Report) -> Iterator[tuple[str, MemoryMap, MemoryMap | None]]:
    for stage in report.stages:
        compaction = stage.extra.compact
        before = compaction.memory_before if compaction else None
        if compaction and before and before.live_bytes:
            after = compaction.memory_after
            yield stage.name, before, after if after and after.live_bytes else None


def _plot(
    identifier: str, name: str, caption: str, before: MemoryMap, after: MemoryMap | None
) -> Plot:
    count = len(before.live_bytes)
    numbers = whole_axis(1, count, "operator of the given file")
    marks_of = tuple(number - 0.5 for number in numbers.marks)
    x = Axis(0, count, marks_of, numbers.title, lambda middle: f"{middle + 0.5:.0f}")
    live = [0, *before.live_bytes, *(after.live_bytes if after else ())]
    y = axis(live, "activations that are needed (bytes)", "bytes", log=False)
    curves = [("before", "val_loss", before), *([("after", "loss", after)] if after else [])]
    outlines: dict[str, list[Point]] = {}
    dots: list[Dot] = []
    labels: list[Label] = []
    for word, kind, one in curves:
        spans = _spans(one, count)
        outlines[f"curve {kind}"] = [
            (at, span.live) for span in spans for at in (span.start, span.end)
        ]
        peak = max(spans, key=lambda span: span.live)
        number = _given_number(one)  # as the axis counts
        label = f"{number or ''} {one.peak_operator.removesuffix('_2D')}".strip()
        at = (peak.start + peak.end) / 2
        dots.append(Dot(at, peak.live, f"dot {kind}", f"{word}: {_peak(one)}"))
        place = "label end" if x(at) > 60 else "label"
        labels.append(Label(at, peak.live, label, place, 0, -9))
    shown = capital(caption)
    drawn = Plot(name, shown, identifier, x, y, outlines, tuple(dots), height=_HEIGHT)
    return replace(drawn, labels=tuple(labels))


def _spans(one: MemoryMap, count: int) -> list[_Span]:
    """Return where operators begin and end, in operators of the given file, of so many.

    An operator stands at the furthest operator of the given file that ran so far, and shares its
    width with the others there. Neighbours are joined where a line has no room for all; each span
    has the most bytes of its operators.
    """
    furthest = itertools.accumulate((-1 if o is None else o for o in one.origins), max)
    places: list[float] = [min(max(place, 0), count - 1) for place in furthest]
    total = len(one.live_bytes)
    if len(places) != total or (places[0], places[-1]) != (0, count - 1):
        places = [n * count / total for n in range(total)]
    ends: list[float] = []
    for start, end in itertools.pairwise([*sorted({*places}), float(count)]):
        share = places.count(start)
        ends += [start + (n + 1) * (end - start) / share for n in range(share)]
    step = math.ceil(total / _MOST_STEPS)
    groups = [range(total)[n : n + step] for n in range(0, total, step)]
    return [
        _Span([0.0, *ends][g[0]], ends[g[-1]], max(one.live_bytes[n] for n in g)) for g in groups
    ]


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
