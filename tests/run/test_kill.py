"""A run killed by SIGKILL at any moment leaves nothing torn, and the next one completes it."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

from tests.forks import call
from tests.run.tiny import (
    STAGES,
    TinyRun,
    check_no_report_of_other_artifacts,
    check_same_artifacts,
    check_whole,
    finish,
    run_together,
    wait_until_nobody_uses,
)


@pytest.mark.parametrize("every", [97, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("sparsity", "before"),
    [("0.5", ""), ("0.6", "0.5"), ("0.3,0.5", "")],
    ids=["run", "over a finished run", "sweep"],
)
def test_nothing_is_lost_whichever_change_of_a_file_is_the_last(
    sparsity: str, before: str, every: int, tmp_path: Path
) -> None:
    found = call(
        "tests.run.killing",
        "kill_everywhere",
        root=str(tmp_path),
        sparsity=sparsity,
        before=before,
        every=every,
    )
    assert found["changes"] > 100
    assert found["lost"] <= 1  # the stage whose worker had just ended


@pytest.mark.parametrize("every", [197, pytest.param(1, marks=pytest.mark.slow)])
def test_no_trial_is_lost_or_trained_twice_whichever_change_is_the_last(
    every: int, tmp_path: Path
) -> None:
    found = call("tests.run.killing", "kill_a_search", root=str(tmp_path), every=every)
    assert found["changes"] > 300
    assert found["lost"] <= 1  # the stage whose worker had just ended


def check_completes(run: TinyRun, reference: TinyRun) -> int:
    """Check what a killed run left, run it again; return how many stages were computed."""
    wait_until_nobody_uses(run.store)
    check_no_report_of_other_artifacts(run)
    assert run_together(run) == [0]
    check_whole(run)
    check_same_artifacts(run, reference)
    return list(run.statuses().values()).count("done")


@pytest.mark.slow
def test_run_is_completed_when_killed_at_random_times(reference: TinyRun, tmp_path: Path) -> None:
    choose = random.Random(0)
    durations = {s["name"]: s["duration_s"] for s in reference.report["stages"]}
    killed = 0
    for round_ in range(50):
        missing = choose.choice(STAGES)
        run = reference.copy_without(missing, tmp_path / str(round_))
        process = run.start()
        time.sleep(choose.uniform(0, durations[missing] + 1.5))
        process.kill()
        killed += finish(process) == -signal.SIGKILL
        assert check_completes(run, reference) <= 1
    assert killed > 25
