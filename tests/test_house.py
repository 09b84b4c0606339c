"""`python -m docs.house` counts what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs import house


def test_counts_of_a_file() -> None:
    text = '# A comment.\ndef f(a: int) -> int:\n    """Add."""\n    return a + 1\n'
    # def f ( a : int ) -> int : "..." return a + 1
    assert dict(house.count(text)) == {
        "tokens": 15,
        "statements": 3,
        "functions": 1,
        "lines": 4,
        "files": 1,
    }


def test_packages_and_total_are_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("shrink/__init__.py", "shrink/data/a.py", "shrink/data/deep/b.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x = 1\n")
    monkeypatch.setattr(house, "ROOT", tmp_path)
    assert house.main() == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows == [
        ["package", "tokens", "statements", "functions", "lines", "files"],
        ["(top)", "3", "1", "0", "1", "1"],
        ["data", "6", "2", "0", "2", "2"],
        ["total", "9", "3", "0", "3", "3"],
    ]
