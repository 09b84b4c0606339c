"""A damaged report is refused, or it renders: nothing in between."""

from __future__ import annotations

import copy
import functools
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from shrink.base.errors import InputError
from shrink.contract.result import StepResult
from tests.report.plain import (
    diff_reports,
    read_report,
    render_diff_markdown,
    render_diff_terminal,
    render_markdown,
    render_report,
    shape_problem,
)
from tests.report.toys import failure, outcomes, report, with_result

WRONG: tuple[Any, ...] = (None, "text", -1, 0.5, True, [], [3], {}, {"a": "b"}, {"value": None})


@functools.cache
def rich_report() -> dict[str, Any]:
    train, prune, quantize = outcomes()
    skipped = [{"layer": "conv", "reason": "one channel"}]
    failed = replace(
        quantize,
        status="failed",
        result=StepResult(),
        error=failure(message="no kernel", hint="skip it"),
    )
    stages = [replace(train, status="cached"), with_result(prune, skipped=skipped), failed]
    gates = {
        "accuracy_drop": {"limit": 0.1, "confidence": 0.9, "stage": "prune"},
        "arena_bytes": 1,
    }
    return report(stages, gates)


def paths(value: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        yield (*here, key)
        if isinstance(item, dict | list):
            yield from paths(item, (*here, key))


def damaged(path: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
    for wrong in WRONG:
        broken = copy.deepcopy(rich_report())
        target: Any = broken
        for key in path[:-1]:
            target = target[key]
        target[path[-1]] = wrong
        yield broken
    broken = copy.deepcopy(rich_report())
    target = broken
    for key in path[:-1]:
        target = target[key]
    del target[path[-1]]
    yield broken


def kind_of_place(path: tuple[Any, ...]) -> tuple[Any, ...]:
    """One place of each kind is enough: what holds for one figure holds for its neighbours."""
    figures = {"size", "memory", "delta_previous", "training", "history"}
    return tuple(
        "*" if isinstance(key, int) or (index and path[index - 1] in figures) else key
        for index, key in enumerate(path)
    )


def render_everything(built: dict[str, Any]) -> None:
    console = Console(file=io.StringIO(), width=80)
    render_report(built, console)
    render_markdown(built)
    for diff in (diff_reports(rich_report(), built), diff_reports(built, rich_report())):
        render_diff_terminal(diff, console)
        render_diff_markdown(diff)


def test_shape_problem_finds_nothing_in_what_was_built() -> None:
    assert shape_problem(rich_report()) is None
    assert shape_problem(report([], finals=())) is None
    render_everything(rich_report())


def test_read_report_refuses_or_the_renderers_accept_whatever_is_damaged(tmp_path: Path) -> None:
    places = {kind_of_place(path): path for path in paths(rich_report())}
    refused = rendered = 0
    for path in places.values():
        for broken in damaged(path):
            if shape_problem(broken) is not None:
                refused += 1
                continue
            rendered += 1
            try:
                render_everything(broken)
            except Exception as error:
                pytest.fail(f"{path}: {error!r}")
    assert min(refused, rendered) > 50
    (tmp_path / "report.json").write_text(json.dumps({**rich_report(), "gates": 3}))
    with pytest.raises(InputError, match="gates: expected a list, not 3"):
        read_report(tmp_path)


def test_the_report_imports_nothing_heavy() -> None:
    modules = ", ".join(f"shrink.report.{name}" for name in ("model", "sections", "diff", "config"))
    code = (
        f"import sys, {modules}; "
        "print([m for m in ('rich', 'numpy', 'tensorflow', 'sklearn') if m in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert found.stdout.strip() == "[]"
