"""What a supervisor makes of workers that die: told from deaths, without any process."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shrink.base.errors import InternalError, ResourceError, ShrinkError, StageError
from shrink.base.host import HostMemory
from shrink.contract.codec import to_plain
from shrink.contract.events import Beat, Lost, OutOfMemoryEvent
from shrink.contract.job import StepJob
from shrink.run.process import WorkerDied
from shrink.run.supervisor import run_recovering
from tests.jobs import step_job

JOB = step_job()


def death(beat: Beat | None, *, by: int = signal.SIGKILL, evidence: str = "") -> WorkerDied:
    return WorkerDied("train", -by, beat=beat, memory_evidence=evidence)


class Worker:
    """Dies as it is told, then gives a result; remembers its jobs."""

    def __init__(self, *ends: Callable[[StepJob, Any], None]) -> None:
        self.jobs: list[dict[str, Any]] = []
        self._ends = list(ends)

    def __call__(self, job: StepJob, work: Path, on_event: Any) -> dict[str, Any]:
        self.jobs.append(to_plain(job.attempts))
        if self._ends:
            self._ends.pop(0)(job, on_event)
        return {"done": True}


def dies(error: Exception) -> Callable[[StepJob, Any], None]:
    def end(job: StepJob, on_event: Any) -> None:
        raise error

    return end


def always_dies(start: int, evidence: str = "") -> Callable[[StepJob, Any], None]:
    def end(job: StepJob, on_event: Any) -> None:
        size = job.attempts.micro_batch_size or start
        raise death(Beat(0, size), evidence=evidence)

    return end


def supervise(worker: Worker, tmp_path: Path) -> dict[str, Any]:
    return run_recovering(JOB, tmp_path, lambda event: None, lambda text: None, worker)


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
def test_run_recovering_halves_the_micro_batch_when_a_worker_dies(by: int, tmp_path: Path) -> None:
    worker = Worker(dies(death(Beat(7, 12), by=by)))
    assert supervise(worker, tmp_path) == {"done": True}
    event = {"step": 7, "micro_batch_size": 12}
    event["evidence"] = f"suspected: killed by {signal.Signals(by).name}"  # type: ignore[assignment]
    assert worker.jobs == [
        {"micro_batch_size": None, "events": []},
        {"micro_batch_size": 6, "events": [event]},
    ]


def test_run_recovering_passes_on_what_speaks_for_memory(tmp_path: Path) -> None:
    worker = Worker(dies(death(Beat(7, 12), evidence="oom_kill rose by 1")))
    supervise(worker, tmp_path)
    events = worker.jobs[1]["events"]
    assert [event["evidence"] for event in events] == ["killed by SIGKILL: oom_kill rose by 1"]


def test_run_recovering_knows_what_the_worker_recovered_from_itself(tmp_path: Path) -> None:
    event = OutOfMemoryEvent(3, 8, "OOM when allocating tensor")

    def end(job: StepJob, on_event: Any) -> None:
        on_event(event)
        raise death(Beat(5, job.attempts.micro_batch_size or 4))

    worker = Worker(end)
    supervise(worker, tmp_path)
    assert worker.jobs[1]["micro_batch_size"] == 2
    assert [e["step"] for e in worker.jobs[1]["events"]] == [3, 5]
    with pytest.raises(ResourceError, match="micro-batch of 1"):  # not the model's own code
        supervise(Worker(end, end, end), tmp_path)


@pytest.mark.parametrize(
    ("evidence", "expected"), [("", StageError), ("oom_kill rose by 1", ResourceError)]
)
@pytest.mark.parametrize(("start", "attempts"), [(1, 1), (2, 2), (64, 7), (100, 7)])
def test_run_recovering_ends_at_a_micro_batch_of_one(
    evidence: str, expected: type[ShrinkError], start: int, attempts: int, tmp_path: Path
) -> None:
    worker = Worker(*[always_dies(start, evidence)] * 20)
    with pytest.raises(expected) as caught:
        supervise(worker, tmp_path)
    assert type(caught.value) is expected
    assert len(worker.jobs) == attempts  # floor(log2(start)) + 1


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (death(None), StageError),
        (death(Beat(1, 8), by=signal.SIGTERM), StageError),
        (WorkerDied("train", 3, beat=Beat(1, 8)), InternalError),
        (StageError("the loss is nan"), StageError),
    ],
)
def test_run_recovering_tries_once_when_it_was_not_memory(
    error: Exception, expected: type[ShrinkError], tmp_path: Path
) -> None:
    worker = Worker(dies(error))
    with pytest.raises(expected):
        supervise(worker, tmp_path)
    assert len(worker.jobs) == 1


@pytest.mark.parametrize(("memory", "expected"), [(True, ResourceError), (False, StageError)])
def test_run_recovering_starts_anew_when_the_worker_says_that_its_device_is_lost(
    memory: bool, expected: type[ShrinkError], tmp_path: Path
) -> None:
    def end(job: StepJob, on_event: Any) -> None:
        size = job.attempts.micro_batch_size or 4
        on_event(Lost(2, size, "CUDA_ERROR", memory))
        raise InternalError("CUDA_ERROR")

    worker = Worker(end)
    assert supervise(worker, tmp_path) == {"done": True}
    assert worker.jobs[1]["micro_batch_size"] == 2
    (event,) = worker.jobs[1]["events"]
    assert event["evidence"] == ("CUDA_ERROR" if memory else "suspected: CUDA_ERROR")
    with pytest.raises(expected):
        supervise(Worker(*[end] * 9), tmp_path)


def write(path: Path, text: str) -> None:
    path.write_text(text, encoding="ascii")


@pytest.mark.parametrize("name", ["memory.events", "memory.oom_control"])
def test_evidence_is_the_counter_of_the_control_group(name: str, tmp_path: Path) -> None:
    write(tmp_path / name, "oom 1\noom_kill 4\n")
    memory = HostMemory([tmp_path], total_bytes=1000)
    assert memory.evidence(resident_bytes=100) == ""
    write(tmp_path / name, "oom 2\noom_kill 6\n")
    assert memory.evidence(resident_bytes=100) == "the control group's oom_kill counter rose by 2"


@pytest.mark.parametrize("name", ["memory.max", "memory.limit_in_bytes"])
def test_evidence_is_resident_memory_near_the_smallest_limit(name: str, tmp_path: Path) -> None:
    memory = HostMemory([tmp_path], total_bytes=4_000_000)
    assert memory.evidence(3_000_000) == ""
    assert memory.evidence(3_600_000) == "resident memory of 4 MB near the limit of 4 MB"
    write(tmp_path / name, "2000000\n")
    assert "near the limit of 2 MB" in memory.evidence(1_900_000)
    write(tmp_path / name, "max\n")
    assert memory.evidence(1_900_000) == ""
