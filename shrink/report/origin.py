"""Where a report comes from: when it was made, of which data, recipe and task."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from urllib.parse import quote

from shrink.contract.details import Task
from shrink.contract.report import DataSet, Report

Facts = list[tuple[str, str]]
_SPLITS = {"train": "training", "validation": "validation", "test": "test"}
_MOST_CLASSES = 20


def measured_on(report: Report) -> str:
    """Return the day on which the report's last stage was measured, or nothing where unknown."""
    times = [stage.measured.at or "" for stage in report.stages if stage.measured]
    return max(times, default="").partition("T")[0]


def artifact_link(path: str) -> str:
    """Return the address of an artifact beside the page, or nothing for a path elsewhere."""
    parts = path.split("/")
    return "" if path.startswith("/") or ".." in parts else quote(path, errors="replace")


def origin(report: Report) -> list[tuple[str, Facts]]:
    """Return headings with facts on the data, the task and the recipe, as far as they are known.

    Reports of earlier versions have none of them.
    """
    found = [("Data", _data(report)), ("Task", _task(report)), ("Source", _source(report))]
    return [(title, facts) for title, facts in found if facts]


def _data(report: Report) -> Facts:
    data = report.data or DataSet()
    counts = data.examples or {}
    facts = [("source", data.source), ("path", data.path)]
    facts += [(f"{word} examples", _count(counts.get(key))) for key, word in _SPLITS.items()]
    facts += [("classes", _classes(data.classes)), ("fingerprint", data.fingerprint)]
    return [(name, value) for name, value in facts if value is not None]


def _task(report: Report) -> Facts:
    """Return how outputs were read, per stage where stages differ."""
    stages_of: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for stage in report.stages:
        if stage.told.task is not None:
            stages_of.setdefault(tuple(_task_facts(stage.told.task)), []).append(stage.name)
    if len(stages_of) == 1:
        return list(next(iter(stages_of)))
    named = stages_of.items()
    return [(", ".join(names), "; ".join(": ".join(f) for f in facts)) for facts, names in named]


def _task_facts(task: Task) -> Iterable[tuple[str, str]]:
    """Yield loss and form of each output, then the metrics."""
    for output in task.outputs:
        of = f"{output.name}: " if len(task.outputs) > 1 else ""
        if output.loss is not None:
            yield f"{of}loss", output.loss
        if output.from_logits is not None:
            yield f"{of}output is logits", "yes" if output.from_logits else "no"
    if task.metrics is not None:
        yield "metrics", ", ".join(task.metrics) or "none"
    if task.monitor is not None:
        yield "monitor", task.monitor


def _source(report: Report) -> Facts:
    commit = report.source.commit if report.source else None
    return [] if commit is None else [("commit", commit)]


def _count(value: int | None) -> str | None:
    return None if value is None else f"{value:,}"


def _classes(value: Sequence[str] | None) -> str | None:
    if not value:
        return None
    rest = len(value) - _MOST_CLASSES
    shown = [f"{index} {name}" for index, name in enumerate(value[:_MOST_CLASSES])]
    return ", ".join(shown) + (f" and {rest} more" if rest > 0 else "")
