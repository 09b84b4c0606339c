"""Tables of a page: layers, operators and where quantization errs, and what a teacher brought."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from shrink.base.figures import format_change, format_value, is_number, metric_figure
from shrink.contract.details import Audit, Control, LayerRow, MetricDelta, OperatorRow
from shrink.contract.report import Report, Stage
from shrink.report.content import NULL, Table


def control_tables(report: Report) -> list[Table]:
    """Return a table for each stage whose student was trained without its teacher, too."""
    tables = []
    for stage in report.stages:
        control = stage.told.control or Control()
        if names := list(control.taught):
            rows = (
                ("student alone", *_metrics(control.alone, names)),
                ("student taught", *_metrics(control.taught, names)),
                ("teacher", *_metrics(control.teacher, names)),
                ("teaching brought", *(_gain(name, control.gain.get(name)) for name in names)),
            )
            tables.append(Table(("", *names), rows, stage.name))
    return tables


def output_tables(report: Report) -> list[Table]:
    """Return a table of the metrics of each output by stage; none where there is one output."""
    stages = [stage for stage in report.stages if stage.told.by_output]
    if not stages:
        return []
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for stage in stages:
        for one in stage.told.by_output:
            texts = _metrics(one.metrics, list(one.metrics))
            for name, text in zip(one.metrics, texts, strict=True):
                rows.setdefault((one.output, name), {})[stage.name] = text
    heads = ("output", "metric", *(stage.name for stage in stages))
    cells = [(*row, *(own.get(s.name, NULL) for s in stages)) for row, own in rows.items()]
    return [Table(heads, tuple(cells), "Metrics of each output")]


def _metrics(values: Mapping[str, object], names: list[str]) -> list[str]:
    pairs = ((values.get(name), metric_figure(name).unit) for name in names)
    return [format_value(value, unit) if is_number(value) else NULL for value, unit in pairs]


def _gain(name: str, gain: MetricDelta | None) -> str:
    unit = metric_figure(name).unit
    numbers = (gain.value, gain.low, gain.high) if gain else (None, None, None)
    texts = [NULL if number is None else format_change(number, unit) for number in numbers]
    return f"{texts[0]} [{texts[1]}, {texts[2]}]"


_MOST_ROWS = 2_000
"""Rows of all tables together: what a page of 1 MB has room for."""
_LONGEST_NAME = 60
_OPERATOR_HEADS = (
    *("operator", "layer", "types", "weights", "parameters", "MACs", "activations", "zeros"),
    "error",
)


Row = LayerRow | OperatorRow
Cell = Callable[[Row], str]


def layer_tables(report: Report, most_rows: int = _MOST_ROWS) -> list[Table]:
    """Return a table per Keras stage: each layer, as it is in the baseline and in the stage."""
    by_stage = [(stage, stage.told.layers) for stage in report.stages if stage.told.layers]
    before = next((rows for stage, rows in by_stage if stage.name == report.baseline), ())
    others = [(stage, rows) for stage, rows in by_stage if rows is not before] or by_stage
    room = most_rows // max(1, len(others))
    return [_layer_table(stage, rows, before, report.baseline, room) for stage, rows in others]


def operator_tables(report: Report, most_rows: int = _MOST_ROWS) -> list[Table]:
    """Return a table per artifact: its operators, their types, and their error."""
    by_stage = [(stage, _operators(stage)) for stage in report.stages]
    by_stage = [(stage, rows) for stage, rows in by_stage if rows]
    room = most_rows // max(1, len(by_stage))
    return [_operator_table(stage, rows, room) for stage, rows in by_stage]


def _layer_table(
    stage: Stage, rows: Sequence[LayerRow], before: Sequence[LayerRow], baseline: str, room: int
) -> Table:
    earlier = {row.name: row for row in before}
    kept = {row.name for row in rows}
    gone = [row for name, row in earlier.items() if name not in kept]
    is_compared = bool(before) and rows is not before
    texts = [_layer_cells(row, earlier.get(row.name), is_compared) for row in rows]
    texts += [(_name(row), "removed", *[NULL] * 3) for row in gone]
    title = f"{stage.name}: {len(rows)} layers"
    return Table(
        title=f"{title}, against {baseline}" if is_compared else title,
        caption=_cut_caption("One example; an arrow leads from the baseline.", len(texts), room)
        if is_compared
        else _cut_caption("One example.", len(texts), room),
        heads=("layer", "parameters", "MACs", "activations", "zeros"),
        rows=tuple(texts[:room]),
    )


def _layer_cells(row: LayerRow, before: LayerRow | None, is_compared: bool) -> tuple[str, ...]:
    cells = [_name(row)]
    for text in _LAYER_COLUMNS:
        now = text(row)
        was = text(before) if before else "new" if is_compared else now
        cells.append(now if was == now else f"{was} → {now}")
    return tuple(cells)


def _operator_table(stage: Stage, rows: Sequence[OperatorRow], room: int) -> Table:
    texts = []
    for number, row in enumerate(rows[:room], start=1):
        types = f"{_listed(row.inputs)} → {_listed(row.outputs)}"
        cells = (f"{number} {row.name}", _short(row.layer or NULL), types, row.weights or NULL)
        error = NULL if row.snr_db is None else f"{row.snr_db:.1f} dB"
        texts.append((*cells, *(text(row) for text in _LAYER_COLUMNS), error))
    on = (stage.told.audit or Audit()).compared_on
    caption = f"Error: signal to noise of the output against the float model's, on {on}."
    return Table(
        title=f"{stage.name}: {len(rows)} operators",
        caption=_cut_caption(caption, len(rows), room),
        heads=_OPERATOR_HEADS,
        rows=tuple(texts),
    )


def _operators(stage: Stage) -> Sequence[OperatorRow]:
    return stage.told.audit.operators if stage.told.audit else stage.told.operators


def _name(row: LayerRow) -> str:
    return f"{_short(row.name)} ({row.type})"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_NAME else f"{text[:_LONGEST_NAME]}…"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(names)) or NULL


def _cut_caption(text: str, count: int, room: int) -> str:
    return (
        text if count <= room else f"{text} The first {room} of {count} rows; all in report.json."
    )


def _cell(value: Callable[[Row], float | None], text: Callable[[float], str]) -> Cell:
    """Return what writes one number of a row, a dash where there is none."""
    return lambda row: NULL if (number := value(row)) is None else text(number)


_LAYER_COLUMNS = (
    _cell(lambda row: row.parameters, lambda number: f"{number:,}"),
    _cell(lambda row: row.macs, lambda number: format_value(number, "count")),
    _cell(lambda row: row.activation_bytes, lambda number: format_value(number, "bytes")),
    _cell(lambda row: row.sparsity, lambda number: f"{100 * number:.0f} %"),
)


def audit_sentences(report: Report) -> Iterator[tuple[str, str]]:
    """Yield stage name and a sentence for each audited artifact: its types, islands, custom ops."""
    for stage in report.stages:
        if stage.told.audit is not None:
            yield stage.name, _audit_sentence(stage.told.audit)


def _audit_sentence(audit: Audit) -> str:
    computing = [row for row in audit.operators if row.name not in ("QUANTIZE", "DEQUANTIZE")]
    borders = len(audit.operators) - len(computing)
    integer = sum("int" in _listed(row.outputs) for row in computing)
    islands, custom = _listed(audit.float_islands), _listed(audit.custom_operators)
    return (
        f"{len(computing)} operators, {integer} of them on integers, {borders} conversions between "
        f"float and integers. Float islands: {islands.replace(NULL, 'none')}. "
        f"Custom operators: {custom.replace(NULL, 'none')}."
    )
