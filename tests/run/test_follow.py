"""Orders of a chief, and what a follower makes of them."""

from __future__ import annotations

import contextlib
import errno
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shrink.base.console import Console
from shrink.base.errors import DataError, InternalError, ResourceError
from shrink.contract.events import Lost, Tick
from shrink.contract.job import StepJob
from shrink.run import follow as follow_module
from shrink.run.cluster import ClusterPlace
from shrink.run.follow import Chief, Follower
from tests.jobs import step_job

JOB = step_job(epochs=2)
QUIET = Console(quiet=True)


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow_module, "BEAT_S", 0.01)
    monkeypatch.setattr(follow_module, "_POLL_S", 0.01)


def follower_of(folder: Path, index: int = 1) -> Follower:
    return Follower(folder, ClusterPlace(2, index, "k"), QUIET)


def follow_in_a_thread(follower: Follower) -> tuple[threading.Thread, list[int]]:
    codes: list[int] = []
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
    thread, codes = follow_in_a_thread(follower_of(tmp_path))
    with Chief(tmp_path, 2) as chief:
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
    with Chief(tmp_path, 2) as chief:
        chief.attempt(still, tmp_path, lambda event: None)
    assert not still.trains
    assert seen[0].place is None


def test_a_follower_sees_no_life_of_a_chief_that_ended_before(tmp_path: Path) -> None:
    with Chief(tmp_path, 2) as chief:
        present = follower_of(tmp_path)
        chief.post(JOB)
        order = present.order()
        while order is None or not order.beat:  # it lives on with one order
            order = present.order()
        assert present.is_led()
    late = follower_of(tmp_path)
    order = late.order()
    assert order is not None
    assert order.job == JOB
    assert not late.is_led()


@pytest.mark.parametrize("is_unreachable", [False, True])
def test_a_first_order_that_cannot_be_read_is_no_sign_of_life(
    is_unreachable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Chief(tmp_path, 2) as chief:
        chief.end(130)

    def stale(path: Path, *arguments: Any, **settings: Any) -> str:
        raise OSError(errno.ESTALE, "Stale file handle")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_text", stale)
        if is_unreachable:
            patched.setattr(Path, "stat", stale)
        late = follower_of(tmp_path)
    assert late.order() is not None
    assert not late.is_led()
    with Chief(tmp_path, 2):
        assert late.order() is not None
    assert late.is_led()


def test_an_order_that_cannot_be_read_for_a_moment_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []

    def attempt(job: StepJob, work: Path, on_event: Any) -> dict[str, Any]:
        read = Path.read_text

        def stale(path: Path, *arguments: Any, **settings: Any) -> str:
            if path.name == "order.json":
                raise OSError(errno.ESTALE, "Stale file handle")
            return read(path, *arguments, **settings)

        try:
            with monkeypatch.context() as patched:
                patched.setattr(Path, "read_text", stale)
                on_event(Tick())
            on_event(Tick())
            ended.append(job.name)
        finally:
            chief.post(None, 0)
        on_event(Tick())
        raise AssertionError("the job is over")

    monkeypatch.setattr(follow_module, "attempt", attempt)
    follower = follower_of(tmp_path)
    with Chief(tmp_path, 2) as chief:
        chief.post(JOB)
        assert follower.follow() == 0
    assert ended == [JOB.name]


def test_follower_leaves_a_training_whose_chief_falls_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks: list[int] = []

    def attempt(job: StepJob, work: Path, on_event: Any) -> dict[str, Any]:
        (tmp_path / "order.json").unlink()
        monkeypatch.setattr(follow_module, "LINGER_S", -1.0)
        ticks.append(1)
        on_event(Tick())
        raise AssertionError("the chief is gone")

    monkeypatch.setattr(follow_module, "attempt", attempt)
    monkeypatch.setattr(follow_module, "PATIENCE_S", 0.2)
    follower = follower_of(tmp_path)
    with Chief(tmp_path, 2) as chief:
        chief.post(JOB)
        follower.order()
    with pytest.raises(ResourceError, match="no heartbeat from the chief"):
        follower.follow()
    assert ticks == [1]


def test_follower_gives_up_without_a_chief(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow_module, "PATIENCE_S", 0.05)
    with pytest.raises(ResourceError, match="no heartbeat from the chief") as caught:
        follower_of(tmp_path).follow()
    assert "shared disk" in str(caught.value.hint)


def test_follower_gives_up_when_its_chief_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = follower_of(tmp_path)
    with Chief(tmp_path, 2):
        assert left.order() is not None
    assert left.is_led()
    monkeypatch.setattr(follow_module, "PATIENCE_S", 0.05)
    with pytest.raises(ResourceError, match="no heartbeat from the chief"):
        left.follow()


def test_a_follower_takes_an_order_once_in_all_its_lives(tmp_path: Path) -> None:
    with Chief(tmp_path, 3) as chief:
        chief.post(JOB)
        order = follower_of(tmp_path).order()
        assert order is not None
        assert follower_of(tmp_path).join(order)
        assert not follower_of(tmp_path).join(order)
        assert follower_of(tmp_path, 2).join(order)
        chief.post(JOB)
        again = follower_of(tmp_path).order()
        assert again is not None
        assert follower_of(tmp_path).join(again)


def test_a_chief_reads_reports_of_its_own_order_alone(tmp_path: Path) -> None:
    with Chief(tmp_path, 2) as chief:
        chief.post(JOB)
        other = follower_of(tmp_path)
        order = other.order()
        assert order is not None
        assert other.join(order)
        assert chief.reports() == []
        other.report(order, {"message": "no data here"})
        assert chief.reports() == [(1, {"message": "no data here"})]
        chief.post(None)
        assert chief.reports() == []


def test_chief_raises_what_went_wrong_on_another_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = follower_of(tmp_path)

    def attempt(job: StepJob, work: Path, on_event: Any) -> dict[str, Any]:
        order = other.order()
        assert order is not None
        other.report(order, DataError("no such folder", subject="data").to_dict())
        on_event(Tick())
        raise AssertionError

    monkeypatch.setattr(follow_module, "attempt", attempt)
    with (
        Chief(tmp_path, 2) as chief,
        pytest.raises(DataError, match="worker 1: no such folder"),
    ):
        chief.attempt(JOB, tmp_path, lambda event: None)


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
    with Chief(tmp_path, 2) as chief, expected:
        chief.attempt(JOB, tmp_path, lambda event: None)
    assert len(tried) == attempts
