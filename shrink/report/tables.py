"""Tables of a page: layers, operators, quantization errors, effect of a teacher."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from shrink.base.figures import format_value, is_number, metric_figure
from shrink.contract.details import Audit, Confusion, Control, LayerRow, OperatorRow
from shrink.contract.report import Report, Stage
from shrink.report.content import change_text
from shrink.report.page import NULL, Table, capital


def control_tables(report: Report) -> list[Table]:
    """Return a table for each stage whose student was trained without its teacher, too."""
    tables = []
    for stage in report.stages:
        control = stage.extra.control or Control()
        if names := list(control.taught):
            rows = (
                ("student alone", *_metrics(control.alone, names)),
                ("student taught", *_metrics(control.taught, names)),
                ("teacher", *_metrics(control.teacher, names)),
                ("difference", *(change_text(name, control.gain.get(name)) for name in names)),
            )
            tables.append(Table(("", *names), rows, stage.name))
    return tables


def sensitivity_tables(report: Report) -> list[Table]:
    """Return a table per pruned stage: a row per group of channels, by the share removed."""
    tables = []
    for stage in report.stages:
        curves = [c for c in stage.extra.sensitivity if any(v is not None for v in c.losses)]
        ratios = sorted({ratio for curve in curves for ratio in curve.ratios})
        rows = []
        for curve in curves:
            known = dict(zip(curve.ratios, curve.losses, strict=False))
            texts = (NULL if known.get(r) is None else f"{known[r]:.4g}" for r in ratios)
            rows.append((_short(str(curve.layers)), *texts))
        if rows:
            caption = (
                f"{capital(curves[0].metric)} on validation examples when one group of channels "
                "alone is pruned, before fine-tuning, by the share removed."
            )
            heads = ("layers", *(f"{ratio:.0%}" for ratio in ratios))
            tables.append(Table(heads, tuple(rows), f"{stage.name}: groups", caption, "dense"))
    return tables


def output_tables(report: Report) -> list[Table]:
    """Return a table of the metrics of each output by stage; none where there is one output."""
    stages = [stage for stage in report.stages if stage.extra.by_output]
    if not stages:
        return []
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for stage in stages:
        for one in stage.extra.by_output:
            texts = _metrics(one.metrics, list(one.metrics))
            for name, text in zip(one.metrics, texts, strict=True):
                rows.setdefault((one.output, name), {})[stage.name] = text
    heads = ("output", "metric", *(stage.name for stage in stages))
    cells = [(*row, *(own.get(s.name, NULL) for s in stages)) for row, own in rows.items()]
    return [Table(heads, tuple(cells), "Metrics of each output", left=2)]


def _metrics(values: Mapping[str, object], names: list[str]) -> list[str]:
    pairs = ((values.get(name), metric_figure(name).unit) for name in names)
    return [format_value(value, unit) if is_number(value) else NULL for value, unit in pairs]


_MOST_CLASSES = 20
_MOST_PAIRS = 20
_LONGEST_CLASS = 30


def confusion_tables(report: Report) -> list[Table]:
    """Return the confusion matrices of all stages; of many classes the pairs confused most."""
    return [_confusion(stage, one) for stage in report.stages for one in stage.extra.confusion]


def _confusion(stage: Stage, one: Confusion) -> Table:
    title = f"{stage.name}: {one.output}" if len(stage.extra.confusion) > 1 else stage.name
    labels = [_short(label, _LONGEST_CLASS) for label in one.labels]
    if 0 < len(labels) <= _MOST_CLASSES:
        rows = ((label, *map(_count, row)) for label, row in zip(labels, one.counts, strict=True))
        caption = "Test examples. Rows: true class; columns: predicted class."
        return Table(("true", *labels), tuple(rows), title, caption, "matrix")
    pairs = ((p.true, p.decided, _count(p.count)) for p in one.confused[:_MOST_PAIRS])
    rows = ((_short(a, _LONGEST_CLASS), _short(b, _LONGEST_CLASS), n) for a, b, n in pairs)
    return Table(
        ("true", "predicted", "examples"), tuple(rows), title, "The most confused pairs of classes."
    )


def _count(number: float) -> str:
    return NULL if number == 0 else f"{number:.10g}" if number == int(number) else f"{number:.1f}"


_LONGEST_NAME = 60
_OPERATOR_HEADS = (
    *("operator", "layer", "types", "weights", "parameters", "MACs", "activations", "zeros"),
    "error",
)
_NUMBERS: Mapping[str, Callable[[float], str]] = {
    "parameters": "{:,}".format,
    "macs": lambda number: format_value(number, "count"),
    "activation_bytes": lambda number: format_value(number, "bytes"),
    "sparsity": lambda number: f"{100 * number:.0f} %",
}
"""Fields of layers and operators, and how their numbers are written."""


def layer_tables(report: Report) -> list[Table]:
    """Return a table per Keras stage: each layer, as it is in the baseline and in the stage."""
    by_stage = {stage.name: stage.extra.layers for stage in report.stages if stage.extra.layers}
    before = by_stage.pop(report.baseline, ())
    if not by_stage and before:
        return [_layer_table(report.baseline, before, (), report.baseline)]
    return [_layer_table(name, rows, before, report.baseline) for name, rows in by_stage.items()]


def _layer_table(
    name: str, rows: Sequence[LayerRow], before: Sequence[LayerRow], baseline: str
) -> Table:
    heads = ("layer", "parameters", "MACs", "activations", "zeros")
    title, texts = f"{name}: {len(rows)} layers", [(_name(row), *_numbers(row)) for row in rows]
    if not before:
        return Table(heads, tuple(texts), title, "One example.", "dense")
    earlier = {_name(row): _numbers(row) for row in before}
    texts = [(row[0], *_changes(earlier.pop(row[0], None), row[1:])) for row in texts]
    texts += [(gone, "removed", *[NULL] * 3) for gone in earlier]
    caption = "For one example; arrows start at the baseline's figure."
    return Table(heads, tuple(texts), f"{title}, against {baseline}", caption, "dense")


def _numbers(row: LayerRow | OperatorRow) -> list[str]:
    values = ((getattr(row, field), text) for field, text in _NUMBERS.items())
    return [NULL if value is None else text(value) for value, text in values]


def _changes(before: Sequence[str] | None, now: Sequence[str]) -> list[str]:
    pairs = zip(before or ["new"] * len(now), now, strict=True)
    return [text if was == text else f"{was} → {text}" for was, text in pairs]


def operator_tables(report: Report) -> list[Table]:
    """Return a table per artifact: its operators, their types, and their error."""
    tables = []
    for stage in report.stages:
        audit, texts = stage.extra.audit, []
        for number, row in enumerate(audit.operators if audit else stage.extra.operators, start=1):
            types = f"{_listed(row.inputs)} → {_listed(row.outputs)}"
            cells = (f"{number} {row.name}", _short(row.layer or NULL), types, row.weights or NULL)
            error = NULL if row.snr_db is None else f"{row.snr_db:.1f} dB"
            texts.append((*cells, *_numbers(row), error))
        if texts:
            on = (audit or Audit()).compared_on
            caption = (
                f"Error: signal-to-noise ratio of the output against the float model's, on {on}."
            )
            title = f"{stage.name}: {len(texts)} operators"
            tables.append(Table(_OPERATOR_HEADS, tuple(texts), title, caption, "dense"))
    return tables


def _name(row: LayerRow) -> str:
    return f"{_short(row.name)} ({row.type})"


def _short(text: str, longest: int = _LONGEST_NAME) -> str:
    return text if len(text) <= longest else f"{text[:longest]}…"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(names)) or NULL


def audit_sentences(report: Report) -> Iterator[tuple[str, str]]:
    """Yield stage name and a sentence for each audited artifact: its types, islands, custom ops."""
    for stage in report.stages:
        if stage.extra.audit is not None:
            yield stage.name, _audit_sentence(stage.extra.audit)


def _audit_sentence(audit: Audit) -> str:
    computing = [row for row in audit.operators if row.name not in ("QUANTIZE", "DEQUANTIZE")]
    conversions = len(audit.operators) - len(computing)
    integer = sum("int" in _listed(row.outputs) for row in computing)
    islands, custom = _listed(audit.float_islands), _listed(audit.custom_operators)
    errors = {n: row for n, row in enumerate(audit.operators, 1) if row.snr_db is not None}
    worst = ""
    if errors:
        number, row = min(errors.items(), key=lambda one: one[1].snr_db or 0.0)
        where = f"{number} {_short(row.layer or row.name)}"
        worst = f" The lowest signal-to-noise ratio is {row.snr_db:.1f} dB, at {where}."
    return (
        f"{len(computing)} operators, {integer} in integer arithmetic, {conversions} conversions "
        f"between float and integers. Float islands: {islands.replace(NULL, 'none')}. "
        f"Custom operators: {custom.replace(NULL, 'none')}.{worst}"
    )
