"""Hashes of files' contents, remembered by name and by what tells a version from others; light."""

from __future__ import annotations

import hashlib
import sys
from array import array
from pathlib import Path

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
        self._places: dict[int, int] | None = None

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

    def put(self, place: int, digest: bytes) -> None:
        """Say what the content of the file that was added as number `place` is."""
        self._digests[place * DIGEST_BYTES : (place + 1) * DIGEST_BYTES] = digest

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
        place = self._place(_key(name))
        if place is None:
            return None
        self._next = place + 1
        if self._stamps[place * _STAMP : (place + 1) * _STAMP] != _hashed(stamp, _STAMP):
            return None
        return bytes(self._digests[place * DIGEST_BYTES : (place + 1) * DIGEST_BYTES])

    def _place(self, key: int) -> int | None:
        if self._next < len(self._keys) and self._keys[self._next] == key:
            return self._next
        if self._places is None:
            self._places = {known: place for place, known in enumerate(self._keys)}
        return self._places.get(key)

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
