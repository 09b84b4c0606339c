"""What a run would do, said before it does anything: which stages, why, and what that takes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from shrink.base import files
from shrink.base.console import Console
from shrink.base.figures import format_value
from shrink.base.foreign import Json
from shrink.contract.codec import to_plain
from shrink.contract.estimates import Estimate, PreviewRow
from shrink.data.fingerprint import fingerprint
from shrink.recipe.plan import Plan, Step
from shrink.run.estimates import Estimator
from shrink.run.keys import describe_steps, keys_of, measured_before
from shrink.run.lineage import splits_of
from shrink.run.steps import PLAN_NAME
from shrink.run.store import Store


def preview_plan(
    plan: Plan,
    steps: Sequence[Step],
    folder: Path,
    store: Store,
    is_forced: Callable[[Step], bool],
) -> list[PreviewRow]:
    """Return what a run would do with each step, why, and what that takes; nothing is computed.

    Args:
        plan: of the run.
        steps: of it that would run.
        folder: the run folder, whose last plan says what changed.
        store: of finished steps, and of what they took.
        is_forced: whether flags ask for a step to be computed again.
    """
    digest = fingerprint(plan.data_config)
    splits = splits_of(plan, digest, store)
    described = describe_steps(plan, digest, splits)
    keys = keys_of(described)
    before = files.read_mapping(folder / PLAN_NAME)
    estimator = Estimator(store, keys[plan.baseline.name])

    def is_stored(step: Step) -> bool:
        measured = measured_before(plan, step, digest, splits, store)
        return store.contains(keys[step.name]) or measured is not None

    rows = []
    for step in steps:
        estimate = estimator.estimate(step, keys[step.name])
        if is_forced(step):
            row = PreviewRow(
                name=step.name,
                status="compute",
                why="asked for by --no-cache or --from",
                estimate=estimate,
            )
        elif is_stored(step):
            row = PreviewRow(name=step.name, status="cached", why="in the store", estimate=estimate)
        else:
            why = _why(before.get(step.name), described[step.name])
            row = PreviewRow(name=step.name, status="compute", why=why, estimate=estimate)
        rows.append(row)
    return rows


def _why(before: Json, now: Mapping[str, object]) -> str:
    if before is None:
        return "never computed here"
    changes = list(_changes(before, now, ""))
    if not changes:
        return "its entry is no longer in the store"
    own = [text for path, text in changes if not path.startswith("inputs.")]
    return "; ".join(own[:3]) if own else "what it starts from changes"


def _changes(before: Json, now: object, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(before, dict) and isinstance(now, dict):
        for key in dict.fromkeys((*before, *now)):
            inner = f"{path}.{key}" if path else str(key)
            yield from _changes(before.get(key), now.get(key), inner)
    elif before != now:
        opaque = path.endswith(("fingerprint", "sources", "sha256"))
        yield path, f"{path} changed" if opaque else f"{path}: {_short(before)} -> {_short(now)}"


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 24 else text[:21] + "..."


def show_preview(rows: Sequence[PreviewRow], console: Console) -> None:
    """Print what a run would do with each stage, and what all that it computes takes."""
    if console.as_json:
        console.document([to_plain(row) for row in rows])
        return
    for line in (*preview_lines(rows), total_line(rows)):
        console.print(line)


def preview_lines(rows: Sequence[PreviewRow]) -> Iterator[str]:
    """Yield what a run would do with each stage; below those to be computed, what that takes."""
    width = max(len(row.name) for row in rows)
    for row in rows:
        yield f"{row.name:<{width}}  {row.status:<7}  {row.why}"
        if row.status == "compute":
            yield f"{'':<{width}}  {'':<7}  {_taken(row.estimate)}"


def total_line(rows: Sequence[PreviewRow]) -> str:
    """Return what all stages to be computed take together, and how many of them are not known."""
    wanted = [row.estimate for row in rows if row.status == "compute"]
    seconds = [one.duration_s for one in wanted if one.duration_s is not None]
    if not wanted:
        return "nothing to compute"
    if not seconds:
        return f"to compute: {_stages(len(wanted))}; the time is not known"
    low, high = sum(one.low_s or 0 for one in wanted), sum(one.high_s or 0 for one in wanted)
    peak = max((one.host_peak_bytes or 0 for one in wanted), default=0)
    said = f"to compute: {_stages(len(wanted))}, about {_between(sum(seconds), low, high)}"
    said += f", at most {format_value(peak, 'bytes')} of host memory" if peak else ""
    unknown = len(wanted) - len(seconds)
    return f"{said}; {unknown} of them not known" if unknown else said


def _stages(count: int) -> str:
    return "1 stage" if count == 1 else f"{count} stages"


def _taken(estimate: Estimate) -> str:
    if estimate.duration_s is None:
        return f"time and memory are not known: {estimate.why}"
    low, high = estimate.low_s or 0.0, estimate.high_s or 0.0
    peak = estimate.host_peak_bytes
    memory = "" if peak is None else f", {format_value(peak, 'bytes')} of host memory"
    return f"about {_between(estimate.duration_s, low, high)}{memory}: {estimate.why}"


def _between(seconds: float, low: float, high: float) -> str:
    texts = [format_value(one, "s") for one in (seconds, low, high)]
    return f"{texts[0]} ({texts[1]} to {texts[2]})"
