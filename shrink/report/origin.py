"""Where a report comes from: when it was made, of which data, recipe and task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from shrink.report.content import Report

Facts = list[tuple[str, str]]
_SPLITS = {"train": "training", "validation": "validation", "test": "test"}
_OF_OUTPUTS = {"loss": "loss", "from_logits": "output is logits"}
_MOST_CLASSES = 20


def measured_on(report: Report) -> str:
    """Return the day on which the report's last stage was measured, or nothing where unknown."""
    times = [(stage.get("measured") or {}).get("at") for stage in report["stages"]]
    return max((str(at) for at in times if at), default="").partition("T")[0]


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
    data = report.get("data")
    if not isinstance(data, Mapping):
        return []
    counts = data.get("examples")
    counts = counts if isinstance(counts, Mapping) else {}
    facts = [("source", data.get("source")), ("path", data.get("path"))]
    facts += [(f"{word} examples", _count(counts.get(key))) for key, word in _SPLITS.items()]
    facts += [("classes", _classes(data.get("classes"))), ("fingerprint", data.get("fingerprint"))]
    return [(name, str(value)) for name, value in facts if value is not None]


def _task(report: Report) -> Facts:
    """Return how outputs were read, per stage where stages differ."""
    stages_of: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for stage in report["stages"]:
        task = (stage.get("details") or {}).get("task")
        if isinstance(task, Mapping):
            facts = tuple(_task_facts(task))
            stages_of.setdefault(facts, []).append(str(stage["name"]))
    if len(stages_of) == 1:
        return list(next(iter(stages_of)))
    named = stages_of.items()
    return [(", ".join(names), "; ".join(": ".join(f) for f in facts)) for facts, names in named]


def _task_facts(task: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Yield loss and form of each output, then the metrics."""
    listed = task.get("outputs")
    outputs = [o for o in listed if isinstance(o, Mapping)] if isinstance(listed, list) else []
    for output in outputs:
        of = f"{output.get('name')}: " if len(outputs) > 1 else ""
        told = {name: output.get(key) for key, name in _OF_OUTPUTS.items()}
        yield from ((of + name, text) for name, text in _texts(told))
    yield from _texts({key: task.get(key) for key in ("metrics", "monitor")})


def _source(report: Report) -> Facts:
    commit = report.get("source")
    return list(_texts(commit)) if isinstance(commit, Mapping) else []


def _texts(values: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    for key, value in values.items():
        if isinstance(value, bool):
            yield str(key), "yes" if value else "no"
        elif isinstance(value, list):
            yield str(key), ", ".join(map(str, value)) or "none"
        elif isinstance(value, str | int | float):
            yield str(key), str(value)


def _count(value: Any) -> str | None:
    return f"{value:,}" if isinstance(value, int) else None


def _classes(value: Any) -> str | None:
    if not isinstance(value, list) or not value:
        return None
    rest = len(value) - _MOST_CLASSES
    shown = [f"{index} {name}" for index, name in enumerate(value[:_MOST_CLASSES])]
    return ", ".join(shown) + (f" and {rest} more" if rest > 0 else "")
