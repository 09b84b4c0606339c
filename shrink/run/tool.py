"""A tool's work in a worker, after a look at what it is given."""

from __future__ import annotations

from typing import Any

from shrink.base.console import Console
from shrink.base.errors import ShrinkError
from shrink.base.paths import cache_root
from shrink.contract.job import Job, ModelJob
from shrink.contract.model_source import ModelSource
from shrink.model.scan import SCANNED, guard_model_file
from shrink.run.process import run_worker, show
from shrink.run.store import Store
from shrink.tflite.guard import guard_artifact


def guard_source(source: ModelSource, to_be_quantized: bool = False) -> None:
    """Scan a Keras model's file, or try a .tflite file; what is code anyway passes.

    Args:
        source: the model.
        to_be_quantized: whether a .tflite file must be a float one.

    Raises:
        ModelError: it is damaged, refused, or brings down the process that looks at it.
    """
    if source.kind in SCANNED:
        guard_model_file(source.path, source.trust)
    elif source.kind == "tflite":
        guard_artifact(source.path, to_be_quantized=to_be_quantized)


def run_action(job: Job, console: Console) -> dict[str, Any]:
    """Run a worker's action and return its result.

    Args:
        job: what to do.
        console: told what happens.
    """
    store = Store(cache_root(), console.warn)
    store.sweep()
    with store.in_use(), store.work_folder() as work:
        try:
            return run_worker(job, work, lambda event: show(event, console))
        except ShrinkError as error:
            error.subject = error.subject or job.name
            raise


def run_tool(job: ModelJob, console: Console) -> dict[str, Any]:
    """Look into a model's file, run a worker's action on it and return the result.

    See `run_action`.
    """
    guard_source(job.model)
    return run_action(job, console)
