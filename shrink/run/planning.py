"""Asks a throw-away worker which micro-batch fits, before a step is trained."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from shrink.base.measured import NOTHING_TO_PLAN_FOR
from shrink.contract.codec import from_plain
from shrink.contract.events import Event
from shrink.contract.job import Planning, StepJob
from shrink.contract.training import Training
from shrink.run.process import LOG_NAME, WorkerDied, attempt


def with_plan(
    job: StepJob, work: Path, on_event: Callable[[Event], None], workers: int = 1
) -> StepJob:
    """Return a step's job with the micro-batch to train with, where there is something to plan.

    Args:
        job: the step's job.
        work: the step's own folder; the planner's is inside it.
        on_event: called with each progress event.
        workers: machines that will train together; this one plans for its share of a batch.

    Raises:
        ShrinkError: not even a micro-batch of one example fits, or the step cannot begin.
    """
    return replace(job, planning=_planned(job, work, on_event, workers))


def _planned(job: StepJob, work: Path, on_event: Callable[[Event], None], workers: int) -> Planning:
    if (why := why_unplanned(job)) is not None:
        return Planning(unplanned=why)
    folder = work / "planner"
    folder.mkdir()
    probing = replace(job, action="probe", training=_share(job.training, workers))
    try:
        return from_plain(Planning, attempt(probing, folder, on_event))
    except WorkerDied as death:
        # Training recovers from a micro-batch that does not fit; it starts from the largest.
        return Planning(unplanned=death.as_error().message.partition("\n")[0])
    finally:
        with contextlib.suppress(FileNotFoundError):
            (folder / LOG_NAME).replace(work / LOG_NAME)


def _share(training: Training, workers: int) -> Training:
    """Return the training of one machine, with its share of the global batch."""
    return replace(training, global_batch_size=-(-training.global_batch_size // workers))


def why_unplanned(job: StepJob) -> str | None:
    """Return why a step has no micro-batch for the planner to choose; None if it has."""
    if job.epochs == 0:
        return "the stage does not train"
    if job.training.micro_batch_size != "auto":
        return "training.micro_batch_size is given"
    if job.training.memory_limit is None:
        return NOTHING_TO_PLAN_FOR
    return None
