"""Replicas and micro-batches give the weights of one replica with one big batch."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.forks import call

EXACT = 1e-12
WHOLE = 64
Case = dict[str, Any]

# 61 examples in batches of 24: the last one has 13, which two replicas share 6 and 7.
ONE_OR_TWO = pytest.mark.parametrize("replicas", [pytest.param(1, marks=pytest.mark.slow), 2])
"""Two replicas do all that one does, and share it."""
CASES: dict[int, dict[str, Case]] = {
    1: {
        "adam 5 two outputs": {"optimizer": "adam", "micro_batch_size": 5, "outputs": 2},
        "adamw 5": {"optimizer": "adamw", "micro_batch_size": 5},
        "sgd 5 pooled": {"optimizer": "sgd", "micro_batch_size": 5, "pooled": True},
    },
    2: {
        "sgd 5 two outputs": {"optimizer": "sgd", "micro_batch_size": 5, "outputs": 2},
        "adam 5 weighted": {"optimizer": "adam", "micro_batch_size": 5, "weighted": True},
        "adamw whole": {"optimizer": "adamw", "micro_batch_size": WHOLE},
    },
    4: {
        # Keras leaves the fourth replica none of the last 13: 6, 6, 1 and 0.
        "keras shares": {"optimizer": "adam", "micro_batch_size": 5, "keras_shares": True},
        "105 examples, 4 replicas of 8": {
            "optimizer": "sgd",
            "micro_batch_size": 8,
            "batch_size": 64,
            "count": 105,
            "epochs": 1,
        },
    },
}


@cache
def results(replicas: int) -> dict[str, dict[str, float]]:
    cases = CASES[replicas]
    values = call(
        "tests.engine._exactness", "compare", replicas=replicas, cases=list(cases.values())
    )
    return dict(zip(cases, values, strict=True))


@cache
def scenarios(replicas: int) -> dict[str, Any]:
    """What `tests.engine._scenarios` measured on that many replicas."""
    return dict(call("tests.engine._scenarios", "run_all", replicas=replicas))


@pytest.mark.parametrize(
    ("replicas", "case"), [(replicas, name) for replicas, cases in CASES.items() for name in cases]
)
def test_train_step_equals_one_big_batch(replicas: int, case: str) -> None:
    result = results(replicas)[case]
    assert result["difference"] <= EXACT
    assert result["moved"] > 1e-3


def test_train_step_metrics_are_equal_however_the_batch_is_split() -> None:
    one, two = results(1)["adamw 5"], results(2)["adamw whole"]
    assert two["loss"] == pytest.approx(one["loss"], rel=1e-6)
    assert two["accuracy"] == pytest.approx(one["accuracy"], abs=1e-6)


def test_plain_fit_differs_from_one_big_batch_when_shares_are_uneven() -> None:
    assert scenarios(2)["plain_fit"]["difference"] > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [1, 2, 4])
@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_train_step_equals_one_big_batch_over_the_whole_matrix(
    replicas: int, optimizer: str
) -> None:
    sizes = (1, 2, 3, 5, 8, WHOLE)
    cases: list[Case] = [{"optimizer": optimizer, "micro_batch_size": size} for size in sizes]
    # The last batch of 50 has two examples: replicas may have none.
    cases.append({"optimizer": optimizer, "micro_batch_size": WHOLE, "count": 50})
    values = call("tests.engine._exactness", "compare", replicas=replicas, cases=cases)
    assert max(value["difference"] for value in values) <= EXACT
    assert min(value["moved"] for value in values) > 1e-3


@ONE_OR_TWO
def test_after_update_masks_exactly_once_per_update(replicas: int) -> None:
    result = scenarios(replicas)["masked"]
    assert result["difference"] <= EXACT
    assert result["masked_out"] == 0.0
    assert result["moved"] > 1e-3
    assert result["hook_calls"] == result["updates"] == 6


@ONE_OR_TWO
def test_train_step_recovers_when_memory_runs_out(replicas: int) -> None:
    result = scenarios(replicas)["out_of_memory"]
    assert result["micro_batch_sizes"] == [12 // replicas, 6 // replicas]
    assert result["steps"] == [3, 3]
    assert result["iterations"] == result["updates"] == 6
    assert result["difference"] <= EXACT
    assert result["statistics"] <= EXACT
    assert result["loss"] <= EXACT
    assert result["moved"] > 1e-3


@ONE_OR_TWO
def test_train_builds_its_graph_once_and_keeps_images_as_bytes(replicas: int) -> None:
    result = scenarios(replicas)["larger"]
    assert result["losses_traced"] == result["replicas"]
    assert result["peak"] > 2**20
    assert result["uint8"]
