"""A tool's work in a worker, after a look at what it is given."""

from __future__ import annotations

from typing import Any

from shrink.base.console import Console
from shrink.base.errors import ShrinkError
from shrink.base.paths import cache_root
from shrink.model.guard import guard_model_file
from shrink.model.reference import ModelReference
from shrink.model.scan import SCANNED
from shrink.model.trust import NO_TRUST, Trust
from shrink.run.process import run_worker
from shrink.run.store import Store
from shrink.tflite.guard import guard_artifact


def guard_reference(reference: ModelReference, trust: Trust, to_be_quantized: bool = False) -> None:
    """Scan a Keras model's file, or try a .tflite file; what is code anyway passes.

    Args:
        reference: the model.
        trust: what may pass that is not Keras' own.
        to_be_quantized: whether a .tflite file must be a float one.

    Raises:
        ModelError: it is damaged, refused, or brings down the process that looks at it.
    """
    if reference.kind in SCANNED:
        guard_model_file(reference.path, trust)
    elif reference.kind == "tflite":
        guard_artifact(reference.path, to_be_quantized=to_be_quantized)


def run_action(action: str, name: str, console: Console, **settings: Any) -> dict[str, Any]:
    """Run a worker's action and return its result.

    Args:
        action: a key of the worker's registry.
        name: what it is about, for messages.
        console: told what happens.
        settings: what else the job needs, as plain data.
    """
    store = Store(cache_root(), console.warn)
    store.sweep()
    with store.in_use(), store.work_folder() as work:
        job = {"action": action, "name": name, "work": str(work), **settings}
        try:
            return run_worker(job, work, console.event)
        except ShrinkError as error:
            error.subject = error.subject or name
            raise


def run_tool(
    action: str,
    reference: ModelReference,
    console: Console,
    trust: Trust = NO_TRUST,
    **settings: Any,
) -> dict[str, Any]:
    """Look into a model's file, run a worker's action on it and return the result.

    See `run_action`.
    """
    guard_reference(reference, trust)
    model: dict[str, Any] = {
        "kind": reference.kind,
        "path": str(reference.path),
        "function": reference.function,
        "arguments": {},
        **trust.to_dict(),
    }
    return run_action(action, str(reference), console, model=model, **settings)
