"""The board of a cluster, and what a follower makes of it."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shrink.base.console import Console
from shrink.base.errors import DataError, InternalError, ResourceError
from shrink.contract.events import Lost, Tick
from shrink.contract.job import StepJob
from shrink.run import cluster as board_module
from shrink.run import follow as follow_module
from shrink.run.cluster import ChiefsBoard, FollowersBoard, Membership
from shrink.run.follow import Chief, Follower
from tests.jobs import step_job

JOB = step_job(epochs=2)
CHIEF, OTHER = Membership(2, 0, "k"), Membership(2, 1, "k")


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board_module, "BEAT_S", 0.01)
    monkeypatch.setattr(follow_module, "_POLL_S", 0.01)


def follow_in_a_thread(board: FollowersBoard) -> tuple[threading.Thread, list[int]]:
    codes: list[int] = []
    follower = Follower(board, OTHER, Console(quiet=True))
    thread = threading.Thread(target=lambda: codes.append(follower.follow()))
    thread.start()
    return thread, codes


def test_follower_runs_the_jobs_that_train_and_ends_with_the_chief(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[tuple[str, int]] = []
    both = threading.Barrier(2, timeout=20)

    def attempt(job: StepJob, work: Path, on_event: Any) -> dict[str, Any]:
        assert job.place is not None
        ran.append((job.action, job.place.index))
        both.wait()
        return {}

    monkeypatch.setattr(follow_module, "attempt", attempt)
    thread, codes = follow_in_a_thread(FollowersBoard(tmp_path, 1))
    with ChiefsBoard(tmp_path, 2) as board:
        chief = Chief(board, CHIEF)
        chief.attempt(JOB, tmp_path, lambda event: None)
        chief.end(1)
    thread.join(20)
    assert codes == [1]
    assert sorted(ran) == [("follow", 1), ("step", 0)]


def test_chief_runs_alone_what_does_not_train(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[StepJob] = []

    def attempt(job: StepJob, work: Path, on_event: Any) -> dict[str, Any]:
        seen.append(job)
        return {}

    monkeypatch.setattr(follow_module, "attempt", attempt)
    still = replace(JOB, epochs=0)
    with ChiefsBoard(tmp_path, 2) as board:
        Chief(board, CHIEF).attempt(still, tmp_path, lambda event: None)
    assert not still.trains
    assert seen[0].place is None


def test_followers_board_knows_no_life_of_a_chief_that_ended_before(tmp_path: Path) -> None:
    with ChiefsBoard(tmp_path, 2) as board:
        board.post(JOB)
        while not (tmp_path / "beat").exists():
            pass
    late = FollowersBoard(tmp_path, 1)
    late.silence_s()
    order = late.order()
    assert order is not None
    assert order.job == JOB
    assert not late.is_alive()


def test_follower_gives_up_without_a_chief(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow_module, "PATIENCE_S", 0.05)
    with pytest.raises(ResourceError, match="no heartbeat from the chief") as caught:
        Follower(FollowersBoard(tmp_path, 1), OTHER, Console(quiet=True)).follow()
    assert "shared disk" in str(caught.value.hint)


def test_followers_board_takes_an_order_once_in_all_lives_of_a_worker(tmp_path: Path) -> None:
    with ChiefsBoard(tmp_path, 3) as board:
        board.post(JOB)
        order = FollowersBoard(tmp_path, 1).order()
        assert order is not None
        assert FollowersBoard(tmp_path, 1).join(order)
        assert not FollowersBoard(tmp_path, 1).join(order)
        assert FollowersBoard(tmp_path, 2).join(order)
        board.post(JOB)
        again = FollowersBoard(tmp_path, 1).order()
        assert again is not None
        assert FollowersBoard(tmp_path, 1).join(again)


def test_chiefs_board_reads_reports_of_its_own_order_alone(tmp_path: Path) -> None:
    with ChiefsBoard(tmp_path, 2) as board:
        board.post(JOB)
        other = FollowersBoard(tmp_path, 1)
        order = other.order()
        assert order is not None
        other.report(order, {"message": "no data here"})
        assert board.reports() == [(1, {"message": "no data here"})]
        board.post(None)
        assert board.reports() == []


def test_chief_raises_what_went_wrong_on_another_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = FollowersBoard(tmp_path, 1)

    def attempt(job: StepJob, work: Path, on_event: Any) -> dict[str, Any]:
        order = other.order()
        assert order is not None
        other.report(order, DataError("no such folder", subject="data").to_dict())
        on_event(Tick())
        raise AssertionError

    monkeypatch.setattr(follow_module, "attempt", attempt)
    with (
        ChiefsBoard(tmp_path, 2) as board,
        pytest.raises(DataError, match="worker 1: no such folder"),
    ):
        Chief(board, CHIEF).attempt(JOB, tmp_path, lambda event: None)


@pytest.mark.parametrize(("lost", "attempts"), [(False, 3), (True, 1)])
def test_chief_starts_again_when_a_peer_is_gone_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: bool, attempts: int
) -> None:
    tried: list[int] = []

    def attempt(job: StepJob, work: Path, on_event: Any) -> dict[str, Any]:
        tried.append(len(tried))
        if lost:
            on_event(Lost(0, 1, "gone", False))
        if len(tried) < 3:
            raise InternalError("UnavailableError at somewhere")
        return {"ok": True}

    monkeypatch.setattr(follow_module, "attempt", attempt)
    expected = pytest.raises(InternalError) if lost else contextlib.nullcontext()
    with ChiefsBoard(tmp_path, 2) as board, expected:
        Chief(board, CHIEF).attempt(JOB, tmp_path, lambda event: None)
    assert len(tried) == attempts
