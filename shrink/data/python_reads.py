"""What a function that gives examples reads: watched while it runs, hashed from then on; light.

Files that Python opens and folders that it lists are seen. What libraries read in C or C++, such as
HDF5 files, `tf.data`'s own readers and data bases, is not: `data.depends` names such files.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from shrink.base import files
from shrink.base.cache import cache_root, entry_path, keep, key_of
from shrink.model.user_modules import code_digest, is_users

_WRITING = os.O_WRONLY | os.O_RDWR
_OF_THE_SYSTEM = ("/proc/", "/dev/", "/sys/")
_IMPORTING = "<frozen importlib"
_LISTED = "/"
"""Ends the names of folders in what is remembered."""


def code_and_place(entry: Path, function: str) -> list[str]:
    """Return what is known of a function before it has run.

    Its place counts, for a function may read what lies beside it.

    Raises:
        ModelError: the file cannot be read.
    """
    return [code_digest(entry), os.path.realpath(entry), function]


def remembered_reads(entry: Path, function: str) -> tuple[list[str], list[str]]:
    """Return the files that a function has read, and the folders that it has listed.

    They are relative to the folder of `entry`, or absolute; none before it has run.
    """
    try:
        recorded = json.loads(_record(entry, function).read_text("utf-8", "surrogateescape"))
        names = sorted(str(name) for name in recorded)
    except (OSError, ValueError, TypeError):
        return [], []
    listed = [name.removesuffix(_LISTED) for name in names if name.endswith(_LISTED)]
    return [name for name in names if not name.endswith(_LISTED)], listed


def folder_digest(folder: Path) -> str:
    """Return a hash of the names in a folder, those that begin with a dot left out."""
    try:
        names = sorted(entry.name for entry in folder.iterdir() if not _is_hidden(entry.name))
    except OSError:
        names = ["", "missing"]
    return hashlib.sha256(os.fsencode("\0".join(names))).hexdigest()


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name == "__pycache__"


@contextlib.contextmanager
def remembering_reads(entry: Path, function: str) -> Iterator[None]:
    """Remember what of the user's own files is opened for reading, or listed, within."""
    with _watching() as seen:
        yield
    folder = os.path.realpath(entry.parent)
    listed = {f"{_name(path, folder)}{_LISTED}" for path in seen.folders}
    # What was read and is gone again cannot be hashed.
    read = {_name(path, folder) for path in seen.files if Path(path).is_file()}
    keep(_record(entry, function), files.encoded(files.json_text(sorted(read | listed))))


def _name(path: str, folder: str) -> str:
    inside = path == folder or path.startswith(f"{folder}/")
    return os.path.relpath(path, folder) if inside else path


def _record(entry: Path, function: str) -> Path:
    return entry_path("reads", key_of(*code_and_place(entry, function)), ".json")


@dataclass(eq=False)
class _Seen:
    files: set[str] = field(default_factory=set)
    folders: set[str] = field(default_factory=set)


class _Watcher:
    """Python's audit hook; there is one in a process, for none can be taken off again."""

    def __init__(self) -> None:
        self.active: list[_Seen] = []
        self._hooked = False

    def start(self) -> _Seen:
        """Watch reads from now on; what is returned collects them."""
        if not self._hooked:
            sys.addaudithook(self)
            self._hooked = True
        seen = _Seen()
        self.active.append(seen)
        return seen

    def __call__(self, event: str, arguments: Sequence[object]) -> None:
        if not self.active or event not in ("open", "os.listdir", "os.scandir"):
            return
        path = _path_of(arguments[0] if arguments else None)
        if path is None or (event == "open" and _writes(*arguments[1:3])) or _is_importing():
            return
        for seen in self.active:
            (seen.files if event == "open" else seen.folders).add(path)


_WATCHER = _Watcher()


@contextlib.contextmanager
def _watching() -> Iterator[_Seen]:
    seen = _WATCHER.start()
    try:
        yield seen
    finally:
        _WATCHER.active.remove(seen)
        own = os.path.realpath(cache_root())
        seen.files = {path for path in seen.files if _is_data(path, own)}
        seen.folders = {path for path in seen.folders if _is_data(path, own)}


def _is_data(path: str, cache: str) -> bool:
    inside = path.startswith((*_OF_THE_SYSTEM, f"{cache}/"))
    return not inside and not path.endswith(".pyc") and is_users(Path(path))


def _path_of(value: object) -> str | None:
    """Return an absolute path; None for a descriptor."""
    if value is None:
        value = "."
    if not isinstance(value, str | bytes | os.PathLike):
        return None
    try:
        return os.path.realpath(os.fsdecode(value))
    except (OSError, ValueError):
        return None


def _writes(mode: object = None, flags: object = 0) -> bool:
    by_mode = isinstance(mode, str) and any(letter in mode for letter in "wax+")
    return by_mode or (isinstance(flags, int) and bool(flags & _WRITING))


def _is_importing() -> bool:
    """Whether the import system asks: what it reads is code, which counts by another way."""
    frame = sys._getframe(2)
    return frame.f_code.co_filename.startswith(_IMPORTING)
