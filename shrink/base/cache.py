"""Where shrink keeps things between runs, and what a run folder is known by."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from shrink.base import files
from shrink.base.errors import ResourceError

REPORT_NAME = "report.json"
"""A run folder's report, which is written last."""


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
            "there is no home folder to keep finished stages in: HOME is not set",
            subject="~/.cache/shrink",
            hint="name a folder with SHRINK_CACHE_DIR",
        ) from error


OBJECTS = "objects"
_DAY_S = 24 * 3600
_SHARE_OF_DISK = 0.25
_SWEPT = "swept"
_HASH = re.compile(rb"[0-9a-f]{64}")


@dataclass(frozen=True)
class Kind:
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
KINDS = {
    "steps": Kind("finished stages", 90, is_large=True),
    "checkpoints": Kind("stages whose run was killed", 7, is_large=True),
    "teachers": Kind("cached teacher outputs", 7, is_large=True),
    "sensitivities": Kind("what pruning each group of channels costs", 7),
    "spool": Kind("decoded examples", 30, is_large=True),
    "records": Kind("unpacked record files", 30, is_large=True),
    "labels": Kind("labels of record files", 90),
    "checked": Kind("images that cannot be used", 90),
    "masks": Kind("the largest classes of masks", 90),
    "splits": Kind("hashes of the examples of each split", 90),
    "fingerprints": Kind("hashes of data files", 90),
    "user-code": Kind("what Python files import and read", 365),
    "inputs": Kind("models and arrays that Python code gave", 90, is_large=True),
    "timings": Kind("how long the last stage of each kind took", 365),
    "lineages": Kind("where artifacts come from", 365),
    FAILED_LOGS: Kind("logs of stages that failed beside no run folder", 30),
}
"""By the name of its folder."""


@dataclass(frozen=True)
class Entry:
    """Something that is kept.

    Attributes:
        kind: a name of `KINDS`.
        path: file or folder.
        bytes: of it and, of a finished stage, of its files; others may use these too.
        unused_s: seconds since its last use.
        objects: hashes of the files in `objects/` that it keeps there.
    """

    kind: str
    path: Path
    bytes: int
    unused_s: float
    objects: frozenset[str] = frozenset()


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


def entries(root: Path, kinds: Collection[str] = tuple(KINDS)) -> list[Entry]:
    """Return all entries of these kinds, the longest unused first."""
    sizes = dict(_objects(root))
    found = [
        _entry(kind, path, sizes)
        for kind in kinds
        for path in _children(root / kind)
        if not path.name.startswith(files.TEMPORARY_PREFIX)
    ]
    return sorted(found, key=lambda entry: -entry.unused_s)


def total_bytes(root: Path) -> int:
    """Return what all entries take on the disk, in bytes; what several share counts once."""
    return sum(_bytes(root / name) for name in (*KINDS, OBJECTS))


def bytes_of(root: Path, chosen: Iterable[Entry]) -> int:
    """Return what some entries take on the disk, in bytes; what several share counts once."""
    chosen, sizes = list(chosen), dict(_objects(root))
    shared = frozenset().union(*(entry.objects for entry in chosen))
    return sum(_bytes(entry.path) for entry in chosen) + sum(sizes[name] for name in shared)


def limit_bytes(root: Path) -> int:
    """Return what the cache may grow to where nothing else is said: a quarter of its disk."""
    return int(shutil.disk_usage(existing(root)).total * _SHARE_OF_DISK)


def outdated(root: Path, *, unused_s: float | None = None, most_bytes: int) -> list[Entry]:
    """Return what has to go: what was not used for long, then the longest unused of the rest.

    Args:
        root: of the cache.
        unused_s: seconds; by default what `KINDS` says.
        most_bytes: what may stay.
    """
    going: list[Entry] = []
    staying: list[Entry] = []
    for entry in entries(root):
        most_s = KINDS[entry.kind].days * _DAY_S if unused_s is None else unused_s
        (going if entry.unused_s > most_s else staying).append(entry)
    used_by = Counter(name for entry in staying for name in entry.objects)
    sizes = dict(_objects(root))
    total = bytes_of(root, staying)
    for entry in (one for one in staying if KINDS[one.kind].is_large):
        if total <= most_bytes:
            break
        used_by -= Counter(entry.objects)
        total -= _bytes(entry.path)
        total -= sum(sizes[name] for name in entry.objects if not used_by[name])
        going.append(entry)
    return going


def remove(root: Path, going: Iterable[Entry]) -> int:
    """Remove entries, and files that none needs any more; return the bytes that became free.

    Nobody else may use the cache meanwhile.
    """
    before = total_bytes(root)
    for entry in going:
        remove_path(entry.path)
    for file in _unneeded(root):
        remove_path(file)
    return before - total_bytes(root)


def freed_bytes(root: Path, going: Iterable[Entry]) -> int:
    """Return the bytes that `remove` would free."""
    paths = {entry.path for entry in going}
    return sum(map(_bytes, [*paths, *_unneeded(root, paths)]))


def _unneeded(root: Path, going: Collection[Path] = ()) -> list[Path]:
    """Return the files in `objects/` that nothing names but what goes."""
    keepers = [path for kind in ("steps", "lineages") for path in _children(root / kind)]
    kept = frozenset().union(*(_named(path) for path in keepers if path not in going))
    folders = _children(root / OBJECTS)
    return [file for folder in folders for file in _children(folder) if file.stem not in kept]


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
    for kind in KINDS:
        files.sweep(root / kind)
    remove(root, outdated(root, most_bytes=limit_bytes(root)))
    with contextlib.suppress(OSError):
        mark.touch()


def unused_s(path: Path) -> float:
    """Return the seconds since anything in a folder, or a file, was last used."""
    return time.time() - max(_status(one).st_mtime for one in (path, *path.rglob("*")))


def _entry(kind: str, path: Path, sizes: dict[str, int]) -> Entry:
    objects = _named(path) & sizes.keys() if kind == "steps" else frozenset()
    size = _bytes(path) + sum(sizes[name] for name in objects)
    return Entry(kind, path, size, unused_s(path), frozenset(objects))


def _named(path: Path) -> frozenset[str]:
    """Return every hash that a file names."""
    with contextlib.suppress(OSError):
        return frozenset(found.decode() for found in _HASH.findall(path.read_bytes()))
    return frozenset()


def _objects(root: Path) -> Iterator[tuple[str, int]]:
    for folder in _children(root / OBJECTS):
        for file in _children(folder):
            yield file.stem, _status(file).st_size


def _children(folder: Path) -> list[Path]:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return list(folder.iterdir())
    return []


def _bytes(path: Path) -> int:
    if path.is_dir() and not path.is_symlink():
        return sum(_bytes(one) for one in _children(path))
    return _status(path).st_size


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


@dataclass(frozen=True)
class CacheEntry:
    """An entry of the cache."""

    kind: str
    key: str
    bytes: int
    unused_s: int


@dataclass(frozen=True)
class CacheEntries:
    """The entries of the cache, or of a kind."""

    path: str
    entries: tuple[CacheEntry, ...]
