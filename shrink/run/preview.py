"""What a run would take from the store and what it would compute, each with the reason."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from shrink.base import files
from shrink.recipe.plan import Plan, Step
from shrink.run.keys import describe_step
from shrink.run.lineage import Splits

PLAN_NAME = "plan.json"


def describe_plan(
    plan: Plan, data_fingerprint: str, keys: Mapping[str, str], splits: Splits | None = None
) -> dict[str, Any]:
    """Return what each step depends on, by name; a run folder keeps it for the next preview."""
    return {
        step.name: describe_step(plan, step, data_fingerprint, keys, splits) for step in plan.steps
    }


def preview(
    steps: Sequence[Step],
    described: Mapping[str, Any],
    folder: Path,
    is_stored: Callable[[Step], bool],
    is_forced: Callable[[Step], bool],
) -> list[dict[str, str]]:
    """Return a row per step: `name`, `status` (`cached` or `compute`) and `why`.

    Args:
        steps: the steps that would run.
        described: what each depends on, from `describe_plan`.
        folder: the run folder, whose last plan says what changed.
        is_stored: whether the store has a step.
        is_forced: whether flags ask for a step to be computed again.
    """
    before = files.read_mapping(folder / PLAN_NAME)
    rows = []
    for step in steps:
        if is_forced(step):
            status, why = "compute", "asked for by --no-cache or --from"
        elif is_stored(step):
            status, why = "cached", "in the store"
        else:
            status, why = "compute", _why(before.get(step.name), described[step.name])
        rows.append({"name": step.name, "status": status, "why": why})
    return rows


def _why(before: Any, now: Mapping[str, Any]) -> str:
    if before is None:
        return "never computed here"
    changes = list(_changes(before, now, ""))
    if not changes:
        return "its entry is no longer in the store"
    own = [text for path, text in changes if not path.startswith("inputs.")]
    return "; ".join(own[:3]) if own else "what it starts from changes"


def _changes(before: Any, now: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(before, dict) and isinstance(now, dict):
        for key in dict.fromkeys((*before, *now)):
            inner = f"{path}.{key}" if path else str(key)
            yield from _changes(before.get(key), now.get(key), inner)
    elif before != now:
        opaque = path.endswith(("fingerprint", "sources", "sha256"))
        yield path, f"{path} changed" if opaque else f"{path}: {_short(before)} -> {_short(now)}"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 24 else text[:21] + "..."
