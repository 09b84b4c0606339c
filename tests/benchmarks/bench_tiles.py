"""Bounds of arenas with bands of rows, and with tiles of rows and columns.

    python -m tests.benchmarks.bench_tiles [--macs 0.05 0.25] [--models NAME...] [--folder DIR]
        [--files FILE...]

Prints a line of JSON per model, one of them for a wide picture, and share of multiply-accumulates:
the estimated arena without bands, the lowest bound with even bands of rows, the lowest one where
bands may be cut into columns, too, and the stretches of the latter. Both are of one family of
choices, so that they can be compared: even cuts, everything computed again where tiles overlap
(`again`), or as if overlapping rows were kept for nothing, and columns alone computed again
(`kept`).

The bounds favour tiles. A slice of columns is no view of what it is cut from, nor are tiles views
of rows that are made of several: neither the bytes of these copies nor a plan's gaps are counted.
Of what tiles add, copies of operators, one SLICE a tile and entry, and CONCATENATIONs are.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from shrink.compact.concatenate import MOST_CONCATENATED
from shrink.compact.cost import WHEEL, graph_macs
from shrink.compact.cuts import even_cuts
from shrink.compact.flatten import without_flattening
from shrink.compact.graph import Graph, read_graph
from shrink.compact.order import in_best_order
from shrink.compact.static_shapes import with_static_shapes
from shrink.compact.stretch import Impossible, Stretch, Survey
from shrink.compact.sweep import swept
from tests.benchmarks.compact_models import MODELS, stored_file
from tests.benchmarks.harness import say_json
from tests.compact.toys import Net

_ROWS, _COLUMNS = (1, 2, 3, 4, 6, 8, 12), (1, 2, 3, 4)
_LONGEST, _MOST_LABELS = 24, 40
_SLICE = WHEEL.operators["SLICE"] + WHEEL.tensor
_JOIN = WHEEL.operators["CONCATENATION"] + WHEEL.tensor

Needs = dict[int, tuple[int, int]]
"""Rows, or columns, of each tensor of a stretch that one band needs."""


class Tiling(NamedTuple):
    """A stretch of operators in so many bands of rows and columns."""

    start: int
    end: int
    rows: int
    columns: int


class Bound(NamedTuple):
    """What tilings take at least; tail and MACs are those beyond the graph's own."""

    tilings: tuple[Tiling, ...]
    peak: int
    tail: int
    macs: int

    @property
    def arena(self) -> int:
        """Estimated, in bytes, less what the graph takes for good."""
        return self.peak + self.tail


def turned(graph: Graph) -> Graph:
    """Return the graph with rows for columns and columns for rows; values are left as they are."""
    tensors = [
        dataclasses.replace(t, shape=(t.shape[0], t.shape[2], t.shape[1], t.shape[3]))
        if len(t.shape) == 4
        else t
        for t in graph.tensors
    ]
    return dataclasses.replace(graph, tensors=tuple(tensors))


