"""The only module that opens files for writing: whole files or none, whatever kills the process."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import io
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from shrink.base.errors import ResourceError
from shrink.base.foreign import JsonObject

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What the system says where there is no room for more."""
TEMPORARY_PREFIX = ".shrink-tmp-"
FOLDER = os.O_RDONLY | os.O_DIRECTORY
"""How a folder is opened to be locked."""


@contextlib.contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """Yield a temporary path beside `target`; on success it is synced and renamed over it.

    Args:
        target: the file or folder to (re)place; a file takes no folder's place. Its parent is
            created.

    Raises:
        ResourceError: the disk is full, a size limit is reached, the place is not writable, or a
            folder lies where a file is to be.
    """
    with typed_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    with staging(target.parent) as folder, typed_errors(target):
        temporary = folder / target.name
        yield temporary
        sync(temporary)
        if target.is_dir() and not target.is_symlink():
            if not temporary.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            # A folder cannot be renamed over another; this one's content goes with `folder`.
            target.rename(folder / f"before-{target.name}")
        temporary.replace(target)
        _sync_folder(target.parent)


@contextlib.contextmanager
def appending(target: Path, keep_bytes: int) -> Iterator[BinaryIO]:
    """Yield a stream that writes after the first `keep_bytes` of a file; the rest of it is cut.

    What is written is synced at the end. Killed before, the file holds some of it: for files
    whose good length is kept elsewhere.

    Raises:
        ResourceError: the disk is full, or the place is not writable.
    """
    with typed_errors(target):
        target.touch()
        with target.open("r+b") as stream:
            stream.truncate(keep_bytes)
            stream.seek(keep_bytes)
            yield stream
        sync(target)


def open_to_append(target: Path) -> BinaryIO:
    """Return a stream that writes at the end of a file, at once; nothing is synced.

    Raises:
        ResourceError: the disk is full, or the place is not writable.
    """
    with typed_errors(target):
        return io.FileIO(target, "a")


@contextlib.contextmanager
def locked(
    path: Path,
    how: int = fcntl.LOCK_EX,
    waiting: Callable[[], None] | None = None,
    opened: int = os.O_RDWR | os.O_CREAT,
) -> Iterator[None]:
    """Hold a lock, which the kernel releases when the process dies.

    Args:
        path: of a lock file, or with `opened=FOLDER` of the folder to lock.
        how: flags of `flock`.
        waiting: called before this process waits for another.
        opened: flags of `os.open`.

    Raises:
        BlockingIOError: another process holds it, and `how` says not to wait.
        ResourceError: it cannot be opened.
    """
    with typed_errors(path):
        descriptor = os.open(path, opened | os.O_CLOEXEC, 0o644)
    try:
        if waiting is not None:
            try:
                fcntl.flock(descriptor, how | fcntl.LOCK_NB)
            except BlockingIOError:
                waiting()
        fcntl.flock(descriptor, how)
        yield
    finally:
        os.close(descriptor)


def write_bytes(target: Path, content: bytes) -> None:
    """Write `content` to `target`, atomically."""
    with replacing(target) as temporary:
        temporary.write_bytes(content)


def write_text(target: Path, content: str) -> None:
    """Write `content` to `target` as UTF-8, atomically."""
    write_bytes(target, encoded(content))


def encoded(text: str) -> bytes:
    """Return text as UTF-8; names of files keep the bytes that the locale could not read."""
    return text.encode("utf-8", "surrogateescape")


def in_memory(content: bytes = b"") -> int:
    """Return the descriptor of a file that no disk can be too full for, at its end."""
    descriptor = os.memfd_create("shrink")
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
    return descriptor


def write_json(target: Path, value: object) -> None:
    """Write `value` as strict JSON (a NaN is an error), atomically."""
    write_text(target, json_text(value))


