"""Gates against a saved report: what worse means, for which stage, and what a message says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shrink.base.errors import InputError, RecipeError
from shrink.contract.codec import to_plain
from shrink.contract.result import StageOutcome
from shrink.recipe.load import load_recipe
from shrink.recipe.plan import build_plan
from shrink.report.config import parse_gates
from tests.report.plain import check_gates, gate_lines, shape_problem, verdict
from tests.report.toys import outcome, report, with_result


def run(accuracy: int, tflite_bytes: int, name: str = "quantize") -> list[StageOutcome]:
    return [outcome("train", 98, 100_000, None), outcome(name, accuracy, tflite_bytes, "train")]


def check(
    gate: dict[str, Any],
    now: list[StageOutcome],
    then: list[StageOutcome],
    finals: tuple[str, ...] = ("quantize",),
    finals_then: tuple[str, ...] = ("quantize",),
) -> list[dict[str, Any]]:
    gates = parse_gates(gate)
    saved = report(then, finals=finals_then)
    return check_gates(
        report(now, finals=finals)["stages"],
        gates,
        baseline="train",
        finals=finals,
        scores={},
        saved=dict.fromkeys(gates, saved),
    )


@pytest.mark.parametrize(
    ("gate", "limit", "worse_by", "passed"),
    [
        # Now 96 % and 12,000 bytes, then 97 % and 10,000 bytes.
        ({"tflite_bytes": {}}, 0, 2000, False),
        ({"tflite_bytes": {"limit": "2KB"}}, 2000, 2000, True),
        ({"tflite_bytes": {"limit": 1999}}, 1999, 2000, False),
        ({"tflite_bytes": {"ratio": 0.2}}, 2000, 2000, True),
        ({"tflite_bytes": {"ratio": 0.19}}, 1900, 2000, False),
        ({"accuracy": {"limit": 0.01}}, 0.01, 0.01, True),
        ({"accuracy": {"limit": 0.005}}, 0.005, 0.01, False),
        ({"accuracy_drop": {"limit": 0.01}}, 0.01, 0.01, True),
        ({"accuracy_drop": {}}, 0, 0.01, False),
        ({"loss": {}}, 0, 0.0, True),
        ({"loss_rise": {}}, 0, 0.0, True),
        ({"training_peak_bytes": {}}, 0, 0, True),
        ({"duration_s": {"stage": "quantize"}}, 0, 0.0, True),
    ],
)
def test_check_gates_measures_how_much_worse(
    gate: dict[str, Any], limit: float, worse_by: float, passed: bool
) -> None:
    ((name, settings),) = gate.items()
    full = {name: {"against": "main/report.json", **settings}}
    (result,) = check(full, run(96, 12_000), run(97, 10_000))
    assert result["value"] == worse_by
    assert result["limit"] == pytest.approx(limit)
    assert result["passed"] is passed
    assert result["against"] == "report.json"


def test_check_gates_passes_what_is_better() -> None:
    (result,) = check({"tflite_bytes": {"against": "m"}}, run(96, 9_000), run(97, 10_000))
    assert (result["value"], result["passed"]) == (-1000, True)
    assert (result["current"], result["saved"]) == (9_000, 10_000)


def test_check_gates_matches_branches_by_name() -> None:
    def branches(*sizes: int) -> list[StageOutcome]:
        ends = [outcome(f"q{i}", 96, size, "train") for i, size in enumerate(sizes)]
        return [outcome("train", 98, 100_000, None), *ends]

    gate = {"tflite_bytes": {"against": "m"}}
    found = check(gate, branches(10, 20, 30), branches(10, 15), ("q0", "q1", "q2"), ("q0", "q1"))
    assert [(r["stage"], r["value"], r["passed"]) for r in found] == [
        ("q0", 0, True),
        ("q1", 5, False),
        ("q2", None, False),
    ]
    assert "has no stage q2" in found[2]["reason"]


def test_check_gates_compares_the_only_ends_whatever_their_names() -> None:
    gate = {"tflite_bytes": {"against": "m"}}
    (result,) = check(gate, run(96, 10, "int8"), run(96, 10, "float16"), ("int8",), ("float16",))
    assert (result["stage"], result["passed"]) == ("int8", True)


def test_check_gates_misses_when_the_saved_figure_is_unknown() -> None:
    gate = {"tflite_bytes": {"against": "m", "stage": "x"}}
    (result,) = check(gate, run(96, 10), run(96, 10))
    assert (result["value"], result["passed"]) == (None, False)
    then = report(run(96, 10))
    for stage in then["stages"]:
        stage["memory"]["arena_bytes"] = None
    gates = parse_gates({"arena_bytes": {"against": "m"}})
    settings: dict[str, Any] = {"baseline": "train", "finals": ("quantize",), "scores": {}}
    stages = report(run(96, 10))["stages"]
    (result,) = check_gates(stages, gates, saved={"arena_bytes": then}, **settings)
    assert result["passed"] is False
    assert result["reason"].startswith("nothing to compare with in the saved report")


@pytest.mark.parametrize("name", ["duration_s", "training_peak_bytes"])
def test_check_gates_says_that_the_saved_run_did_not_finish(name: str) -> None:
    train, quantize = run(96, 10)
    then = [train, replace(quantize, status="failed")]
    (result,) = check({name: {"against": "m"}}, run(96, 10), then)
    assert (result["value"], result["passed"]) == (None, False)
    assert result["reason"] == (
        "nothing to compare with in the saved report: its run did not finish"
    )


@pytest.mark.parametrize(
    ("gate", "message"),
    [
        ({"limit": 1, "ratio": 0.1}, "not both"),
        ({"ratio": 0}, "greater than 0"),
        ({"missing": "pass"}, "'limit' is missing"),
        ({"limit": 1, "missing": "pass"}, "missing goes with against"),
        ({"against": "m", "missing": "skip"}, "'pass' or 'fail'"),
        ({"against": "m", "limit": 1, "ratio": 0.1}, "not both"),
        ({"against": "m", "limit": -1}, "above 0"),
        ({"against": "m", "ratio": -1}, "greater than 0"),
        ({"against": 3}, "valid string"),
        ({"against": ""}, "at least 1 character"),
    ],
)
def test_parse_gates_refuses_what_does_not_go_together(gate: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_gates({"tflite_bytes": gate})


def test_parse_gates_refuses_a_confidence_with_a_saved_report() -> None:
    with pytest.raises(ValueError, match="share no scores"):
        parse_gates({"accuracy_drop": {"against": "m", "limit": 0.1, "confidence": 0.9}})


def recipe(folder: Path, gates: str) -> Path:
    (folder / "model.py").write_text("def build(): ...\n", encoding="utf-8")
    path = folder / "recipe.yaml"
    stages = "stages: [{train: {epochs: 1}}]\n"
    text = f"name: r\nmodel: model.py:build\ndata: {{source: digits}}\n{stages}gates: {gates}\n"
    path.write_text(text, encoding="utf-8")
    return path


def test_build_plan_reads_the_report_beside_the_recipe(tmp_path: Path) -> None:
    saved = report(run(96, 10))
    (tmp_path / "main.json").write_text(json.dumps(saved), encoding="utf-8")
    loaded = load_recipe(recipe(tmp_path, "{tflite_bytes: {against: main.json}}"))
    assert loaded.recipe.gates["tflite_bytes"].against == str(tmp_path / "main.json")
    assert to_plain(build_plan(loaded).saved["tflite_bytes"]) == saved


def test_build_plan_lets_a_first_run_pass_only_where_the_gate_says_so(tmp_path: Path) -> None:
    against = "{accuracy: {against: main.json, missing: %s}}"
    assert build_plan(load_recipe(recipe(tmp_path, against % "pass"))).saved == {}
    with pytest.raises(InputError, match="no report to compare with") as caught:
        build_plan(load_recipe(recipe(tmp_path, against % "fail")))
    assert "missing: pass" in str(caught.value.hint)
    (tmp_path / "main.json").write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match="is not JSON"):
        build_plan(load_recipe(recipe(tmp_path, against % "pass")))


def test_check_gates_decides_nothing_while_there_is_nothing_to_compare_with() -> None:
    gates = {"tflite_bytes": {"against": "ci/main.json", "missing": "pass"}}
    built = report(run(96, 10_000), gates)
    (result,) = built["gates"]
    assert (result["passed"], result["judged"], result["value"]) == (True, False, None)
    assert result["reason"] == "nothing to compare with: main.json is not there yet"
    assert built["passed"] is True
    assert verdict(built) == "FINISHED, 1 of 1 gate not checked"
    (line,) = gate_lines(built)
    assert line.mark == "SKIP"
    assert shape_problem(built) is None


def test_check_gates_misses_an_unknown_figure_even_on_a_first_run() -> None:
    stages = run(96, 10_000)
    stages[-1] = with_result(stages[-1], memory={})
    built = report(stages, {"arena_bytes": {"against": "m", "missing": "pass"}})
    assert built["gates"][0]["passed"] is False
    assert built["passed"] is False


def test_check_gates_excuses_a_branch_that_the_saved_report_lacks() -> None:
    gate = {"tflite_bytes": {"against": "m", "missing": "pass"}}
    now = [*run(96, 10), outcome("new", 96, 5, "train")]
    found = check(gate, now, run(96, 10), ("quantize", "new"), ("quantize", "train"))
    assert [(r["stage"], r["passed"], r.get("judged", True)) for r in found] == [
        ("quantize", True, True),
        ("new", True, False),
    ]


@pytest.mark.parametrize("content", [None, "{", "{}", '{"schema_version": 99}'])
def test_build_plan_refuses_a_report_that_is_missing_or_damaged(
    tmp_path: Path, content: str | None
) -> None:
    if content is not None:
        (tmp_path / "main.json").write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=r"main\.json"):
        build_plan(load_recipe(recipe(tmp_path, "{accuracy: {against: main.json}}")))


def test_load_recipe_says_where_a_gate_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="not both") as caught:
        load_recipe(recipe(tmp_path, "{loss: {limit: 1, ratio: 0.5}}"))
    assert caught.value.position is not None
    assert caught.value.position.line == 5
