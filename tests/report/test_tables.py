"""Layers before and after, operators, plots of errors, and the table of a distillation."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from shrink.contract.codec import to_plain
from shrink.contract.report_file import report_of
from shrink.report.page import Printer, Table
from shrink.report.tables import output_tables
from tests.report.page import Page
from tests.report.plain import (
    audit_sentences,
    control_tables,
    layer_tables,
    operator_tables,
    render_html,
    render_markdown,
    render_report,
)
from tests.report.toys import outcomes, report, with_result

CONTROL = {
    "alone": {"accuracy": 0.5819, "loss": 1.25},
    "taught": {"accuracy": 0.6348, "loss": 1.0},
    "teacher": {"accuracy": 0.8319},
    "gain": {
        "accuracy": {"value": 0.0529, "low": 0.039, "high": 0.067},
        "loss": {"value": -0.25, "low": None, "high": None},
    },
}


def tables(control: Any) -> list[Any]:
    train, *rest = outcomes()
    return control_tables(report([with_result(train, details={"control": control}), *rest]))


def test_control_tables_show_alone_taught_teacher_and_difference() -> None:
    (found,) = tables(CONTROL)
    assert found.title == "train"
    assert found.heads == ("", "accuracy", "loss")
    assert found.rows == (
        ("student alone", "58.19 %", "1.25"),
        ("student taught", "63.48 %", "1"),
        ("teacher", "83.19 %", "-"),
        ("difference", "+5.29 [+3.9, +6.7]", "-0.25"),
    )


def test_metrics_of_each_output_stand_in_page_text_and_terminal() -> None:
    kind = {"output": "kind", "metrics": {"loss": 0.5, "accuracy": 0.75}}
    tags = {"output": "tags", "metrics": {"binary_accuracy": None}}
    first, *rest = outcomes()
    document = report([with_result(first, details={"by_output": [kind, tags]}), *rest])
    (found,) = output_tables(report_of(document))
    assert found.heads == ("output", "metric", "train")
    assert found.rows == (
        ("kind", "loss", "0.5"),
        ("kind", "accuracy", "75.00 %"),
        ("tags", "binary_accuracy", "-"),
    )
    console = Console(file=io.StringIO(), width=100)
    render_report(document, console)
    texts = [render_html(document), render_markdown(document), console.file.getvalue()]  # type: ignore[attr-defined]
    assert all("Metrics of each output" in text and "75.00 %" in text for text in texts)
    assert "Metrics of each output" not in render_html(report())


def layer(name: str, parameters: int, sparsity: float | None = 0.0) -> dict[str, Any]:
    known = {"macs": 10 * parameters, "activation_bytes": 4 * parameters, "sparsity": sparsity}
    return {"name": name, "type": "Conv2D", "parameters": parameters, **known}


def operator(name: str, snr: float | None, layer: str | None = None) -> dict[str, Any]:
    types = {"inputs": ["int8"], "weights": "int8", "outputs": ["int8"]}
    held = {"parameters": 5, "macs": 50, "activation_bytes": 5, "sparsity": None}
    return {"name": name, "layer": layer, **types, **held, "snr_db": snr, "cosine": 1.0}


def audited(operators: list[dict[str, Any]]) -> dict[str, Any]:
    return {"audit": {"operators": operators, "float_islands": ["ELU"], "custom_operators": []}}


def built(layers: int = 3, operators: int = 2) -> dict[str, Any]:
    """Train, then prune without the last layer and with half of the first, then quantize."""
    train, prune, quantize = outcomes()
    first = [layer(f"conv{i}", 1000 + i) for i in range(layers)]
    second = [layer("conv0", 500, 0.25), *first[1:-1]]
    table = [operator("CONV_2D", 40.0 - i, f"conv{i}") for i in range(operators)]
    timeline = {
        "update": [1, 2, 3],
        "time_s": [0.1, 0.2, 0.3],
        "device_bytes": [1e6, 30e6, 2e6],
        "host_bytes": [600e6, 650e6, 640e6],
    }
    training = to_plain(train.result.training) | {"memory_timeline": timeline}
    return report(
        [
            with_result(train, details={"layers": first}, training=training),
            with_result(prune, details={"layers": second}),
            with_result(quantize, details=audited([*table, operator("QUANTIZE", None)])),
        ]
    )


def test_layer_tables_lead_from_the_baseline_to_the_stage() -> None:
    (table,) = layer_tables(built())
    assert table.title == "prune: 2 layers, against train"
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["conv0 (Conv2D)"] == (
        *("1,000 → 500", "10.0 K → 5.00 K", "4.00 KB → 2.00 KB", "0 % → 25 %"),
    )
    assert rows["conv1 (Conv2D)"] == ("1,001", "10.0 K", "4.00 KB", "0 %")
    assert rows["conv2 (Conv2D)"] == ("removed", "-", "-", "-")


def test_operator_tables_tell_types_and_error() -> None:
    (table,) = operator_tables(built())
    assert table.rows[0] == (
        *("1 CONV_2D", "conv0", "int8 → int8", "int8", "5", "50", "5 B", "-", "40.0 dB"),
    )
    assert table.rows[2][-1] == "-"
    ((stage, sentence),) = audit_sentences(built())
    assert stage == "quantize"
    assert "2 operators, 2 in integer arithmetic, 1 conversions" in sentence
    assert "Float islands: ELU. Custom operators: none." in sentence
    assert sentence.endswith("The lowest signal-to-noise ratio is 39.0 dB, at 2 conv1.")


def test_page_holds_every_table_and_stays_valid() -> None:
    page = Page(render_html(built()))
    assert page.open == []
    assert "Operators and quantization error" in page.text
    assert "Memory over the course of each training" in page.text
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    scrolling = [a for _, a in page.elements if a.get("class") == "wide"]
    assert len(scrolling) == 4
    assert all(a["tabindex"] == "0" and a["aria-label"] for a in scrolling)


def test_a_table_whose_row_lacks_a_cell_is_not_printed_in_part() -> None:
    with pytest.raises(ValueError, match="shorter"):
        Printer(Console(file=io.StringIO())).table(Table(("a", "b"), (("1", "2"), ("3",))))
