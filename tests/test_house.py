"""Files and functions stay small, typed and described, as `python -m docs.house` counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs import house


def test_the_house_is_within_its_bounds(capsys: pytest.CaptureFixture[str]) -> None:
    assert house.main() == 0, capsys.readouterr().out


def test_what_is_beyond_a_bound_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "shrink").mkdir()
    for name, count in (("long.py", 451), ("short.py", 3)):
        text = 'def f() -> None:\n    """Do nothing."""\n' + "\n" * (count - 2)
        (tmp_path / "shrink" / name).write_text(text)
    (tmp_path / "shrink" / "bare.py").write_text("def g(a):\n    return a\n")
    monkeypatch.setattr(house, "ROOT", tmp_path)
    assert house.main() == 1
    beyond = [one for one in capsys.readouterr().out.splitlines() if one.startswith("BEYOND")]
    assert beyond == [
        "BEYOND: a file has more than 450 lines",
        "BEYOND: a function does not say what it returns",
        "BEYOND: a public function has no docstring",
    ]
