"""Supervises a worker: memory planning before it, retries, and the error of its failure."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from shrink.base import files
from shrink.base.errors import InternalError, ResourceError, ShrinkError, StageError
from shrink.base.foreign import JsonObject
from shrink.base.measurement import NOTHING_TO_PLAN_FOR
from shrink.contract.codec import from_plain
from shrink.contract.events import Event, Lost, OutOfMemoryEvent
from shrink.contract.job import Attempts, Planning, StepJob
from shrink.run.host_plan import within_host
from shrink.run.process import LOG_NAME, WorkerDied, attempt, log_to_keep


def planned_job(
    job: StepJob,
    work: Path,
    on_event: Callable[[Event], None],
    workers: int = 1,
    group_bytes: int | None = None,
) -> StepJob:
    """Return a step's job with the micro-batch to train with, where there is something to plan.

    Args:
        job: the step's job.
        work: the step's own folder; the planner's is inside it.
        on_event: called with each progress event.
        workers: machines that will train together; this one plans for its share of a batch.
        group_bytes: what was left of the control group when the run began; see `check_host`.

    Raises:
        ShrinkError: not even a micro-batch of one example fits, or the step cannot begin.
    """
    job = within_host(job, group_bytes)
    return replace(job, planning=_planned(job, work, on_event, workers))


def _planned(job: StepJob, work: Path, on_event: Callable[[Event], None], workers: int) -> Planning:
    if (why := why_unplanned(job)) is not None:
        return Planning(unplanned=why)
    folder = work / "planner"
    folder.mkdir()
    share = -(-job.training["global_batch_size"] // workers)  # of the global batch
    probing = replace(job, action="probe", training={**job.training, "global_batch_size": share})
    try:
        return from_plain(Planning, attempt(probing, folder, on_event))
    except WorkerDied as death:
        # Training recovers from a micro-batch that does not fit; it starts from the largest.
        return Planning(unplanned=death.as_error().message.partition("\n")[0])
    finally:
        with contextlib.suppress(FileNotFoundError):
            (folder / LOG_NAME).replace(work / LOG_NAME)


def why_unplanned(job: StepJob) -> str | None:
    """Return why a step has no micro-batch for the planner to choose; None if it has."""
    if job.epochs == 0:
        return "the stage does not train"
    if job.training["micro_batch_size"] != "auto":
        return "training.micro_batch_size is given"
    if job.training["memory_limit"] is None:
        return NOTHING_TO_PLAN_FOR
    return None


def with_log(error: ShrinkError, log: Path | None) -> ShrinkError:
    """Return an error that names the log of its stage, where more than the error may stand.

    Args:
        error: changed in place; what is wrong with a recipe, a model or data is said in full.
        log: where it was kept; None for nowhere.
    """
    if log is not None and isinstance(error, StageError | ResourceError | InternalError):
        error.hint = f"{error.hint or 'read what the worker printed'} (log: {log})"
    return error


def keep_log(source: Path, path: Path) -> Path:
    """Write what is kept of a log to `path`, and return it."""
    files.write_bytes(path, log_to_keep(source))
    return path


def with_names_of_the_user(error: ShrinkError, called: Mapping[str, str]) -> ShrinkError:
    """Return an error that names no file of the store, which nobody wrote.

    Args:
        error: changed in place.
        called: by path in the store, what the user calls the file.
    """
    for path, name in called.items():
        error.message = error.message.replace(path, name)
        error.subject = error.subject and error.subject.replace(path, name)
        error.hint = error.hint and error.hint.replace(path, name)
    return error


MEMORY_SIGNALS = (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT)
"""How a process ends that was refused memory: by the kernel, or by what it did without it."""

Attempt = Callable[[StepJob, Path, Callable[[Event], None]], JsonObject]


def run_recovering(
    job: StepJob,
    work: Path,
    on_event: Callable[[Event], None],
    say: Callable[[str], None],
    run: Attempt = attempt,
) -> JsonObject:
    """Run a step's job, again in fresh processes where a worker dies while it trains.

    Every new process has half the micro-batch and continues from the last checkpoint, so that
    there are at most log2(B) + 1 of them for a global batch of B.

    Args:
        job: see `shrink.run.process.run_worker`.
        work: the worker's folder.
        on_event: called with each progress event.
        say: called when a worker is started again.
        run: runs a worker once; raises `WorkerDied` where it ended without a result.

    Raises:
        ResourceError: a micro-batch of one example does not fit.
        StageError: a worker dies at a micro-batch of one, and nothing speaks for memory.
        ShrinkError: whatever the worker raised, or what its death means.
    """
    events: list[OutOfMemoryEvent] = []
    lost: list[Lost] = []
    proven, micro_batch_size = False, None

    def listen(event: Event) -> None:
        nonlocal proven
        if isinstance(event, Lost):
            lost.append(event)
        elif isinstance(event, OutOfMemoryEvent):
            events.append(event)
            proven = True
        else:
            on_event(event)

    while True:
        lost.clear()
        try:
            return run(
                replace(job, attempts=Attempts(micro_batch_size, tuple(events))), work, listen
            )
        except WorkerDied as death:
            beat, cause = death.beat, death.as_error()
            if beat is None or death.signal not in MEMORY_SIGNALS:
                raise cause from death
            by = f"killed by {death.signal.name}"
            memory, evidence = bool(death.memory_evidence), death.memory_evidence
            evidence = f"{by}: {evidence}" if memory else by
            how, step, tried = f"the worker was {by}", beat.step, beat.micro_batch_size
        except ShrinkError as error:
            if not lost:
                raise
            last, cause = lost[-1], error
            memory, evidence = last.memory, last.evidence
            step, tried = last.step, last.micro_batch_size
            how = f"the worker gave up ({evidence})"
        proven = proven or memory
        events.append(
            OutOfMemoryEvent(step, tried, evidence if memory else f"suspected: {evidence}")
        )
        if tried == 1:
            raise _at_the_end(cause, len(events), proven) from cause
        micro_batch_size = tried // 2
        say(f"{how} in update {step}; trying again with a micro-batch of {micro_batch_size}")


def _at_the_end(cause: ShrinkError, tries: int, proven: bool) -> ShrinkError:
    again = "" if tries == 1 else f" ({tries} attempts ended so)"
    message = f"at a micro-batch of 1: {cause.message}{again}"
    if proven:
        hint = "use smaller inputs, training.precision: mixed_bfloat16, or more memory"
        return ResourceError(message, subject=cause.subject, hint=hint)
    hint = "this was probably not a lack of memory: read the log above and the model's own code"
    return StageError(message, subject=cause.subject, hint=hint)