def read_mapping(path: Path) -> JsonObject:
    """Return the mapping that a JSON file holds; empty where there is none to be had."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def json_text(value: object) -> str:
    """Return `value` as strict JSON (a NaN is an error) that ends in a line break."""
    return json.dumps(value, indent=2, allow_nan=False) + "\n"


def write_together(
    folder: Path,
    contents: Mapping[str, str | bytes | Path],
    before: Callable[[], None] | None = None,
) -> None:
    """Write files that belong together, so that a full disk changes none of them.

    Args:
        folder: where they go.
        contents: by file name, at most one folder deep: UTF-8 text, bytes, or a file to copy. All
            are on the disk before the first takes its place; they then do so in this order.
        before: called when nothing but the renaming is left.
    """
    remove_leftovers(folder)
    with staging(folder) as staged, typed_errors(folder):
        for name, content in contents.items():
            (staged / name).parent.mkdir(exist_ok=True)
            if isinstance(content, Path):
                shutil.copyfile(content, staged / name)
            else:
                text = encoded(content) if isinstance(content, str) else content
                (staged / name).write_bytes(text)
        sync(staged)
        if before is not None:
            before()
        for name in contents:
            (folder / name).parent.mkdir(exist_ok=True)
            try:
                (staged / name).replace(folder / name)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                with replacing(folder / name) as near:  # a subfolder that lies on another disk
                    shutil.copyfile(staged / name, near)
        _sync_folder(folder)


def make_folder(path: Path) -> None:
    """Create a folder and its parents, and check that it can be written to."""
    with typed_errors(path):
        path.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(prefix=TEMPORARY_PREFIX, dir=path).close()


def sync(path: Path) -> None:
    """Flush a file, or every file of a folder, to the disk."""
    files = [p for p in path.rglob("*") if p.is_file()] if path.is_dir() else [path]
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove_leftovers(folder: Path) -> None:
    """Remove temporaries that a killed run left in `folder` itself; those in use stay."""
    for path in folder.glob(f"{TEMPORARY_PREFIX}*"):
        if path.is_symlink() or not path.is_dir():
            path.unlink(missing_ok=True)
            continue
        how = fcntl.LOCK_EX | fcntl.LOCK_NB
        with contextlib.suppress(OSError, ResourceError), locked(path, how, opened=FOLDER):
            shutil.rmtree(path, ignore_errors=True)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, or of a folder's relative names and contents, in hex.

    A large file is read once in a process for as long as it stays as it is (`Stamp`).
    """
    if path.is_dir():
        digest = hashlib.sha256()
        for file in sorted(p for p in path.rglob("*") if p.is_file()):
            digest.update(f"{file.relative_to(path)}\0{sha256(file)}\n".encode())
        return digest.hexdigest()
    with path.open("rb") as stream:
        stamp = Stamp.of(stream.fileno())
        if stamp is not None and (known := _DIGESTS.get(stamp)) is not None:
            return known
        found = hashlib.file_digest(stream, "sha256").hexdigest()
        # What was written to while it was read is another file now.
        if stamp is not None and Stamp.of(stream.fileno()) == stamp:
            _DIGESTS[stamp] = found
        return found


def json_sha256(value: object) -> str:
    """Return the SHA-256, in hex, of plain data, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


_LARGE_BYTES = 1 << 22
_SETTLED_NS = 2_000_000_000
"""A clock of files may tick so slowly that two writes within a tick leave the same times."""


@dataclass(frozen=True)
class Stamp:
    """What tells that a file is the one that was read: it, its length and when it was changed."""

    device: int
    inode: int
    size: int
    modified_ns: int
    changed_ns: int

    @classmethod
    def of(cls, file: int | Path) -> Stamp | None:
        """Return a file's stamp; None where it is small, or has been changed in these seconds.

        Args:
            file: a descriptor, or its path.
        """
        now = file.stat() if isinstance(file, Path) else os.fstat(file)
        last = max(now.st_mtime_ns, now.st_ctime_ns)
        if now.st_size < _LARGE_BYTES or abs(time.time_ns() - last) < _SETTLED_NS:
            return None
        return cls(now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns)


_DIGESTS: dict[Stamp, str] = {}


def size_bytes(path: Path) -> int:
    """Return the size in bytes of a file, or the sum over a folder's files."""
    if path.is_dir():
        return sum(p.stat().st_size for p in path.rglob("*") if p.is_file())
    return path.stat().st_size


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:  # some file systems refuse to sync a folder; the rename still stands
        pass
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def staging(parent: Path) -> Iterator[Path]:
    """Yield a new folder in `parent`, locked for as long as it is in use, then remove it."""
    with contextlib.ExitStack() as held:
        folder = None
        while folder is None or not folder.is_dir():  # a sweep came before the lock
            with typed_errors(parent):
                folder = Path(tempfile.mkdtemp(prefix=TEMPORARY_PREFIX, dir=parent))
            with contextlib.suppress(ResourceError):
                held.enter_context(locked(folder, opened=FOLDER))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def typed_errors(target: Path | str) -> Iterator[None]:
    """Raise `ResourceError` with this subject where the system refuses to write."""
    try:
        yield
    except OSError as error:
        if error.errno is None:  # a library's own, such as h5py's: not the system's word
            raise
        if error.errno in FULL:
            raise ResourceError(
                f"cannot write: {error.strerror}",
                subject=target,
                hint="free some space, or choose another place with --output or SHRINK_CACHE_DIR",
            ) from error
        raise ResourceError(
            f"cannot write here: {error.strerror}",
            subject=target,
            hint="choose another place with --output, or of the cache with SHRINK_CACHE_DIR",
        ) from error
