"""The cache folder and its kinds of entries, and the names of files in a run folder."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from shrink.base import files
from shrink.base.errors import ResourceError

REPORT_NAME = "report.json"
"""A run folder's report, which is written last."""
RESOLVED_NAME = "recipe.resolved.yaml"
"""A run folder's recipe, with all that it left open."""


def cache_root() -> Path:
    """Return the cache folder, which need not exist.

    It is $SHRINK_CACHE_DIR, else $XDG_CACHE_HOME/shrink, else ~/.cache/shrink. A relative
    $XDG_CACHE_HOME is ignored, as the XDG base directory specification asks.
    """
    if own := os.environ.get("SHRINK_CACHE_DIR"):
        return (Path(own).expanduser() if own.startswith("~/") else Path(own)).resolve()
    shared = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (shared if shared.is_absolute() else _home() / ".cache") / "shrink"


def existing(path: Path) -> Path:
    """Return a path, or the nearest folder above it that exists: what its disk is asked by."""
    return next(place for place in (path, *path.parents) if place.exists())


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError as error:
        raise ResourceError(
            "no folder for the cache: HOME is not set",
            subject="~/.cache/shrink",
            hint="name a folder with SHRINK_CACHE_DIR",
        ) from error


_DAY_S = 24 * 3600
_SHARE_OF_DISK = 0.25
_SWEPT = "swept"


@dataclass(frozen=True)
class EntryKind:
    """A kind of entry.

    Attributes:
        holds: what it is, for people.
        days: how long an entry is kept after its last use.
        is_large: whether what was not used for longest goes where the cache is too large.
    """

    holds: str
    days: int
    is_large: bool = False


FAILED_LOGS = "logs"  # of runs that leave one file and no run folder
ENTRY_KINDS = {
    "steps": EntryKind("finished stages", 90, is_large=True),
    "checkpoints": EntryKind("stages whose run was killed", 7, is_large=True),
    "teachers": EntryKind("cached teacher outputs", 7, is_large=True),
    "sensitivities": EntryKind("sensitivity of channel groups", 7),
    "spool": EntryKind("decoded examples", 30, is_large=True),
    "records": EntryKind("unpacked record files", 30, is_large=True),
    "labels": EntryKind("labels of record files", 90),
    "checked": EntryKind("images that cannot be used", 90),
    "masks": EntryKind("the largest classes of masks", 90),
    "splits": EntryKind("hashes of the examples of each split", 90),
    "fingerprints": EntryKind("hashes of data files", 90),
    "user-code": EntryKind("what Python files import and read", 365),
    "inputs": EntryKind("models and arrays that Python code gave", 90, is_large=True),
    "timings": EntryKind("how long the last stage of each kind took", 365),
    "lineages": EntryKind("where artifacts come from", 365),
    "earlier-runs": EntryKind("splits and scores of runs that later runs start from", 365),
    FAILED_LOGS: EntryKind("logs of failed stages without a run folder", 30),
}
"""By the name of its folder."""


@dataclass(frozen=True)
class Entry:
    """Something that is kept.

    Attributes:
        kind: a name of `ENTRY_KINDS`.
        path: file or folder.
        bytes: of it; files of a finished stage may be those of another entry, too.
        unused_s: seconds since its last use.
    """

    kind: str
    path: Path
    bytes: int
    unused_s: float


def key_of(*parts: str) -> str:
    """Return the SHA-256, in hex, of texts: the name of an entry that they decide."""
    return hashlib.sha256(files.encoded("\0".join(parts))).hexdigest()


def entry_path(kind: str, key: str, suffix: str = "") -> Path:
    """Return where an entry is, or may be put; that it is looked for counts as its use."""
    path = cache_root() / kind / f"{key}{suffix}"
    mark_used(path)
    return path


def lineage_path(root: Path, identity: str) -> Path:
    """Return where the cache has the record of an artifact (`shrink.contract.usage.identity`)."""
    path = root / "lineages" / f"{identity}.json"
    mark_used(path)
    return path


def keep(path: Path, content: bytes) -> None:
    """Write an entry whole; where that cannot be, it costs time only, the next time."""
    with contextlib.suppress(OSError, ResourceError):
        files.write_bytes(path, content)


def mark_used(path: Path) -> None:
    """Let an entry count as used now; nothing happens where there is none."""
    with contextlib.suppress(OSError):
        if time.time() - path.stat().st_mtime > _DAY_S:  # to the day is enough
            os.utime(path)


