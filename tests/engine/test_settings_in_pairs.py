"""Every pair of training settings trains or is refused by name, and exactness is what it says."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine._run import run_in_fresh_process
from tests.engine._settings import FACTORS
from tests.pairwise import pairwise_cases

CASES = pairwise_cases(FACTORS)
SAMPLE = CASES[8::16]
SLICES = 4


@pytest.mark.slow
@pytest.mark.parametrize("first", range(SLICES))
def test_every_pair_of_settings_trains_or_is_refused(first: int) -> None:
    check(CASES[first::SLICES])


def test_a_sample_of_settings_trains_or_is_refused() -> None:
    check(SAMPLE)


def check(cases: list[dict[str, Any]]) -> None:
    outcomes = run_in_fresh_process(
        "tests.engine._settings",
        "run_cases",
        environment={"TF_ENABLE_ONEDNN_OPTS": "1"},
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
        loss, class_weights = case["loss_and_class_weights"]
        return loss == "mean_squared_error" and class_weights is not None
    return bool(outcome.get("finite")) and outcome.get("difference", 0.0) <= 2e-6
