"""Asks a throw-away worker which micro-batch fits, before a step is trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from shrink.run.process import Event, WorkerDied, attempt


def with_plan(
    job: dict[str, Any], work: Path, on_event: Callable[[Event], None], workers: int = 1
) -> dict[str, Any]:
    """Return a step's job with the planner's `plan`, where there is something to plan.

    Args:
        job: the step's job, plain data.
        work: the step's own folder; the planner's is inside it.
        on_event: called with each progress event.
        workers: machines that will train together; this one plans for its share of a batch.

    Raises:
        ShrinkError: not even a micro-batch of one example fits, or the step cannot begin.
    """
    if (why := why_unplanned(job["step"])) is not None:
        return {**job, "unplanned": why}
    folder = work / "planner"
    folder.mkdir()
    probing = {**job, "action": "probe", "work": str(folder), "step": _share(job["step"], workers)}
    try:
        return {**job, **attempt(probing, folder, on_event)}
    except WorkerDied as death:
        # Training recovers from a micro-batch that does not fit; it starts from the largest.
        return {**job, "unplanned": death.as_error().message.partition("\n")[0]}


def _share(step: Mapping[str, Any], workers: int) -> dict[str, Any]:
    """Return the step with one machine's share of the global batch."""
    training = dict(step["training"])
    training["global_batch_size"] = -(-training["global_batch_size"] // workers)
    return {**step, "training": training}


def why_unplanned(step: Mapping[str, Any]) -> str | None:
    """Return why a step has no micro-batch for the planner to choose; None if it has."""
    training, config = step["training"], step["config"]
    if not config or config.get("epochs", 0) == 0:
        return "the stage does not train"
    if training["micro_batch_size"] != "auto":
        return "training.micro_batch_size is given"
    if training["memory_limit"] is None:
        return "there is no training.memory_limit to plan for"
    return None
