"""The model card and artifacts/metadata.json: what was measured, and what an application needs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.report.plain import metadata, render_card
from tests.report.toys import outcomes, report, with_result

INTERFACE = {
    "inputs": [
        {"name": "x", "shape": [1, 8, 8, 1], "dtype": "int8", "scale": 0.5, "zero_point": -128}
    ],
    "outputs": [
        {"name": "y", "shape": [1, 3], "dtype": "float32", "scale": None, "zero_point": None}
    ],
    "labels": ["cat", "dog", "a | b"],
    "normalize": {"scale": 0.25, "offset": -1.0},
}
RECIPE = "name: digits\ndata: {source: digits}\nstages:\n- prune: {sparsity: 0.5, exclude: []}\n"


def built(**details: Any) -> dict[str, Any]:
    train, prune, quantize = outcomes()
    found = report([train, prune, with_result(quantize, details=details)])
    return found | {"resolved_recipe": RECIPE, "command": "shrink run digits"}


def test_metadata_tells_what_an_application_needs() -> None:
    found = metadata(built(interface=INTERFACE), "ef" * 32)
    assert found["report_sha256"] == "ef" * 32
    artifact, *models = found["artifacts"]
    assert artifact["file"] == "02-quantize.tflite"
    assert [one["file"] for one in models] == ["train.keras", "prune.keras"]
    assert artifact["sha256"] == "ab" * 32
    assert {key: artifact[key] for key in INTERFACE} == INTERFACE
    assert artifact["metrics"]["accuracy"] == 0.96


def test_metadata_of_a_compacted_artifact_tells_what_firmware_needs() -> None:
    rows = [
        {"name": name, "parameters": 0, "activation_bytes": 0}
        for name in ("SLICE", "CONV_2D", "CONCATENATION", "CONV_2D")
    ]
    artifact, *_ = metadata(built(compact={"changed": True}, operators=rows), "")["artifacts"]
    needs = {
        "arena_bytes": 24_000,
        "arena_32_bytes": 23_000,
        "arena_32_reference_bytes": 22_800,
    }
    assert {key: artifact[key] for key in needs} == needs
    assert artifact["operators"] == ["CONCATENATION", "CONV_2D", "SLICE"]
    assert "operators" not in metadata(built(operators=rows), "")["artifacts"][0]


@pytest.mark.parametrize("code", ["split-overlap", "test-examples-may-have-been-trained-on"])
def test_card_does_not_say_that_nothing_trained_on_the_test_split_where_a_warning_does(
    code: str,
) -> None:
    warning = {"code": code, "message": "of 90 test examples 5", "hint": "more", "stage": None}
    clause = "which no stage trained, tuned or calibrated on"
    assert clause in render_card(built(), "ef" * 32)
    card = render_card({**built(), "warnings": [warning]}, "ef" * 32)
    assert "100 examples of the test split." in card
    assert clause not in card


def test_card_has_measured_figures_and_their_origin() -> None:
    card = render_card(built(interface=INTERFACE), "ef" * 32)
    for words in (
        *("| accuracy | 96.00 % |", "| 98.00 % |", "| TFLite file size | 14.0 KB |"),
        "input x: int8, 1x8x8x1, real = 0.5 \\* (stored - -128)",
        "output y: float32, 1x3\n",
        "normalisation before the input: x \\* 0.25 + -1.0",
        *("labels, by index of the output: cat, dog, a \\| b", "100 examples of the test split"),
        *("- prune: sparsity 0.5\n", "- data: source digits", "ef" * 32, "shrink run digits"),
    ):
        assert words in card, words
