"""Every number of a report under one name, as `dvc metrics diff` and spreadsheets read it."""

from __future__ import annotations

from shrink.report.content import Report, Stage


def flat_metrics(report: Report) -> dict[str, float]:
    """Return `STAGE.FIGURE: number` for every figure that was measured, and `gates_missed`.

    Null figures are left out: a 0 would be drawn as one. Durations and latencies are among them,
    so two runs of the same recipe differ in these.
    """
    found: dict[str, float] = {}
    for stage in report["stages"]:
        found |= {f"{stage['name']}.{name}": v for name, v in stage_figures(stage).items()}
    missed = [g for g in report["gates"] if not g["passed"] and g.get("level", "fail") == "fail"]
    return found | {"gates_missed": len(missed)}


def stage_figures(stage: Stage) -> dict[str, float]:
    """Return the figures of one stage that were measured, by name."""
    groups = (stage["metrics"], stage["size"], stage["memory"], stage["latency"])
    figures = {name: v for group in groups for name, v in (group or {}).items()}
    figures["duration_s"] = stage["duration_s"]
    return {name: value for name, value in figures.items() if value is not None}