def needs(stretch: Stretch, bands: int) -> list[Needs] | None:
    """Return what each of so many even bands needs; None where windows of rows are never right."""
    edges = (0, *even_cuts(stretch.rows, bands), stretch.rows)
    found = []
    for first, last in itertools.pairwise(edges):
        needed: Needs = {}
        for tensor in stretch.exits:
            rows = stretch.height[tensor]
            low, high = -(-first * rows // stretch.rows), -(-last * rows // stretch.rows)
            needed[tensor] = (low, max(high, low + 1))
        for place in reversed(range(len(stretch.outputs))):
            low, high = needed.get(stretch.outputs[place], (0, 0))
            window = stretch.rules[place].window(low, high) if low < high else None
            if window is None:
                return None
            for tensor in stretch.by_rows[place]:
                before = needed.get(tensor, (window.start, window.end))
                needed[tensor] = (min(before[0], window.start), max(before[1], window.end))
        found.append(needed)
    return found


class Tiles:
    """Bounds of one stretch of operators.

    Args:
        down: the stretch.
        across: the same operators of the graph that is turned.
        kept: whether rows that two tiles need count once.
    """

    def __init__(self, down: Stretch, across: Stretch, kept: bool) -> None:
        self._down, self._across, self._kept = down, across, kept
        self._pixel = {t: down.row_bytes[t] // max(1, across.height[t]) for t in down.row_bytes}
        self._last = {tensor: place for place, read in enumerate(down.by_rows) for tensor in read}

    def bound(self, tiling: Tiling) -> Bound | None:
        """Return what a tiling takes at least; None where there is none."""
        if tiling.rows > self._down.rows or tiling.columns > self._across.rows:
            return None
        rows, columns = needs(self._down, tiling.rows), needs(self._across, tiling.columns)
        if rows is None or columns is None:
            return None
        peak = max(
            self._peak(rows[i:], columns[j:], columns)
            for i, j in itertools.product(range(len(rows)), range(len(columns)))
        )
        tiles = len(rows) * len(columns)
        joins = sum(
            (len(columns) > 1) * len(rows) + -(-len(rows) // MOST_CONCATENATED)
            for _ in self._down.exits
        )
        tail = (tiles - 1) * sum(self._down.tails)
        tail += tiles * len(self._down.entries) * _SLICE + joins * _JOIN
        return Bound((tiling,), peak + self._down.bypass_bytes, tail, self._macs(rows, columns))

    def _macs(self, rows: Sequence[Needs], columns: Sequence[Needs]) -> int:
        total = 0
        for output, macs in zip(self._down.outputs, self._down.row_macs, strict=True):
            height, width = self._down.height[output], self._across.height[output]
            high = height if self._kept else sum(n[output][1] - n[output][0] for n in rows)
            wide = sum(n[output][1] - n[output][0] for n in columns)
            total += macs * high * wide // max(1, width)
        return total - self._down.macs

    def _peak(self, rows: Sequence[Needs], columns: Sequence[Needs], band: Sequence[Needs]) -> int:
        """Return the most bytes that are live while the first of these tiles is computed."""
        down, now, here = self._down, rows[0], columns[0]
        held = 0
        for tensor in down.entries:
            first = min(n[tensor][0] for n in rows)
            first = 0 if tensor in down.outlasting else first
            held += (down.height[tensor] - first) * down.row_bytes[tensor]
        for tensor in down.exits:
            width = max(1, self._across.height[tensor])
            done = here[tensor][0] / width if len(band) > 1 else 0.0
            rest = now[tensor][1] - now[tensor][0]
            held += int((now[tensor][0] + rest * done) * down.row_bytes[tensor])
        change = [0] * (len(down.outputs) + 2)
        for place, tensor in enumerate(down.outputs):
            high, wide = now[tensor][1] - now[tensor][0], here[tensor][1] - here[tensor][0]
            size = high * wide * self._pixel[tensor]
            ends = len(down.outputs) if tensor in down.exits else self._last[tensor]
            change[place] += size
            change[ends + 1] -= size
        return held + max(itertools.accumulate(change))


def bounds(graph: Graph, share: float, kept: bool) -> tuple[int, Bound, Bound]:
    """Return the peak as it stands, and the lowest bounds with bands and with tiles."""
    down, across = Survey(graph), Survey(turned(graph))
    most = int(share * down.macs)
    plain, lowest = max(down.peaks), []
    count = len(down.rules)
    narrow = sorted(down.crossing(place) for place in range(count + 1))[count // 2]
    places = [p for p in range(count + 1) if down.crossing(p) <= max(2, narrow)]
    edges: defaultdict[int, list[Bound]] = defaultdict(list)
    for start, end in itertools.combinations(places, 2):
        before = max(down.peaks[start:end])
        if end - start > _LONGEST or before < 0.3 * plain:
            continue
        try:
            tiles = Tiles(Stretch(down, start, end), Stretch(across, start, end), kept)
        except Impossible:
            continue
        for rows, columns in itertools.product(_ROWS, _COLUMNS):
            found = tiles.bound(Tiling(start, end, rows, columns)) if rows * columns > 1 else None
            if found is not None and found.peak < before and found.macs <= most:
                edges[start].append(found)
    for widest in (1, max(_COLUMNS)):
        usable = {
            start: [e for e in found if e.tilings[0].columns <= widest]
            for start, found in edges.items()
        }
        lowest.append(_path(down, usable, most))
    return plain, lowest[0], min(lowest, key=lambda bound: bound.arena)  # bands are tiles, too


def _path(survey: Survey, edges: dict[int, list[Bound]], most: int) -> Bound:
    labels: list[list[Bound]] = [[] for _ in range(len(survey.rules) + 1)]
    labels[0] = [Bound((), 0, 0, 0)]
    for place, peak in enumerate(survey.peaks):
        for label in (here := _front(labels[place])):
            labels[place + 1].append(label._replace(peak=max(label.peak, peak)))
            for edge in edges.get(place, ()):
                if label.macs + edge.macs <= most:
                    found = Bound(
                        label.tilings + edge.tilings,
                        max(label.peak, edge.peak),
                        label.tail + edge.tail,
                        label.macs + edge.macs,
                    )
                    labels[edge.tilings[0].end].append(found)
        labels[place] = here
    return min(labels[-1], key=lambda label: label.arena)


def _front(labels: Sequence[Bound]) -> list[Bound]:
    kept: list[Bound] = []
    for label in sorted(labels, key=lambda b: (b.peak, b.tail, b.macs)):
        if not any(k.tail <= label.tail and k.macs <= label.macs for k in kept):
            kept.append(label)
    return sorted(kept, key=lambda b: b.arena)[:_MOST_LABELS]


def wide(height: int = 240, width: int = 320, share: float = 0.25) -> bytes:
    """Return the layers of a MobileNetV1 for a camera's picture, as person detectors have them."""
    net = Net((1, height, width, 3))
    x = net.conv(net.input, int(32 * share), stride=2)
    blocks = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)]
    for channels, stride in [*blocks, *[(512, 1)] * 5, (1024, 2), (1024, 1)]:
        x = net.conv(net.conv(x, 0, stride=stride, depthwise=True), int(channels * share), (1, 1))
    return net.file(x)


def compared(content: bytes, share: float) -> dict[str, object]:
    """Return the bounds of a file at a share of more multiply-accumulates."""
    graph = swept(without_flattening(with_static_shapes(read_graph(content))))
    ordered = in_best_order(graph)
    graph = ordered.graph if ordered.exact else graph
    assert graph_macs(graph)
    row: dict[str, object] = {"max_extra_macs": share}
    tail = sum(Survey(graph).tails)
    for name, kept in (("again", False), ("kept", True)):
        plain, bands, tiles = bounds(graph, share, kept)
        row["plain"] = plain + tail
        row[name] = {
            "bands": bands.arena + tail,
            "tiles": tiles.arena + tail,
            "gain": round(1 - (tiles.arena + tail) / (bands.arena + tail), 4),
            "tilings": [list(one) for one in tiles.tilings if one.columns > 1],
        }
    return row


def main() -> None:
    """Print a line for each model and share."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--macs", nargs="+", type=float, default=[0.05, 0.25])
    parser.add_argument("--models", nargs="*", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--files", nargs="*", type=Path, default=[])
    parser.add_argument("--folder", type=Path, default=Path("compact-models"))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    given = [(name, stored_file(options.folder, name)) for name in options.models]
    given += [(path.stem, path.read_bytes()) for path in options.files]
    given.append(("MobileNetV1 0.25, 240 x 320", wide()))
    for name, content in given:
        for share in options.macs:
            say_json({"model": name, **compared(content, share)})


if __name__ == "__main__":
    main()
