"""Runs and comparisons as tables of pandas."""

from __future__ import annotations

import builtins
import json
from pathlib import Path
from typing import Any

import pandas
import pytest

import shrink
from shrink.base.errors import ResourceError
from tests.report.toys import report


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "report.json").write_text(json.dumps(report()), encoding="utf-8")
    return tmp_path


def test_a_run_is_a_table_of_its_stages(folder: Path) -> None:
    run = shrink.load_run(folder / "a")
    table = run.to_pandas()
    assert isinstance(table, pandas.DataFrame)
    assert list(table.index) == [stage.name for stage in run.stages]
    for stage in run.stages:
        row = table.loc[stage.name]
        assert (row["kind"], row["status"]) == (stage.kind, stage.status)
        for name, value in stage.figures.items():
            assert pandas.isna(row[name]) if value is None else row[name] == value
    assert table["accuracy"].dtype.kind == "f"
    assert table["tflite_bytes"].dtype.kind in "if"


def test_a_comparison_is_a_table_of_its_rows(folder: Path) -> None:
    found = shrink.compare(folder / "a", folder / "b")
    table = found.to_pandas()
    assert list(table.index) == [row.name for row in found.rows]
    assert table["accuracy"].tolist() == [row.figures["accuracy"] for row in found.rows]
    assert "compare.html" not in str(found)  # nothing was written
    assert "more with output=DIR: " in str(found)


def test_without_pandas_the_extra_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: Any, **more: Any) -> Any:
        if name == "pandas":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ResourceError) as caught:
        shrink.load_run(folder / "a").to_pandas()
    assert "pip install 'pandas" in str(caught.value.hint)
