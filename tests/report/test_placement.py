"""Where operators run: sentences, tables, the gate and all renderings."""

from __future__ import annotations

from typing import Any

import jsonschema

from docs.report_schema import report_schema
from shrink.contract.codec import from_plain
from shrink.contract.compaction import Placement
from shrink.report.placement import sentences_of
from tests.report.page import Page
from tests.report.plain import render_card, render_html, render_markdown
from tests.report.test_html import HOSTILE, HOSTILE_SHOWN
from tests.report.toys import outcomes, report, with_result

LEFT = {"operator": 3, "kind": "SOFTMAX", "tensor": "probabilities", "reason": "it is INT8"}
TOLD: dict[str, Any] = {
    "target": "ethos-u55-64",
    "by": "Vela 5.2.0",
    "operators": 9,
    "on_cpu": [LEFT, {**LEFT, "operator": 7}],
    "compiled": {
        "compiler": "Vela 5.2.0",
        "system": "High_End",
        "memory_mode": "Shared",
        "clock_hz": 5e8,
        "sram_bytes": 51_840,
        "dram_bytes": 0,
        "flash_bytes": 79_248,
        "cycles": 200_000,
        "inference_ms": 0.4,
        "macs": 1_000,
    },
}


def placed(**changes: Any) -> dict[str, Any]:
    *first, quantize = outcomes()
    told = {**TOLD, **changes}
    latency = {"p50_ms": 0.25, "p90_ms": 0.5, "threads": 1, "cpu_operators": len(told["on_cpu"])}
    return report([*first, with_result(quantize, details={"placement": told}, latency=latency)])


def test_sentences_of_name_each_reason_once() -> None:
    found = sentences_of(from_plain(Placement, TOLD))
    assert found[0] == ("2 of 9 operators stay on the CPU: SOFTMAX (it is INT8), by Vela 5.2.0.")
    assert "51,840 bytes of SRAM, 79,248 bytes of off-chip flash" in found[1]
    assert "200,000 cycles or 0.40 ms for an inference on ethos-u55-64 at 500 MHz" in found[1]
    assert "DRAM" not in found[1]


def test_every_rendering_shows_what_stays_on_the_cpu() -> None:
    built = placed()
    jsonschema.validate(built, report_schema())
    assert built["stages"][-1]["latency"]["cpu_operators"] == 2
    assert all("cpu_operators" not in stage["latency"] for stage in built["stages"][:-1])
    for shown in (render_markdown(built), render_html(built), render_card(built, "0" * 64)):
        assert "2 of 9 operators stay on the CPU" in shown
    assert "probabilities" in render_html(built)
    assert "on CPU" in render_markdown(built)
    assert "operators on the CPU" in Page(render_html(built)).text
    assert "operators on the CPU" not in Page(render_html(report(outcomes()))).text


def test_no_rendering_lets_a_name_become_markup() -> None:
    built = placed(on_cpu=[{**LEFT, "tensor": HOSTILE}])
    assert HOSTILE not in render_html(built)
    assert HOSTILE_SHOWN in Page(render_html(built)).text
