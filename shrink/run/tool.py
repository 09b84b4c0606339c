"""One-off jobs in a worker: what `profile`, `inspect` and `export` do."""

from __future__ import annotations

from typing import Any

from shrink.base.console import Console
from shrink.base.errors import ShrinkError
from shrink.base.paths import cache_root
from shrink.model.reference import ModelReference
from shrink.model.trust import NO_TRUST, Trust
from shrink.run.guards import guard_reference
from shrink.run.process import run_worker
from shrink.run.store import Store


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
    with store.work_folder() as work:
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
