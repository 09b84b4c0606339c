"""Layers before and after, operators of the artifacts, and where quantization errs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shrink.base.figures import format_value, is_number
from shrink.report import svg
from shrink.report.content import NULL, Report, Stage
from shrink.report.tradeoff import Mark, names

_HEIGHT = 150
_ROW_HEIGHT = 20
_MOST_NAMED = 40
"""Operators of which each gets a row with its name; of more, a curve names the worst."""
_WORST_NAMED = 3
_NAME_SHARE = 0.34
_ROW_NAME_LENGTH = 22
_MOST_ROWS = 2_000
"""Rows of all tables together: what a page of 1 MB has room for."""
_LONGEST_NAME = 60
_OPERATOR_HEADS = (
    *("operator", "layer", "types", "weights", "parameters", "MACs", "activations", "zeros"),
    "error",
)
Row = Mapping[str, Any]


@dataclass(frozen=True)
class LongTable:
    """A table of many rows, to be opened: finished texts, and the sentence above it."""

    title: str
    caption: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def layer_tables(report: Report, most_rows: int = _MOST_ROWS) -> list[LongTable]:
    """Return a table per Keras stage: each layer, as it is in the baseline and in the stage."""
    found = [(stage, _rows(stage, "layers")) for stage in report["stages"]]
    found = [(stage, rows) for stage, rows in found if rows]
    before = next((rows for stage, rows in found if stage["name"] == report["baseline"]), [])
    others = [(stage, rows) for stage, rows in found if rows is not before] or found
    room = most_rows // max(1, len(others))
    return [_layer_table(stage, rows, before, report["baseline"], room) for stage, rows in others]


def operator_tables(report: Report, most_rows: int = _MOST_ROWS) -> list[LongTable]:
    """Return a table per artifact: its operators, their types, and their error."""
    found = [(stage, _operators(stage)) for stage in report["stages"]]
    found = [(stage, rows) for stage, rows in found if rows]
    room = most_rows // max(1, len(found))
    return [_operator_table(stage, rows, room) for stage, rows in found]


def error_plots(report: Report) -> list[svg.Plot]:
    """Return a plot per quantized artifact: signal to noise of each operator's output."""
    found = []
    for index, stage in enumerate(report["stages"]):
        points = [
            (number, row)
            for number, row in enumerate(_operators(stage), start=1)
            if is_number(row.get("snr_db"))
        ]
        if points:
            found.append(_error_plot(index, stage, points))
    return found


def _layer_table(
    stage: Stage, rows: Sequence[Row], before: Sequence[Row], baseline: str, room: int
) -> LongTable:
    earlier = {str(row.get("name")): row for row in before}
    kept = {str(row.get("name")) for row in rows}
    gone = [row for name, row in earlier.items() if name not in kept]
    is_compared = bool(before) and rows is not before
    texts = [_layer_cells(row, earlier.get(str(row.get("name"))), is_compared) for row in rows]
    texts += [(_name(row), "removed", *[NULL] * 3) for row in gone]
    title = f"{stage['name']}: {len(rows)} layers"
    return LongTable(
        title=f"{title}, against {baseline}" if is_compared else title,
        caption=_cut_caption("One example; an arrow leads from the baseline.", len(texts), room)
        if is_compared
        else _cut_caption("One example.", len(texts), room),
        heads=("layer", "parameters", "MACs", "activations", "zeros"),
        rows=tuple(texts[:room]),
    )


def _layer_cells(row: Row, before: Row | None, is_compared: bool) -> tuple[str, ...]:
    if is_compared and before is None:
        before = {}
    return (_name(row), *(_change(row, before, key, text) for key, text in _LAYER_COLUMNS))


def _change(row: Row, before: Row | None, key: str, text: Callable[[Any], str]) -> str:
    now = text(row.get(key))
    was = now if before is None else text(before.get(key)) if before else "new"
    return now if was == now else f"{was} → {now}"


def _operator_table(stage: Stage, rows: Sequence[Row], room: int) -> LongTable:
    texts = []
    for number, row in enumerate(rows[:room], start=1):
        types = f"{_listed(row.get('inputs'))} → {_listed(row.get('outputs'))}"
        cells = (f"{number} {row.get('name', '?')}", _short(row.get("layer") or NULL), types)
        weights = str(row.get("weights") or NULL)
        numbers = (text(row.get(key)) for key, text in _OPERATOR_COLUMNS)
        texts.append((*cells, weights, *numbers))
    on = ((stage.get("details") or {}).get("audit") or {}).get("compared_on", "training examples")
    told = f"Error: signal to noise of the output against the float model's, on {on}."
    return LongTable(
        title=f"{stage['name']}: {len(rows)} operators",
        caption=_cut_caption(told, len(rows), room),
        heads=_OPERATOR_HEADS,
        rows=tuple(texts),
    )


def _error_plot(index: int, stage: Stage, points: Sequence[tuple[int, Row]]) -> svg.Plot:
    worst, row = min(points, key=lambda point: float(point[1]["snr_db"]))
    caption = (
        f"Signal to noise by operator, in order of execution; the least is "
        f"{float(row['snr_db']):.1f} dB, at {worst} {_short(_operator_name(row))}. "
        "An error includes those of all operators before it."
    )
    title = f"{stage['name']}: quantization error by operator"
    height, parts = _error_rows(points) if len(points) <= _MOST_NAMED else _error_curve(points)
    markup = svg.picture(f"error-{index}", height, title, caption, parts)
    return svg.Plot(title=str(stage["name"]), caption=caption, markup=markup)


