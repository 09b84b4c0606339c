"""Whole files or none; those that speak of each other change together or not at all."""

from __future__ import annotations

import errno
import hashlib
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shrink.base import files
from shrink.base.errors import ResourceError


def leftovers(folder: Path) -> list[str]:
    return [p.name for p in folder.iterdir() if p.name.startswith(files.TEMPORARY_PREFIX)]


def test_write_text_replaces_a_file_and_leaves_nothing_behind(tmp_path: Path) -> None:
    target = tmp_path / "sub" / "file.txt"
    files.write_text(target, "one")
    files.write_text(target, "zwei ä")
    assert target.read_text(encoding="utf-8") == "zwei ä"
    assert leftovers(target.parent) == []


def test_replacing_keeps_the_old_file_when_writing_fails(tmp_path: Path) -> None:
    target = tmp_path / "file.txt"
    target.write_text("old", encoding="utf-8")
    with pytest.raises(RuntimeError), files.replacing(target) as temporary:  # noqa: PT012
        temporary.write_text("half", encoding="utf-8")
        raise RuntimeError
    assert target.read_text(encoding="utf-8") == "old"
    assert leftovers(tmp_path) == []


def test_write_json_refuses_nan(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        files.write_json(tmp_path / "a.json", {"a": float("nan")})
    assert list(tmp_path.iterdir()) == []


def test_write_bytes_names_the_file_when_the_disk_is_full(tmp_path: Path) -> None:
    # RLIMIT_FSIZE cannot be lifted again, so the limit is set in a child.
    code = (
        "import resource, signal, sys; from pathlib import Path; from shrink.base import files\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, (1000, {resource.RLIM_INFINITY}))\n"
        "try: files.write_bytes(Path(sys.argv[1]), bytes(5000))\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    target = tmp_path / "big.bin"
    done = subprocess.run(
        [sys.executable, "-c", code, str(target)], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("ResourceError")
    assert "big.bin" in done.stdout
    assert not target.exists()
    assert leftovers(tmp_path) == []


def test_write_text_refuses_a_file_in_place_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("file", encoding="utf-8")
    with pytest.raises(ResourceError, match="cannot write"):
        files.write_text(tmp_path / "a" / "b", "x")


def test_a_file_takes_no_folders_place(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "notes").write_text("kept")
    with pytest.raises(ResourceError, match="directory"):
        files.write_text(tmp_path / "target", "new")
    assert (tmp_path / "target" / "notes").read_text() == "kept"
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


def test_sha256_of_a_folder_depends_on_names_and_contents(tmp_path: Path) -> None:
    for name in ("one", "two", "three"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f").write_text("x", encoding="utf-8")
    (tmp_path / "three" / "f").rename(tmp_path / "three" / "g")
    one, two, three = (files.sha256(tmp_path / name) for name in ("one", "two", "three"))
    assert one == two != three
    (tmp_path / "two" / "f").write_text("y", encoding="utf-8")
    assert files.sha256(tmp_path / "two") != one


def test_sweep_removes_only_temporaries(tmp_path: Path) -> None:
    (tmp_path / f"{files.TEMPORARY_PREFIX}abc").mkdir()
    (tmp_path / "kept").mkdir()
    files.remove_leftovers(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["kept"]


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


def test_write_together_copies_to_a_subfolder_on_another_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.replace

    def replace(path: Path, target: Path) -> Path:
        if target.parent.name == "artifacts" and path.parent.parent != target.parent:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        return rename(path, target)

    monkeypatch.setattr(Path, "replace", replace)
    files.write_together(tmp_path, {"artifacts/a": "model", "b": "report"})
    assert (tmp_path / "artifacts" / "a").read_text() == "model"
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["a", "artifacts", "b"]


def test_write_together_changes_nothing_when_one_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old", encoding="utf-8")
    seen: list[str] = []
    with pytest.raises(UnicodeEncodeError):
        files.write_together(tmp_path, {"a": "new", "b": "\ud800"}, lambda: seen.append("called"))
    assert seen == []
    assert [(p.name, p.read_text(encoding="utf-8")) for p in tmp_path.iterdir()] == [("a", "old")]


def test_replacing_a_folder_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "old").touch()
    with files.replacing(tmp_path / "target") as temporary:
        temporary.mkdir()
        (temporary / "new").touch()
    assert [p.name for p in tmp_path.iterdir()] == ["target"]
    assert [p.name for p in (tmp_path / "target").iterdir()] == ["new"]


def test_sweep_leaves_a_temporary_that_is_in_use(tmp_path: Path) -> None:
    with files.replacing(tmp_path / "target") as temporary:
        temporary.write_text("whole", encoding="utf-8")
        files.remove_leftovers(tmp_path)
    assert (tmp_path / "target").read_text(encoding="utf-8") == "whole"


def test_sweep_removes_the_folder_that_a_killed_process_left(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys; from pathlib import Path; from shrink.base import files\n"
        "with files.replacing(Path(sys.argv[1]) / 'target') as temporary:\n"
        "    temporary.touch(); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", script, tmp_path], check=False)
    assert len(list(tmp_path.iterdir())) == 1
    files.remove_leftovers(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def settled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that counts as large, and as unchanged for a while."""
    monkeypatch.setattr(files, "_LARGE_BYTES", 1)
    monkeypatch.setattr(files, "_SETTLED_NS", 0)
    path = tmp_path / "file"
    path.write_bytes(b"one")
    return path


def test_sha256_reads_an_unchanged_file_once(
    settled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = files.sha256(settled)
    assert first == hashlib.sha256(b"one").hexdigest()
    monkeypatch.delattr(hashlib, "file_digest")  # what is read now cannot be hashed
    assert files.sha256(settled) == first


@pytest.mark.parametrize("how", ["in place", "replaced", "old times"])
def test_sha256_reads_a_changed_file_again(how: str, settled: Path) -> None:
    files.sha256(settled)
    was = settled.stat()
    if how == "replaced":
        settled.with_suffix(".new").write_bytes(b"two")
        settled.with_suffix(".new").replace(settled)
    else:
        time.sleep(0.02)  # a tick of the clock of files
        settled.write_bytes(b"two")
    if how == "old times":  # the time of the change itself cannot be set
        os.utime(settled, ns=(was.st_atime_ns, was.st_mtime_ns))
    assert files.sha256(settled) == hashlib.sha256(b"two").hexdigest()


def test_a_stamp_is_not_of_a_file_that_was_just_written(
    settled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert files.Stamp.of(settled) is not None
    monkeypatch.setattr(files, "_SETTLED_NS", 10**12)
    assert files.Stamp.of(settled) is None
