"""Memory as bars: measured, predicted, and how near the limit is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shrink.base.figures import format_value
from shrink.report.content import Report, Stage


@dataclass(frozen=True)
class Bar:
    """One bar of memory: a length in percent, and where its limit stands, if that is near."""

    label: str
    value: str
    percent: float
    limit_percent: float | None
    kind: str


@dataclass(frozen=True)
class BarGroup:
    """The bars of one kind of memory, on one scale."""

    title: str
    caption: str
    bars: tuple[Bar, ...]


def memory_groups(report: Report) -> list[BarGroup]:
    """Return the bars of training memory (device, host) and of memory on the device."""
    stages = report["stages"]
    device = [
        _Row(f"{stage['name']}{suffix}", _memory(stage, name), _limit(stage), kind)
        for stage in stages
        for suffix, name, kind in (
            ("", "training_peak_bytes", "measured"),
            (", predicted", "training_peak_predicted_bytes", "predicted"),
        )
    ]
    groups = [_group("Training peak, on the device", device)]
    for title, name in (
        ("Training peak, whole process on the host", "training_host_peak_bytes"),
        ("Inference, above an empty process", "inference_peak_bytes"),
        ("Tensor arena on a microcontroller", "arena_bytes"),
    ):
        rows = [_Row(stage["name"], _memory(stage, name), None, "measured") for stage in stages]
        groups.append(_group(title, rows))
    return [group for group in groups if group is not None]


@dataclass(frozen=True)
class _Row:
    label: str
    value: float | None
    limit: float | None
    kind: str


def _group(title: str, rows: Sequence[_Row]) -> BarGroup | None:
    known = [(row, row.value) for row in rows if row.value is not None]
    if not known:
        return None
    longest = max(value for _, value in known) or 1
    limits = {row.limit for row, _ in known} - {None, 0}
    near = [limit for limit in limits if limit is not None and limit <= 2 * longest]
    full = max([longest, *near])
    bars = tuple(
        Bar(
            label=row.label,
            value=format_value(value, "bytes"),
            percent=100 * value / full,
            limit_percent=100 * row.limit / full if row.limit in near and row.limit else None,
            kind="over" if row.limit and value > row.limit else row.kind,
        )
        for row, value in known
    )
    return BarGroup(title, _limit_caption(sorted(x for x in limits if x), near, longest), bars)


def _limit_caption(limits: Sequence[float], near: Sequence[float], longest: float) -> str:
    texts = []
    for limit in limits:
        text = f"Limit {format_value(limit, 'bytes')}"
        far = (
            f", {limit / longest:.3g} times the longest bar" if limit not in near else ", the tick"
        )
        texts.append(text + far)
    return "; ".join(texts)


def _memory(stage: Stage, name: str) -> float | None:
    value = (stage["memory"] or {}).get(name)
    return None if value is None else float(value)


def _limit(stage: Stage) -> float | None:
    limit = (stage["training"] or {}).get("memory_limit_bytes")
    return float(limit) if isinstance(limit, int | float) and limit > 0 else None
