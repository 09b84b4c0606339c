"""Files that speak of each other change together or not at all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from shrink.base import files


def test_write_together_calls_before_while_the_old_files_stand(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old", encoding="utf-8")
    seen: list[str] = []

    def before() -> None:
        seen.append((tmp_path / "a").read_text(encoding="utf-8"))

    files.write_together(tmp_path, {"a": "new ä", "b": "new"}, before)
    assert seen == ["old"]
    assert {p.name: p.read_text(encoding="utf-8") for p in tmp_path.iterdir()} == {
        "a": "new ä", "b": "new",
    }  # fmt: skip


def test_write_together_changes_nothing_when_one_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old", encoding="utf-8")
    seen: list[str] = []
    with pytest.raises(UnicodeEncodeError):
        files.write_together(tmp_path, {"a": "new", "b": "\ud800"}, lambda: seen.append("called"))
    assert seen == []
    assert [(p.name, p.read_text(encoding="utf-8")) for p in tmp_path.iterdir()] == [("a", "old")]


def test_copy_replaces_a_folder_and_leaves_nothing_behind(tmp_path: Path) -> None:
    for name, content in (("source", "new"), ("target", "old")):
        (tmp_path / name).mkdir()
        (tmp_path / name / content).write_text(content, encoding="utf-8")
    files.copy(tmp_path / "source", tmp_path / "target")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["source", "target"]
    assert [p.name for p in (tmp_path / "target").iterdir()] == ["new"]


def test_sweep_removes_a_temporary_file(tmp_path: Path) -> None:
    (tmp_path / f"{files.TEMPORARY_PREFIX}x").touch()
    files.sweep(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_sweep_leaves_a_temporary_that_is_in_use(tmp_path: Path) -> None:
    with files.replacing(tmp_path / "target") as temporary:
        temporary.write_text("whole", encoding="utf-8")
        files.sweep(tmp_path)
    assert (tmp_path / "target").read_text(encoding="utf-8") == "whole"


def test_sweep_removes_the_folder_that_a_killed_process_left(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys; from pathlib import Path; from shrink.base import files\n"
        "with files.replacing(Path(sys.argv[1]) / 'target') as temporary:\n"
        "    temporary.touch(); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", script, tmp_path], check=False)
    assert len(list(tmp_path.iterdir())) == 1
    files.sweep(tmp_path)
    assert list(tmp_path.iterdir()) == []
