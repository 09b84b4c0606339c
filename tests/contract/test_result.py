"""What the store keeps of a step is read as it was written."""

from __future__ import annotations

import json
from pathlib import Path

from shrink.base.measurement import Measured, Note, reasons
from shrink.contract.codec import from_plain, to_plain
from shrink.contract.details import Details, MetricDelta
from shrink.contract.result import StepResult


def test_details_of_a_stage_of_another_package_are_made_plain() -> None:
    told = {"file": Path("a/b"), "rows": ({"note": Note("x")}, MetricDelta(value=0.5))}
    sent = to_plain(StepResult(details=from_plain(Details, told)))["details"]
    delta = {"value": 0.5, "low": None, "high": None}
    expected = {"file": "a/b", "rows": [{"note": "x"}, delta]}
    assert json.loads(json.dumps(sent)).items() >= expected.items()


def test_a_reason_keeps_its_figures_on_the_way_to_the_parent() -> None:
    notes = reasons({"p50_ms": Measured[float](None, "died"), "p90_ms": Measured(None, "died")})
    sent = StepResult(notes=(Note("plain"), *notes))
    read = from_plain(StepResult, to_plain(sent))
    assert read == sent
    assert [note.figures for note in read.notes] == [(), ("p50_ms", "p90_ms")]
