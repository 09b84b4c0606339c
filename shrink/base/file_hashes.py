"""SHA-256 of many files, remembered by name, size, times of change and inode.

A damaged or unwritable memory costs time, never correctness.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from array import array
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from shrink.base.cache import entry_path, keep, key_of
from shrink.base.errors import DataError

_FORMAT = b"shrink fingerprints 3\n"
_KEY, DIGEST_BYTES = 16, 32
_CHUNK = 500
_READ_BYTES = 1 << 20
_MOST_THREADS = 8
# A file changed twice within one tick of the clock looks unchanged: trust only what has settled.
_SETTLED_NS = 2_000_000_000


def hash_files(root: Path, names: Sequence[str], owner: Path) -> bytes:
    """Return the SHA-256 of each file's content, 32 bytes each, in the order of `names`.

    What is remembered takes 48 bytes a file: a key, of its name and of what tells this version of
    it from others, and the hash of its content.

    Args:
        root: the folder that names are relative to, where they are not absolute.
        names: of the files, each once.
        owner: what they belong to; what is known of them is remembered for it.

    Raises:
        DataError: a file cannot be read.
    """
    memory = entry_path("fingerprints", key_of(str(owner)), ".bin")
    known_keys, known_digests = _remembered(memory)
    rows: dict[bytes, int] | None = None  # only where the files are not the ones of last time
    keys, digests, unknown, following = bytearray(), bytearray(), array("q"), 0
    settled_before_ns = time.time_ns() - _SETTLED_NS
    for row, name in enumerate(names):
        stamp = _stamp(place(root, name), settled_before_ns)
        key = bytes(_KEY) if stamp is None else _key(f"{name}\0{stamp}")
        found: int | None = following
        if stamp is None:
            found = None
        elif known_keys[following * _KEY : (following + 1) * _KEY] != key:
            if rows is None:
                starts = range(0, len(known_keys), _KEY)
                rows = {known_keys[start : start + _KEY]: start // _KEY for start in starts}
            found = rows.get(key)
        keys += key
        if found is None:
            unknown.append(row)
            digests += bytes(DIGEST_BYTES)
        else:
            digests += known_digests[found * DIGEST_BYTES : (found + 1) * DIGEST_BYTES]
            following = found + 1
    _read_files(root, names, unknown, digests)
    if keys != known_keys or unknown:
        content = bytes(keys + digests)
        keep(memory, _checksum(content) + content)
    return bytes(digests)


def _remembered(file: Path) -> tuple[bytes, bytes]:
    """Return the keys and the hashes that a file remembers; none where it is missing or damaged."""
    content = b""
    with contextlib.suppress(OSError):
        content = file.read_bytes()
    checksum, body = content[:DIGEST_BYTES], content[DIGEST_BYTES:]
    count, rest = divmod(len(body), _KEY + DIGEST_BYTES)
    if rest or checksum != _checksum(body):
        return b"", b""
    return body[: count * _KEY], body[count * _KEY :]


def _checksum(body: bytes) -> bytes:
    return hashlib.sha256(_FORMAT + body).digest()


def _key(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=_KEY).digest()


def _stamp(path: str, settled_before_ns: int) -> str | None:
    """Return what tells a file from its other versions; None where it changed a moment ago."""
    try:
        status = os.stat(path)  # noqa: PTH116
    except OSError as error:
        raise _unreadable(path, error) from error
    changed = status.st_ctime_ns
    if max(status.st_mtime_ns, changed) >= settled_before_ns:
        return None
    return f"{status.st_size} {status.st_mtime_ns} {changed} {status.st_ino}"


def place(root: Path, name: str) -> str:
    """Return the path of a name, which is relative to `root` or absolute."""
    return name if name.startswith("/") else f"{root}/{name}"


def _read_files(root: Path, names: Sequence[str], rows: Sequence[int], digests: bytearray) -> None:
    """Read the files `rows` of `names`, and put their hashes."""

    def hash_chunk(start: int) -> list[tuple[int, str]]:
        chunk = rows[start : start + _CHUNK]
        return [(row, hash_file(place(root, names[row]))) for row in chunk]

    with ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1)) as pool:
        for found in pool.map(hash_chunk, range(0, len(rows), _CHUNK)):
            for row, digest in found:
                digests[row * DIGEST_BYTES : (row + 1) * DIGEST_BYTES] = bytes.fromhex(digest)


def hash_file(path: str) -> str:
    """Return the SHA-256 of a file's content, in hex.

    Raises:
        DataError: it cannot be read.
    """
    # By descriptor: stream objects take three times as long for small files.
    digest = hashlib.sha256()
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            while chunk := os.read(descriptor, _READ_BYTES):
                digest.update(chunk)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise _unreadable(path, error) from error
    return digest.hexdigest()


def files_under(folder: Path, around: tuple[Path, ...] = ()) -> list[Path]:
    """Return all files in a folder and in the folders in it, linked ones too, sorted.

    Raises:
        DataError: one of the folders cannot be read.
    """
    here = folder.resolve()
    if here in around:  # a link to a folder around it
        return []
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise _unreadable(str(folder), error) from error
    files: list[Path] = []
    for entry in entries:
        if entry.is_dir():
            files += files_under(entry, (*around, here))
        elif entry.is_file():
            files.append(entry)
    return files


def _unreadable(path: str, error: OSError) -> DataError:
    shown = os.fsencode(path).decode("utf-8", "backslashreplace")
    return DataError(f"cannot be read: {error.strerror}", subject=shown)


def hashes_of(root: Path, names: Sequence[str], owner: Path) -> Iterator[str]:
    """Yield what `hash_files` returns, file by file, in hex."""
    digests = hash_files(root, names, owner)
    for start in range(0, len(digests), DIGEST_BYTES):
        yield digests[start : start + DIGEST_BYTES].hex()


def named_hashes(root: Path, names: Sequence[str], owner: Path | None = None) -> Iterator[str]:
    """Yield each file's name with its hash, as one text."""
    pairs = zip(names, hashes_of(root, names, owner or root), strict=True)
    return (f"{name}\0{digest}" for name, digest in pairs)