def _error_rows(points: Sequence[tuple[int, Row]]) -> tuple[int, str]:
    """Return height and parts of a plot with a row per operator: its name, a bar, its error."""
    values = [float(row["snr_db"]) for _, row in points]
    whole = svg.covering([0.0, *values])
    # The left part of the width is for the names, so the axis begins before its first tick.
    room = (whole.high - whole.low) * _NAME_SHARE / (1 - _NAME_SHARE)
    x, y = svg.Scale(whole.low - room, whole.high), svg.Scale(0, len(points))
    ticks = [(tick, f"{tick:.4g}") for tick in whole.ticks(3) if tick >= whole.low]
    parts = [svg.axes(x, y, ticks, [], ("signal to noise of the output (dB)", "operator"))]
    for line, ((number, row), value) in enumerate(zip(points, values, strict=True)):
        at = y(len(points) - line - 0.5)
        name = f"{number} {_operator_name(row)}"
        parts.append(svg.rule((x(0.0), at), (x(value), at), "bar"))
        parts.append(svg.dot(x(value), at, "dot", f"{name}: {value:.1f} dB"))
        parts.append(svg.text(0, at, _ends(name), "tick", -60, 4))
    return _ROW_HEIGHT * len(points), "".join(parts)


def _error_curve(points: Sequence[tuple[int, Row]]) -> tuple[int, str]:
    """Return height and parts of a curve over all operators, the worst of them named."""
    values = [float(row["snr_db"]) for _, row in points]
    x = svg.Scale(0.5, max(points[-1][0], 2) + 0.5)
    y = svg.covering([0.0, *values], about=3)
    marks = sorted({1, *(int(t) for t in x.ticks(5) if t == int(t) and 1 <= t <= points[-1][0])})
    ticks = [(tick, f"{tick:.4g} dB") for tick in y.ticks(3)]
    titles = ("operator, in order of execution", "signal to noise (dB)")
    parts = [svg.axes(x, y, [(mark, str(mark)) for mark in marks], ticks, titles)]
    places = [(x(number), y(value)) for (number, _), value in zip(points, values, strict=True)]
    parts.append(svg.stretched([svg.line(places, "curve loss")]))
    worst = sorted(zip(values, places, points, strict=True), key=lambda one: one[0])[:_WORST_NAMED]
    named = []
    for value, (at, height), (number, row) in worst:
        name = f"{number} {_operator_name(row)}"
        parts.append(svg.dot(at, height, "dot", f"{name}: {value:.1f} dB"))
        named.append(Mark(name, at, height))
    return _HEIGHT, "".join([*parts, *names(named, [], _HEIGHT)])


def _operator_name(row: Row) -> str:
    return str(row.get("layer") or row.get("name"))


def _ends(name: str) -> str:
    """Return a name as long as there is room for, its end kept: layers differ there."""
    if len(name) <= _ROW_NAME_LENGTH:
        return name
    return f"{name[: _ROW_NAME_LENGTH // 2]}…{name[1 - _ROW_NAME_LENGTH // 2 :]}"


def _rows(stage: Stage, key: str) -> list[Row]:
    rows = (stage.get("details") or {}).get(key)
    return [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []


def _operators(stage: Stage) -> list[Row]:
    audit = (stage.get("details") or {}).get("audit")
    if isinstance(audit, Mapping):
        return _rows({"details": audit}, "operators")
    return _rows(stage, "operators")


def _name(row: Row) -> str:
    return f"{_short(row.get('name', '?'))} ({row.get('type', '?')})"


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _LONGEST_NAME else f"{text[:_LONGEST_NAME]}…"


def _listed(value: Any) -> str:
    names = [str(item) for item in value] if isinstance(value, list) else []
    return ", ".join(dict.fromkeys(names)) or NULL


def _cut_caption(text: str, count: int, room: int) -> str:
    return (
        text if count <= room else f"{text} The first {room} of {count} rows; all in report.json."
    )


def _with(text: Callable[[float], str]) -> Callable[[Any], str]:
    return lambda value: text(value) if is_number(value) else NULL


_PARAMETERS = ("parameters", _with(lambda value: f"{value:,}"))
_MACS = ("macs", _with(lambda value: format_value(value, "count")))
_ACTIVATIONS = ("activation_bytes", _with(lambda value: format_value(value, "bytes")))
_ZEROS = ("sparsity", _with(lambda value: f"{100 * value:.0f} %"))
_ERROR = ("snr_db", _with(lambda value: f"{value:.1f} dB"))
_LAYER_COLUMNS = (_PARAMETERS, _MACS, _ACTIVATIONS, _ZEROS)
_OPERATOR_COLUMNS = (*_LAYER_COLUMNS, _ERROR)


def audit_sentences(report: Report) -> Iterator[tuple[str, str]]:
    """Yield stage name and a sentence for each audited artifact: its types, islands, custom ops."""
    for stage in report["stages"]:
        audit = (stage.get("details") or {}).get("audit")
        if isinstance(audit, Mapping):
            yield str(stage["name"]), _audit_sentence(audit, _operators(stage))


def _audit_sentence(audit: Mapping[str, Any], rows: Sequence[Row]) -> str:
    computing = [row for row in rows if row.get("name") not in ("QUANTIZE", "DEQUANTIZE")]
    borders = len(rows) - len(computing)
    integer = sum("int" in _listed(row.get("outputs")) for row in computing)
    islands, custom = _listed(audit.get("float_islands")), _listed(audit.get("custom_operators"))
    return (
        f"{len(computing)} operators, {integer} of them on integers, {borders} conversions between "
        f"float and integers. Float islands: {islands.replace(NULL, 'none')}. "
        f"Custom operators: {custom.replace(NULL, 'none')}."
    )
