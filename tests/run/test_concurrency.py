"""Runs at the same time on one store: each stage is computed once, whoever comes first."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.run.tiny import STAGES, TinyRun, check_whole, finish, write_recipe


def check_shared(runs: list[TinyRun]) -> None:
    for run in runs:
        check_whole(run)
    for name in STAGES:
        statuses = sorted(run.statuses()[name] for run in runs)
        assert statuses == ["cached"] * (len(runs) - 1) + ["done"]
        digests = {s["sha256"] for run in runs for s in run.report["stages"] if s["name"] == name}
        assert len(digests) == 1


def test_two_runs_compute_every_stage_once(twins: tuple[TinyRun, TinyRun]) -> None:
    check_shared(list(twins))


@pytest.mark.slow
def test_eight_runs_compute_every_stage_once(tmp_path: Path) -> None:
    write_recipe(tmp_path)
    runs = [TinyRun(tmp_path, f"out-{n}") for n in range(8)]
    processes = [run.start() for run in runs]
    assert [finish(process) for process in processes] == [0] * 8
    check_shared(runs)
