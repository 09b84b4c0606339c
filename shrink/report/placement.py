"""Placement of operators: how many stay on the CPU, which, and why."""

from __future__ import annotations

from collections.abc import Iterator

from shrink.base.figures import format_value
from shrink.contract.compaction import Compiled, Placement
from shrink.contract.report import Report
from shrink.report.page import NULL, Table

_MOST_NAMED = 5
_HEADS = ("operator", "kind", "writes", "why it stays on the CPU")


def placement_sentences(report: Report) -> Iterator[tuple[str, str]]:
    """Yield the name of each stage whose file was placed, and what became of its operators."""
    for stage in report.stages:
        if stage.extra.placement is not None:
            yield stage.name, " ".join(sentences_of(stage.extra.placement))


def placement_tables(report: Report) -> list[Table]:
    """Return a table of the operators on the CPU for each stage whose file was placed."""
    return [
        Table(_HEADS, _rows(placement), f"{stage.name}: operators on the CPU", form="dense")
        for stage in report.stages
        if (placement := stage.extra.placement) is not None
    ]


def sentences_of(placement: Placement) -> list[str]:
    """Return the sentences about a placement."""
    found = [f"{_left(placement)}, by {placement.by}."]
    compiled = placement.compiled
    return found if compiled is None else [*found, _estimate(placement.target, compiled)]


def _left(placement: Placement) -> str:
    if not placement.on_cpu:
        return f"{placement.target} takes all {placement.operators} operators"
    shown = list(dict.fromkeys(f"{one.kind} ({one.reason})" for one in placement.on_cpu))
    more = f"; and {len(shown) - _MOST_NAMED} more" if len(shown) > _MOST_NAMED else ""
    return (
        f"{len(placement.on_cpu)} of {placement.operators} operators stay on the CPU: "
        f"{'; '.join(shown[:_MOST_NAMED])}{more}"
    )


def _estimate(target: str, one: Compiled) -> str:
    memories = {"SRAM": one.sram_bytes, "DRAM": one.dram_bytes, "off-chip flash": one.flash_bytes}
    used = [f"{size:,} bytes of {name}" for name, size in memories.items() if size]
    time = "-" if one.inference_ms is None else format_value(one.inference_ms, "ms")
    clock = "?" if one.clock_hz is None else f"{one.clock_hz / 1e6:.0f} MHz"
    cycles = "?" if one.cycles is None else f"{one.cycles:,}"
    return (
        f"{one.compiler} estimates {', '.join(used) or 'no memory'}, and {cycles} cycles or {time} "
        f"for an inference on {target} at {clock} ({one.system}, {one.memory_mode}), without the "
        "operators on the CPU."
    )


def _rows(placement: Placement) -> tuple[tuple[str, ...], ...]:
    return tuple(
        (NULL if one.operator is None else str(one.operator), one.kind, one.tensor, one.reason)
        for one in placement.on_cpu
    )
