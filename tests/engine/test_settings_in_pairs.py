"""Every pair of training settings trains or is refused by name, and exactness is what it says."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from tests.engine._settings import FACTORS
from tests.forks import call
from tests.oracle.pairs import allowed_pairs

EXACT: dict[str, list[Any]] = {
    "precision": ["float32"],
    "batch_norm": ["frozen"],
    "micro_batch_size": [3],
}


def in_pairs(factors: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Return cases that hold every pair of values of two factors."""
    numbers = {name: [str(n) for n in range(len(values))] for name, values in factors.items()}
    rows = allowed_pairs(numbers)
    return [{name: factors[name][int(n)] for name, n in row.items()} for row in rows]


CASES = [*in_pairs(FACTORS), *in_pairs({**FACTORS, **EXACT})]
AT_ONCE = 8


def on_devices(replicas: int, memory_limit: int | None) -> list[dict[str, Any]]:
    """Return the cases that one process can run."""
    wanted = (replicas, memory_limit)
    return [case for case in CASES if (case["replicas"], case["memory_limit"]) == wanted]


PROCESSES = [
    some[first : first + AT_ONCE]
    for devices in itertools.product(FACTORS["replicas"], FACTORS["memory_limit"])
    for some in [on_devices(*devices)]
    for first in range(0, len(some), AT_ONCE)
]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(PROCESSES)))
def test_every_pair_of_settings_trains_or_is_refused(number: int, tmp_path: Path) -> None:
    check(PROCESSES[number], tmp_path)


def test_a_sample_of_settings_trains_or_is_refused(tmp_path: Path) -> None:
    (case, *_) = [
        case
        for case in on_devices(replicas=2, memory_limit=None)
        if is_exact(case) and not is_refused(case)
    ]
    check([case], tmp_path)


def is_exact(case: dict[str, Any]) -> bool:
    """Whether exactness is promised of a case that is split."""
    return all(case[name] in values for name, values in EXACT.items())


def is_refused(case: dict[str, Any]) -> bool:
    """Whether classes are weighed where targets are real."""
    loss, class_weights = case["loss_and_class_weights"]
    return loss == "mean_squared_error" and class_weights is not None


def check(cases: list[dict[str, Any]], cache: Path) -> None:
    outcomes = call(
        "tests.engine._settings",
        "run_cases",
        environment={"SHRINK_CACHE_DIR": str(cache)},
        cases=cases,
    )
    wrong = [
        (case, outcome)
        for case, outcome in zip(cases, outcomes, strict=True)
        if not _is_right(case, outcome)
    ]
    assert not wrong, wrong
    assert any("updates" in outcome for outcome in outcomes)


def _is_right(case: dict[str, Any], outcome: dict[str, Any]) -> bool:
    if "refused" in outcome:
        return is_refused(case)
    if is_exact(case) and not outcome.get("exact"):
        return False
    return bool(outcome.get("finite")) and outcome.get("difference", 0.0) <= 2e-6
