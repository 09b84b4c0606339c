"""A run killed by SIGKILL at any moment leaves nothing torn, and the next one completes it."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

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

STAGE_FAILED = 4
# Where the run dies; the stage that the store lacks then; how many stages the next run computes.
PARENT = [
    ("run-locked", None, 0),
    ("folder-made", None, 0),
    ("worker-started:prune", "prune", 1),
    ("worker-ended:quantize", "quantize", 1),
    ("object-moving", "train", 1),
    ("objects-moved", "prune", 1),
    ("manifest-written", "quantize", 0),
    ("log-kept:prune", "prune", 0),
    ("artifact-copied:prune", None, 0),
    ("report-standing", None, 0),
    ("report-withdrawn", None, 0),
    ("recipe.resolved.yaml-written", None, 0),
    ("report.md-written", None, 0),
    ("report.json-written", None, 0),
]
WORKER = [
    ("job-read:quantize", "quantize", 1),
    ("stage-ran:train", "train", 1),
    ("artifact-saved:prune", "prune", 1),
    ("artifact-measured:quantize", "quantize", 1),
]
IN_DEFAULT_SUITE = ("manifest-written", "job-read:quantize")


def cases() -> list[object]:
    """Return label, missing stage, stages to compute, and the killed run's exit code."""
    rows = [(*row, -signal.SIGKILL) for row in PARENT] + [(*row, STAGE_FAILED) for row in WORKER]
    return [
        pytest.param(*row, id=row[0], marks=() if row[0] in IN_DEFAULT_SUITE else pytest.mark.slow)
        for row in rows
    ]


def check_completes(run: TinyRun, reference: TinyRun) -> int:
    """Check what a killed run left, run it again; return how many stages were computed."""
    wait_until_nobody_uses(run.store)
    check_no_report_of_other_artifacts(run)
    assert run_together(run) == [0]
    check_whole(run)
    check_same_artifacts(run, reference)
    return list(run.statuses().values()).count("done")


@pytest.mark.parametrize(("label", "missing", "computed", "code"), cases())
def test_run_is_completed_when_killed_at(
    reference: TinyRun,
    tmp_path: Path,
    label: str,
    missing: str | None,
    computed: int,
    code: int,
) -> None:
    run = reference.copy_without(missing, tmp_path / "run")
    assert finish(run.start(kill_at=label)) == code
    assert check_completes(run, reference) == computed


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