def entries(root: Path, kinds: Collection[str] = tuple(ENTRY_KINDS)) -> list[Entry]:
    """Return all entries of these kinds, the longest unused first."""
    found = [
        Entry(kind, path, bytes_of([path]), unused_s(path))
        for kind in kinds
        for path in _children(root / kind)
    ]
    return sorted(found, key=lambda entry: -entry.unused_s)


def total_bytes(root: Path) -> int:
    """Return what all entries take on the disk, in bytes; what several share counts once."""
    return bytes_of(root / kind for kind in ENTRY_KINDS)


def bytes_of(paths: Iterable[Path]) -> int:
    """Return what files and folders take on the disk, in bytes; what several share counts once."""
    return sum(_sizes(paths).values())


def limit_bytes(root: Path) -> int:
    """Return what the cache may grow to where nothing else is said: a quarter of its disk."""
    return int(shutil.disk_usage(existing(root)).total * _SHARE_OF_DISK)


def outdated(root: Path, *, unused_s: float | None = None, most_bytes: int) -> list[Entry]:
    """Return what has to go: what was not used for long, then the longest unused of the rest.

    Args:
        root: of the cache.
        unused_s: seconds; by default what `ENTRY_KINDS` says.
        most_bytes: what may stay.
    """
    going, counted, total = list[Entry](), set[tuple[int, int]](), 0
    # Small entries stay; of the large ones those that were used last, as long as there is room.
    for entry in sorted(
        entries(root), key=lambda one: (ENTRY_KINDS[one.kind].is_large, one.unused_s)
    ):
        kind = ENTRY_KINDS[entry.kind]
        if entry.unused_s > (kind.days * _DAY_S if unused_s is None else unused_s):
            going.append(entry)
            continue
        sizes = _sizes([entry.path])
        total += sum(size for file, size in sizes.items() if file not in counted)
        counted |= sizes.keys()
        if kind.is_large and total > most_bytes:
            going.append(entry)
    return sorted(going, key=lambda entry: -entry.unused_s)


def remove(root: Path, going: Iterable[Entry]) -> int:
    """Remove entries; return the bytes that became free. Nobody else may use them meanwhile."""
    before = total_bytes(root)
    for entry in going:
        remove_path(entry.path)
    return before - total_bytes(root)


def freed_bytes(root: Path, going: Iterable[Entry]) -> int:
    """Return the bytes that `remove` would free: what other entries share stays."""
    removed = {entry.path for entry in going}
    paths = [path for kind in ENTRY_KINDS for path in _children(root / kind)]
    return bytes_of(paths) - bytes_of(path for path in paths if path not in removed)


def remove_path(path: Path) -> None:
    """Remove a file, a link or a folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def sweep_daily(root: Path) -> None:
    """Remove what has to go by itself, once a day. Nobody else may use the cache meanwhile."""
    mark = root / _SWEPT
    with contextlib.suppress(OSError):
        if time.time() - mark.stat().st_mtime < _DAY_S:
            return
    remove(root, outdated(root, most_bytes=limit_bytes(root)))
    with contextlib.suppress(OSError):
        mark.touch()


def unused_s(path: Path) -> float:
    """Return the seconds since anything in a folder, or a file, was last used."""
    return time.time() - max(_status(one).st_mtime for one in (path, *path.rglob("*")))


def _sizes(paths: Iterable[Path]) -> dict[tuple[int, int], int]:
    """Return the sizes of files and of those in folders, by device and inode."""
    found = (_status(file) for path in paths for file in (path, *path.rglob("*")))
    return {(s.st_dev, s.st_ino): s.st_size for s in found if not stat.S_ISDIR(s.st_mode)}


def _children(folder: Path) -> list[Path]:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return [p for p in folder.iterdir() if not p.name.startswith(files.TEMPORARY_PREFIX)]
    return []


def _status(path: Path) -> os.stat_result:
    """Return size and times of a file; zeros where a run has just removed it."""
    with contextlib.suppress(FileNotFoundError):
        return path.lstat()
    return os.stat_result([0] * 10)


@dataclass(frozen=True)
class CacheKind:
    """Entries of one kind in the cache; `unused_s` of the one that was not used for longest."""

    kind: str
    holds: str
    entries: int
    bytes: int
    unused_s: int
    kept_days: int


@dataclass(frozen=True)
class CacheSize:
    """What the cache holds."""

    path: str
    bytes: int
    limit_bytes: int
    kinds: tuple[CacheKind, ...]
