"""`--dry-run`: which stages would be computed, and why."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from shrink.base import cache, files
from shrink.base.console import Console
from shrink.base.figures import format_value
from shrink.base.foreign import Json
from shrink.contract.codec import to_plain
from shrink.contract.record import record
from shrink.data.fingerprint import fingerprint
from shrink.recipe.plan import Plan, Step
from shrink.run.keys import describe_steps, keys_of
from shrink.run.lineage import splits_of
from shrink.run.steps import PLAN_NAME
from shrink.run.store import Store


@record
class PreviewRow:
    """What a run would do with a stage.

    Attributes:
        name: of the stage.
        status: `cached`, `compute`, or in sweeps `shared`: computed by another run.
        why: it is computed.
        last_s: seconds that the last stage of its kind took on this machine; None for never.
    """

    name: str
    status: Literal["cached", "compute", "shared"]
    why: str
    last_s: float | None = None


def keep_duration(step: Step, seconds: float, store: Store) -> None:
    """Remember how long a stage took, as the last of its kind."""
    cache.keep(_duration_file(step, store), files.encoded(json.dumps({"duration_s": seconds})))


def last_duration_s(step: Step, store: Store) -> float | None:
    """Return how long the last stage of the same kind, with the same method or scheme, took."""
    seconds = files.read_mapping(_duration_file(step, store)).get("duration_s")
    return float(seconds) if isinstance(seconds, int | float) else None


def _duration_file(step: Step, store: Store) -> Path:
    variant = getattr(step.config, "scheme", None) or getattr(step.config, "method", None)
    name = re.sub(r"\W+", "-", f"{step.kind}-{variant}" if variant else step.kind)
    return store.root / "timings" / f"last-{name}.json"


def preview_plan(
    plan: Plan,
    steps: Sequence[Step],
    folder: Path,
    store: Store,
    is_forced: Callable[[Step], bool],
) -> list[PreviewRow]:
    """Return what a run would do with each step, and why; nothing is computed.

    Args:
        plan: of the run.
        steps: of it that would run.
        folder: the run folder, whose last plan says what changed.
        store: of finished steps, and of how long stages took.
        is_forced: whether flags ask for a step to be computed again.
    """
    digest = fingerprint(plan.recipe.data)
    splits = splits_of(plan, digest, store)
    described = describe_steps(plan, digest, splits)
    keys = keys_of(described)
    before = files.read_mapping(folder / PLAN_NAME)

    rows = []
    for step in steps:
        forced = is_forced(step)
        if not forced and store.contains(keys[step.name]):
            row = PreviewRow(name=step.name, status="cached", why="in the cache")
        else:
            changed = _why(before.get(step.name), described[step.name])
            why = "because of --no-cache or --from" if forced else changed
            row = PreviewRow(name=step.name, status="compute", why=why)
        rows.append(replace(row, last_s=last_duration_s(step, store)))
    return rows


def _why(before: Json, now: Mapping[str, object]) -> str:
    if before is None:
        return "never computed here"
    changes = list(_changes(before, now, ""))
    if not changes:
        return "its entry is no longer in the cache"
    own = [text for path, text in changes if not path.startswith("inputs.")]
    return "; ".join(own[:3]) if own else "its input changes"


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
    """Print what a run would do with each stage."""
    if console.as_json:
        console.document([to_plain(row) for row in rows])
        return
    for line in (*preview_lines(rows), total_line(rows)):
        console.print(line)


def preview_lines(rows: Sequence[PreviewRow]) -> Iterator[str]:
    """Yield what a run would do with each stage, with the last duration of those to compute."""
    width = max(len(row.name) for row in rows)
    for row in rows:
        last = ""
        if row.status == "compute" and row.last_s is not None:
            last = f" (the last of its kind took {format_value(row.last_s, 's')})"
        yield f"{row.name:<{width}}  {row.status:<7}  {row.why}{last}"


def total_line(rows: Sequence[PreviewRow]) -> str:
    """Return how many stages are to be computed, and how long the last of their kinds took."""
    wanted = [row.last_s for row in rows if row.status == "compute"]
    if not wanted:
        return "nothing to compute"
    known = [seconds for seconds in wanted if seconds is not None]
    said = "to compute: 1 stage" if len(wanted) == 1 else f"to compute: {len(wanted)} stages"
    if not known:
        return f"{said}; none of this kind was computed on this machine before"
    said += f"; the last of their kinds took {format_value(sum(known), 's')} together"
    unknown = len(wanted) - len(known)
    return f"{said}, without {unknown} of a new kind" if unknown else said
