"""The fingerprint of a data set.

Content hashes of images are remembered in the cache folder by path, size, times of change and
inode. A damaged or unwritable memory costs time, never correctness.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import itertools
import os
import sys
import time
from array import array
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from shrink.base.cache import entry_path, keep
from shrink.base.errors import DataError
from shrink.data.box_files import read_boxes
from shrink.data.config import (
    BUILT_IN,
    NO_DATA,
    SOURCES,
    DataConfig,
    added_source,
    ask_source,
    source_code,
)
from shrink.data.folders import CLIPS, IMAGES, TEXTS, Names, find_images, shown
from shrink.data.pairs import find_pairs
from shrink.data.python_reads import code_and_place, folder_digest, remembered_reads
from shrink.data.shards import find_shards, prepared_folder
from shrink.data.table import read_listing

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


def fingerprint(config: DataConfig) -> str:
    """Return the SHA-256, in hex, of what the source of a `data` section holds.

    Names of classes and images count as well as their contents, and of shards their splits and
    their order; the place does not, so data may be moved as a whole. How the data is split and
    transformed is not part of it, but a vocabulary that is named is. Of source python the place
    counts, and with it the user's own modules, the files that the function has opened so far, and
    those of `data.depends`. Of a source that another package adds, its version and its sources
    count.

    Raises:
        DataError: nothing is there, or it cannot be read.
        RecipeError: the package that adds the source cannot be imported.
    """
    own = _fingerprint(config)
    if config.tokens is None or config.tokens.vocabulary is None:
        return own
    vocabulary = Path(config.tokens.vocabulary).expanduser().absolute()
    return _hash(["vocabulary", _hash_file(str(vocabulary)), own])


def _fingerprint(config: DataConfig) -> str:
    """Return what `fingerprint` does, but for what the recipe names beside `data.path`."""
    if config.source in BUILT_IN:
        return _hash([_built_in(config.source)])
    if config.source == NO_DATA:
        return _hash([NO_DATA])
    text = config.path or ""
    if config.source == "tfrecord":
        return _hash(["tfrecord", *_shard_digests(config)])
    if config.source == "tfds":
        return _hash(["tfds", *_prepared_digests(Path(text).expanduser().absolute())])
    if config.source == "python":
        text, _, function = text.rpartition(":")
        return _hash(
            ["python", *_function_digests(Path(text).expanduser().absolute(), function, config)]
        )
    if config.source not in SOURCES:
        code = source_code(config.source).values()
        return _hash([config.source, *code, *_added_digests(config)])
    path = Path(text).expanduser().absolute()
    _check_there(path)
    if config.source == "lmdb" and path.is_dir():
        return _hash(["lmdb", *_hexadecimal(hash_files(path, ["data.mdb"], path))])
    if config.source in ("boxes", "masks"):
        root, own = _annotated_files(config, path)
        return _hash([config.source, *_named_digests(own, hash_files(root, own, path))])
    if config.source in ("images", "audio", "tiles") or (config.source == "text" and path.is_dir()):
        _, names, digests = image_hashes(config)
        listed = _named_digests(names, digests)
        return _hash(itertools.chain([config.source, *_listing_digest(path)], listed))
    digest = hash_files(path.parent, [path.name], path)
    return _hash([config.source, *_hexadecimal(digest)])


def _annotated_files(config: DataConfig, path: Path) -> tuple[Path, Sequence[str]]:
    """Return the files of a source of boxes or masks, relative to a folder."""
    if config.source == "masks":
        return path, find_pairs(path).names()
    files = sorted(set(read_boxes(path, config.classes).files))
    root = path if path.is_dir() else path.parent
    return root, [str(file.relative_to(root)) for file in files]


def _named_digests(names: Iterable[str], digests: bytes) -> Iterator[str]:
    pairs = zip(names, _hexadecimal(digests), strict=True)
    return (f"{name}\0{digest}" for name, digest in pairs)


def _built_in(source: str) -> str:
    """Return what decides the examples of a source without files, beside shrink's own sources."""
    version = importlib.metadata.version("scikit-learn")
    return f"{source} of scikit-learn {version}"


def _added_digests(config: DataConfig) -> Iterator[str]:
    """Yield what a source of another package says, or all files at its path by name."""
    if hasattr(added_source(config.source), "fingerprint"):
        yield ask_source(config.source, "fingerprint", str, config)
        return
    path = Path(config.path or "").expanduser().absolute()
    _check_there(path)
    if path.is_file():
        yield _hash_file(str(path))
        return
    names = [str(file.relative_to(path)) for file in _files_under(path)]
    digests = _hexadecimal(hash_files(path, names, path))
    yield from (f"{name}\0{digest}" for name, digest in zip(names, digests, strict=True))


def _files_under(folder: Path, around: tuple[Path, ...] = ()) -> list[Path]:
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
            files += _files_under(entry, (*around, here))
        elif entry.is_file():
            files.append(entry)
    return files


def _check_there(path: Path) -> None:
    if not path.exists():
        raise DataError(
            "no such file or folder",
            subject=shown(path),
            hint="data.path is relative to the recipe, or absolute",
        )


