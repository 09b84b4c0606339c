"""Asks a throw-away worker which micro-batch fits, before a step is trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from shrink.run.process import Event, run_worker


def with_plan(job: dict[str, Any], work: Path, on_event: Callable[[Event], None]) -> dict[str, Any]:
    """Return a step's job with the planner's `plan`, where there is something to plan.

    Args:
        job: the step's job, plain data.
        work: the step's own folder; the planner's is inside it.
        on_event: called with each progress event.

    Raises:
        ShrinkError: not even a micro-batch of one example fits, or the step cannot begin.
    """
    if not needs_plan(job["step"]):
        return job
    folder = work / "planner"
    folder.mkdir()
    probing = {**job, "action": "probe", "work": str(folder)}
    return {**job, "plan": run_worker(probing, folder, on_event)["plan"]}


def needs_plan(step: Mapping[str, Any]) -> bool:
    """Whether a step trains with a micro-batch that is the planner's to choose.

    Without a limit a CPU has none that could be planned for. A GPU always has.
    """
    training, config = step["training"], step["config"]
    trains = bool(config) and config.get("epochs", 0) > 0
    limited = training["memory_limit"] is not None
    return trains and limited and training["micro_batch_size"] == "auto"
