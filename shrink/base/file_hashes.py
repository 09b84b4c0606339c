"""SHA-256 of many files, remembered by name, size, times of change and inode.

A damaged or unwritable memory costs time, never correctness.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from array import array
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from shrink.base.cache import entry_path, keep, key_of
from shrink.base.errors import DataError

_FORMAT = b"shrink fingerprints 2\n"
_KEY, _STAMP, DIGEST_BYTES = 8, 16, 32
_RECORD = _KEY + _STAMP + DIGEST_BYTES


class KnownHashes:
    """What is known of some files, 56 bytes each, in the order in which they were added.

    Asked in that order again it only steps on; a name that is not next is looked up.
    """

    def __init__(self) -> None:
        self._keys = array("Q")
        self._stamps = bytearray()
        self._digests = bytearray()
        self._next = 0
        self._indices: dict[int, int] | None = None

    def add(self, name: str, stamp: str | None, digest: bytes | None) -> None:
        """Remember a file.

        Args:
            name: of the file.
            stamp: what tells this version of it from others; None where nothing can.
            digest: the SHA-256 of its content, 32 bytes; None where `put` will say.
        """
        self._keys.append(_key(name))
        self._stamps += bytes(_STAMP) if stamp is None else _hashed(stamp, _STAMP)
        self._digests += bytes(DIGEST_BYTES) if digest is None else digest

    def put(self, index: int, digest: bytes) -> None:
        """Say what the content of the file that was added as number `index` is."""
        self._digests[index * DIGEST_BYTES : (index + 1) * DIGEST_BYTES] = digest

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def digests(self) -> bytes:
        """The SHA-256 of each file's content, 32 bytes each, in the order they were added."""
        return bytes(self._digests)

    def find(self, name: str, stamp: str | None) -> bytes | None:
        """Return the hash of this version of a file, or None where it is not known."""
        if stamp is None:
            return None
        index = self._index(_key(name))
        if index is None:
            return None
        self._next = index + 1
        if self._stamps[index * _STAMP : (index + 1) * _STAMP] != _hashed(stamp, _STAMP):
            return None
        return bytes(self._digests[index * DIGEST_BYTES : (index + 1) * DIGEST_BYTES])

    def _index(self, key: int) -> int | None:
        if self._next < len(self._keys) and self._keys[self._next] == key:
            return self._next
        if self._indices is None:
            self._indices = {known: index for index, known in enumerate(self._keys)}
        return self._indices.get(key)

    def content(self) -> bytes:
        """Return all of it as the content of a file, with a checksum."""
        body = self._keys.tobytes() + self._stamps + self._digests
        return _checksum(body) + body


def read_known_hashes(file: Path) -> KnownHashes:
    """Return what a file remembers; nothing where it is missing or damaged."""
    known = KnownHashes()
    try:
        content = file.read_bytes()
    except OSError:
        return known
    body = memoryview(content)[DIGEST_BYTES:]
    if len(body) % _RECORD or content[:DIGEST_BYTES] != _checksum(body):
        return known
    count = len(body) // _RECORD
    known._keys.frombytes(body[: count * _KEY])
    known._stamps += body[count * _KEY : count * (_KEY + _STAMP)]
    known._digests += body[count * (_KEY + _STAMP) :]
    return known


def _checksum(body: bytes | bytearray | memoryview) -> bytes:
    digest = hashlib.sha256(_FORMAT + sys.byteorder.encode())
    digest.update(body)
    return digest.digest()


def _key(name: str) -> int:
    return int.from_bytes(_hashed(name, _KEY), "little")


def _hashed(text: str, size: int) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=size).digest()


_CHUNK = 500
_READ_BYTES = 1 << 20
_MOST_THREADS = 8
# A file changed twice within one tick of the clock looks unchanged: trust only what has settled.
_SETTLED_NS = 2_000_000_000


def hash_files(root: Path, names: Sequence[str], owner: Path) -> bytes:
    """Return the SHA-256 of each file's content, 32 bytes each, in the order of `names`.

    Args:
        root: the folder that names are relative to, where they are not absolute.
        names: of the files, each once.
        owner: what they belong to; what is known of them is remembered for it.

    Raises:
        DataError: a file cannot be read.
    """
    memory = entry_path("fingerprints", key_of(str(owner)), ".bin")
    known, current, unknown = read_known_hashes(memory), KnownHashes(), array("q")
    settled_before_ns = time.time_ns() - _SETTLED_NS
    for row, name in enumerate(names):
        stamp = _stamp(place(root, name), settled_before_ns)
        digest = known.find(name, stamp)
        current.add(name, stamp, digest)
        if digest is None:
            unknown.append(row)
    _read_files(root, names, unknown, current)
    if unknown or len(current) != len(known):
        keep(memory, current.content())
    return current.digests


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


def _read_files(root: Path, names: Sequence[str], rows: Sequence[int], hashes: KnownHashes) -> None:
    """Read the files `rows` of `names`, and put their hashes."""

    def hash_chunk(start: int) -> list[tuple[int, str]]:
        chunk = rows[start : start + _CHUNK]
        return [(row, hash_file(place(root, names[row]))) for row in chunk]

    with ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1)) as pool:
        for digests in pool.map(hash_chunk, range(0, len(rows), _CHUNK)):
            for row, digest in digests:
                hashes.put(row, bytes.fromhex(digest))


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