def image_hashes(config: DataConfig) -> tuple[Path, Names, bytes]:
    """Return the files of a source `images`, `audio`, `tiles` or `text`, and the SHA-256 of each.

    Returns:
        The folder that names are relative to, where they are not absolute; each name once; and
        32 bytes for each of them.

    Raises:
        DataError: an image, its folder or its list cannot be read.
    """
    path = Path(config.path or "").expanduser().absolute()
    if path.is_dir():
        kind = {"audio": CLIPS, "text": TEXTS}.get(config.source, IMAGES)
        names, root = find_images(path, kind).names, path
    else:
        names, root = read_listing(path, ()).files.unique(), path.parent
    return root, names, hash_files(root, names, path)


def content_hashes(config: DataConfig) -> dict[str, str]:
    """Return the SHA-256 of each image of a source `images` or `tiles`, by its absolute path.

    Raises:
        DataError: an image, its folder or its list cannot be read.
    """
    root, names, digests = image_hashes(config)
    paths = (_place(root, name) for name in names)
    return dict(zip(paths, _hexadecimal(digests), strict=True))


def shard_hashes(config: DataConfig) -> dict[str, str]:
    """Return the SHA-256 of each file of a source `tfrecord`, by its absolute path.

    Raises:
        DataError: nothing is there, or it cannot be read.
    """
    path = Path(config.path or "").expanduser().absolute()
    names = sorted(str(file) for shards in find_shards(path).values() for file in shards)
    return dict(zip(names, _hexadecimal(hash_files(path.parent, names, path)), strict=True))


def _hexadecimal(digests: bytes) -> Iterator[str]:
    """Yield each of the digests, 32 bytes each, as text."""
    for start in range(0, len(digests), DIGEST_BYTES):
        yield digests[start : start + DIGEST_BYTES].hex()


def _shard_digests(config: DataConfig) -> Iterator[str]:
    """Yield each shard's split, how it is compressed and its content, in the order it is read."""
    hashes = shard_hashes(config)
    path = Path(config.path or "").expanduser().absolute()
    for split, shards in sorted(find_shards(path).items()):
        for shard in shards:
            yield f"{split}\0{shard.suffix == '.zlib'}\0{hashes[str(shard)]}"


def _function_digests(entry: Path, function: str, config: DataConfig) -> Iterator[str]:
    """Yield what decides the examples of a function, as far as it can be known."""
    _check_there(entry)
    yield from code_and_place(entry, function)
    read, listed = remembered_reads(entry, function)
    declared = [name for text in config.depends or () for name in _declared(entry.parent, text)]
    names = [name for name in dict.fromkeys((*read, *declared))]
    there = [name for name in names if (entry.parent / name).is_file()]
    yield from (f"{name}\0missing" for name in sorted({*names} - {*there}))
    digests = hash_files(entry.parent, there, Path(f"{entry}:{function}"))
    yield from (f"{n}\0{d}" for n, d in zip(there, _hexadecimal(digests), strict=True))
    yield from (f"{name}/\0{folder_digest(entry.parent / name)}" for name in listed)


def _declared(folder: Path, text: str) -> list[str]:
    """Return the files that a name of `data.depends` stands for: itself, or all in a folder.

    Raises:
        DataError: nothing is there.
    """
    path = folder / Path(text).expanduser()
    if not path.exists():
        raise DataError(
            "no such file or folder",
            subject=shown(path),
            hint="data.depends is relative to the file with the function, or absolute",
        )
    files = _files_under(path) if path.is_dir() else [path]
    return [str(p.relative_to(folder) if p.is_relative_to(folder) else p) for p in files]


def _prepared_digests(path: Path) -> list[str]:
    folder = prepared_folder(path)
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_file())
    digests = _hexadecimal(hash_files(folder, names, folder))
    return [f"{name}\0{digest}" for name, digest in zip(names, digests, strict=True)]


def _listing_digest(path: Path) -> list[str]:
    return [_hash_file(str(path))] if path.is_file() else []


def hash_files(root: Path, names: Sequence[str], owner: Path) -> bytes:
    """Return the SHA-256 of each file's content, 32 bytes each, in the order of `names`.

    Args:
        root: the folder that names are relative to, where they are not absolute.
        names: of the files, each once.
        owner: what they belong to; what is known of them is remembered for it.

    Raises:
        DataError: a file cannot be read.
    """
    memory = entry_path("fingerprints", _hash([str(owner)]), ".bin")
    known, current, unknown = read_known_hashes(memory), KnownHashes(), array("q")
    settled_before_ns = time.time_ns() - _SETTLED_NS
    for row, name in enumerate(names):
        stamp = _stamp(_place(root, name), settled_before_ns)
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


def _place(root: Path, name: str) -> str:
    return name if name.startswith("/") else f"{root}/{name}"


def _read_files(root: Path, names: Sequence[str], rows: Sequence[int], hashes: KnownHashes) -> None:
    """Read the files `rows` of `names`, and put their hashes."""

    def hash_chunk(start: int) -> list[tuple[int, str]]:
        chunk = rows[start : start + _CHUNK]
        return [(row, _hash_file(_place(root, names[row]))) for row in chunk]

    with ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1)) as pool:
        for digests in pool.map(hash_chunk, range(0, len(rows), _CHUNK)):
            for row, digest in digests:
                hashes.put(row, bytes.fromhex(digest))


def _hash_file(path: str) -> str:
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


def _unreadable(path: str, error: OSError) -> DataError:
    return DataError(f"cannot be read: {error.strerror}", subject=shown(path))


def _hash(parts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for number, part in enumerate(parts):
        digest.update(os.fsencode(f"\0{part}" if number else part))
    return digest.hexdigest()
