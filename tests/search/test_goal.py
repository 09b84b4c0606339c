"""Limits from recipes and gates, and which trial is better."""

from __future__ import annotations

import random
from typing import Any

import pytest

from shrink.contract.job import Outline
from shrink.contract.report import Figures, GateResult
from shrink.contract.search import Trial
from shrink.recipe.search_config import SearchConfig
from shrink.report.config import parse_gates
from shrink.search.goal import (
    Goal,
    broken_gates,
    goal_of,
    is_timed,
    runs_in_micro,
)

BASELINE: Figures = {"accuracy": 0.98, "tflite_bytes": 200_000, "macs": 1000}
SMALLEST = Goal("accuracy", max_drop=0.01, smallest=True)


def goal(gates: dict[str, Any], **config: Any) -> Goal:
    made = SearchConfig.model_validate(config)
    return goal_of(made, parse_gates(gates), "quantize", "accuracy", BASELINE)


@pytest.mark.parametrize(
    ("gates", "limits", "max_drop"),
    [
        ({"tflite_bytes": "40KB"}, {"tflite_bytes": 40_000}, None),
        ({"tflite_bytes": {"ratio": 0.25}}, {"tflite_bytes": 50_000}, None),
        ({"arena_bytes": {"limit": "64KB", "stage": "quantize"}}, {"arena_bytes": 64_000}, None),
        ({"arena_bytes": {"limit": "64KB", "stage": "prune"}}, {}, None),
        ({"tflite_bytes": {"limit": "40KB", "level": "warn"}}, {}, None),
        ({"tflite_bytes": {"limit": 0, "against": "report.json"}}, {}, None),
        ({"training_peak_bytes": "2GB"}, {}, None),
        ({"p50_ms": 5.0}, {"p50_ms": 5.0}, None),
        ({"accuracy_drop": 0.02}, {}, 0.02),
        ({"accuracy": 0.95}, {}, 0.03),
        ({"accuracy_drop": {"limit": 0.02, "confidence": 0.95}}, {}, None),
    ],
)
def test_gates_that_a_trial_can_be_checked_by_are_limits(
    gates: dict[str, Any], limits: dict[str, float], max_drop: float | None
) -> None:
    found = goal(gates)
    assert found.limits == limits
    assert found.max_drop == (None if max_drop is None else pytest.approx(max_drop))
    assert found.ranking[0] == "accuracy"


def test_the_stricter_of_a_gate_and_a_limit_holds() -> None:
    given = {"constraints": {"tflite_bytes": "30KB", "max_drop": 0.05}}
    found = goal({"tflite_bytes": "40KB", "accuracy_drop": 0.02}, **given)
    assert (found.limits, found.max_drop) == ({"tflite_bytes": 30_000}, 0.02)
    assert found.ranking[0] == "tflite_bytes"


def test_an_arena_that_is_gated_asks_for_what_tflite_micro_runs() -> None:
    config = SearchConfig()
    assert runs_in_micro(config, parse_gates({"arena_bytes": "64KB"}))
    assert not runs_in_micro(config, parse_gates({"tflite_bytes": "64KB"}))


def test_a_size_that_is_none_breaks_its_limit_and_one_that_is_not_known_does_not() -> None:
    limited = Goal("accuracy", {"arena_bytes": 1000})
    assert limited.broken_by(Outline(figures={"arena_bytes": None})) == ("arena_bytes",)
    assert limited.broken_by(Outline(figures={})) == ()
    assert limited.broken_by(Outline(figures={"arena_bytes": 1100})) == ("arena_bytes",)
    assert limited.broken_by(Outline(figures={"arena_bytes": 1100}, exact=False)) == ()


@pytest.mark.parametrize(
    ("metric", "before", "after"), [("accuracy", 0.75, 0.5), ("loss", 0.5, 0.75)]
)
def test_a_drop_is_what_the_metric_lost_whichever_way_is_better(
    metric: str, before: float, after: float
) -> None:
    now, baseline = {metric: after}, {metric: before}
    assert Goal(metric).drop(now, baseline) == 0.25
    assert Goal(metric, max_drop=0.25).broken(now, baseline) == ()
    assert Goal(metric, max_drop=0.24).broken(now, baseline) == ("max_drop",)
    assert Goal(metric, max_drop=0.24).broken({}, baseline) == ("max_drop",)
    assert Goal(metric).broken(now, baseline) == ()


def test_gates_that_a_trial_does_not_measure_are_not_missed() -> None:
    def result(name: str, value: float | None, **more: Any) -> GateResult:
        return GateResult(name=name, limit=1.0, value=value, **{"passed": False, **more})

    results = [
        result("arena_bytes", None),
        result("p90_ms", None),
        result("accuracy", 0.5),
        result("tflite_bytes", 9.0, level="warn"),
        result("macs", 0.5, passed=True),
        result("loss", None, judged=False),
    ]
    assert broken_gates(results) == ["arena_bytes", "accuracy"]


def best_of(figures: Figures, **more: Any) -> Trial:
    given = {"number": 0, "settings": {}, "figures": figures, "feasible": True, "status": "done"}
    return Trial(**{**given, **more})


def test_the_best_keeps_the_drop_with_confidence_where_any_trial_does() -> None:
    small = best_of({"tflite_bytes": 500}, number=1, drop_bound=0.011)
    sure = best_of({"tflite_bytes": 900}, number=2, drop_bound=0.01)
    large = best_of({"tflite_bytes": 950}, number=3, drop_bound=-0.01)
    assert SMALLEST.best([small, sure, large]) == sure
    assert SMALLEST.best([small, best_of({"tflite_bytes": 400}, drop_bound=0.02)]) == small
    assert SMALLEST.best([best_of({}, feasible=False)]) is None


def test_the_bound_of_a_drop_covers_the_true_one_as_often_as_it_says() -> None:
    """A model that loses 3 of 100 examples, on samples of 400: at 95 %, within a percent."""
    chance, kept, count = random.Random(0), 0, 2000
    for _ in range(count):
        lost = sum(chance.random() < 0.03 for _ in range(400))
        bound = SMALLEST.drop_bound([1.0] * 400, [0.0] * lost + [1.0] * (400 - lost))
        assert bound is not None
        kept += bound >= 0.03
    assert 0.94 <= kept / count <= 0.99


@pytest.mark.parametrize(("gate", "timed"), [("p50_ms", True), ("tflite_bytes", False)])
def test_a_gate_on_the_latency_has_trials_timed(gate: str, timed: bool) -> None:
    assert is_timed(SearchConfig(), parse_gates({gate: 5})) == timed
