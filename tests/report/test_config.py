"""The gates section: legal names, units, messages, and its JSON Schema."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from shrink.base.figures import TARGETS
from shrink.report.config import gates_json_schema, parse_gates

SCHEMA = jsonschema.Draft202012Validator(gates_json_schema())


def test_gates_json_schema_is_a_valid_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(gates_json_schema())


def test_parse_gates_reads_its_own_dump() -> None:
    gates = parse_gates({"arena_bytes": "64KiB", "loss_rise": 0, "duration_s": 60})
    dumped = {name: gate.model_dump(mode="json") for name, gate in gates.items()}
    assert parse_gates(dumped) == gates
    assert parse_gates(gates) == gates


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"acuracy_drop": 0.1}, "did you mean accuracy_drop"),
        ({"accuracy_rise": 0.1}, "unknown gate 'accuracy_rise'"),
        ({"stage_host_peak_predicted_bytes": "1GB"}, "was removed: use stage_host_peak_bytes or"),
        ({"los_drop": 0.1}, "did you mean loss_drop"),
        ({"recal_cat_drop": 0.1}, "unknown gate"),
        ({3: 0.1}, "unknown gate 3"),
        ({"accuracy_drop": "2KB"}, "wrong unit"),
        ({"accuracy_drop": "2%"}, "wrong unit"),
        ({"macs": "10MB"}, "wrong unit"),
        ({"p50_ms": "5ms"}, "wrong unit"),
        ({"tflite_bytes": "40XB"}, "unknown unit 'XB'"),
        ({"tflite_bytes": 40.5}, "whole number of bytes"),
        ({"tflite_bytes": 0}, "above 0"),
        ({"accuracy": 97}, "97 % is written 0.97"),
        ({"accuracy": -0.1}, "must not be below 0"),
        ({"accuracy": True}, "must be a fraction"),
        ({"accuracy": None}, "must be a fraction"),
        ({"loss": float("nan")}, "finite"),
        ({"loss_rise": float("inf")}, "finite"),
        ({"accuracy_drop": {"confidence": 0.9}}, "'limit' is missing"),
        ({"accuracy_drop": {"limit": 0.1, "confidence": 0.4}}, "greater than 0.5"),
        ({"accuracy_drop": {"limit": 0.1, "levle": "warn"}}, "levle"),
        ({"accuracy_drop": {"limit": 0.1, "level": "error"}}, "'fail' or 'warn'"),
        ({"tflite_bytes": {"limit": 1, "confidence": 0.9}}, "goes with a drop or a rise"),
        ({"macs": 0.5}, r"a count, not a share; for 0.5 of the baseline's write {ratio: 0.5}"),
        ({"parameters": {"limit": 0.5}}, r"write {ratio: 0.5}"),
        ({"tflite_bytes": 0.5}, r"bytes, not a share; .* write {ratio: 0.5}"),
        ({"macs": {"against": "m", "limit": 0.1}}, r"0.1 of the saved value write {ratio: 0.1}"),
        ({"accuracy_drop": {"ratio": 0.5}}, "takes a limit; a ratio goes with accuracy"),
        ({"duration_s": {"ratio": 0.5}}, "goes with against only"),
        ([], "mapping"),
    ],
)
def test_parse_gates_says_what_is_wrong(section: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_gates(section)


def test_targets_have_minima_where_higher_is_better() -> None:
    ratios = {
        f"{name}{average}"
        for name in ("precision", "recall", "f1")
        for average in ("", "_macro", "_micro", "_weighted")
    }
    shares = {"mean_iou", "dice", "pixel_accuracy", "sequence_accuracy", "balanced_accuracy"}
    accuracies = {"accuracy", "binary_accuracy", "top5_accuracy", "top_k"}
    areas = {"roc_auc", "partial_roc_auc", "average_precision"}
    areas |= {"anomaly_roc_auc", "anomaly_partial_roc_auc", "anomaly_average_precision"}
    boxes = {"map", "map_50", "map_75", "map_small", "map_medium", "map_large"}
    assert {name for name, target in TARGETS.items() if target.is_minimum} == {
        *(ratios | shares | accuracies | areas | boxes),
        "r2",
    }


def test_gates_of_metrics_with_arguments_are_in_their_own_unit_and_direction() -> None:
    gates = parse_gates({"recall_cat_drop": 0.1, "r2": -0.5, "false_accepts_per_hour_0.05_1": 2})
    assert gates["r2"].limit == -0.5
    with pytest.raises(ValueError, match="is a fraction"):
        parse_gates({"recall_cat_drop": 10})
    jsonschema.validate({name: gate.limit for name, gate in gates.items()}, gates_json_schema())


@pytest.mark.parametrize(
    "section",
    [
        {},
        {"tflite_bytes": "40KB", "accuracy_drop": 0.02, "duration_s": 60},
        {"accuracy_drop": {"limit": 0.02, "confidence": 0.95, "level": "warn"}},
        {"arena_bytes": {"limit": "64KiB", "stage": "quantize"}},
        {"tflite_bytes": {"ratio": 0.5}, "macs": {"ratio": 0.5, "level": "warn"}},
        {"macs": 0},
        {"parameters": {"against": "m", "ratio": 0.5, "missing": "pass"}},
    ],
)
def test_gates_json_schema_accepts_what_parse_gates_accepts(section: dict[str, Any]) -> None:
    parse_gates(section)
    assert SCHEMA.is_valid(section)


@pytest.mark.parametrize(
    "section",
    [
        {"acuracy_drop": 0.02},
        {"tflite_bytes": "40XB"},
        {"accuracy_drop": {"confidence": 0.9}},
        {"accuracy_drop": {"limit": 0.1, "levle": "warn"}},
        {"macs": {"ratio": 0}},
    ],
)
def test_gates_json_schema_refuses_what_parse_gates_refuses(section: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_gates(section)
    assert not SCHEMA.is_valid(section)
