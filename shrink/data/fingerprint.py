"""What a data source holds, as one hash: part of a step's key, so changed data is computed anew.

Content hashes of pictures are remembered in the cache folder by path, size, times of change and
inode. A damaged or unwritable memory costs time, never correctness.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from shrink.data.config import DataConfig
from shrink.data.folders import find_pictures, shown
from shrink.data.listing import read_listing
from shrink.data.prepared import prepared_folder
from shrink.data.shards import MANIFEST, find_shards
from shrink.errors import DataError, ResourceError
from shrink.run import files
from shrink.run.paths import cache_root

_FORMAT = b"shrink fingerprints 1\n"
_CHUNK = 500
_READ_BYTES = 1 << 20
_MOST_THREADS = 8
# A file changed twice within one tick of the clock looks unchanged: trust only what has settled.
_SETTLED_NS = 2_000_000_000

_Known = dict[str, tuple[str, str]]


def fingerprint(config: DataConfig) -> str:
    """Return the SHA-256, in hex, of what the source of a `data` section holds.

    Names of classes and pictures count as well as their contents; the place does not, so data
    may be moved as a whole. How the data is split and transformed is not part of it. Of source
    python only the file with the function counts: what the function reads is not known.

    Raises:
        DataError: nothing is there, or it cannot be read.
    """
    if config.source == "digits":
        version = importlib.metadata.version("scikit-learn")
        return _hash([f"digits of scikit-learn {version}"])
    text, function = config.path or "", ""
    if config.source == "tfrecord":
        return _hash(["tfrecord", *_manifest_digest(config), *shard_hashes(config).values()])
    if config.source == "tfds":
        return _hash(["tfds", *_prepared_digests(Path(text).expanduser().absolute())])
    if config.source == "python":
        text, _, function = text.rpartition(":")
    path = Path(text).expanduser().absolute()
    if not path.exists():
        raise DataError(
            "no such file or folder",
            subject=shown(path),
            hint="data.path is relative to the recipe, or absolute",
        )
    if config.source == "lmdb" and path.is_dir():
        return _hash(["lmdb", _of_named(path, ["data.mdb"], path)["data.mdb"]])
    if config.source not in ("images", "tiles"):
        digest = _of_named(path.parent, [path.name], path)[path.name]
        return _hash([config.source, digest, *([function] if function else [])])
    hashes = content_hashes(config)
    named = (f"{os.path.relpath(file, path)}\0{digest}" for file, digest in hashes.items())
    return _hash([config.source, *_listing_digest(path), *named])


def content_hashes(config: DataConfig) -> dict[str, str]:
    """Return the SHA-256 of each picture of a source `images` or `tiles`, by its absolute path.

    Raises:
        DataError: a picture, its folder or its list cannot be read.
    """
    path = Path(config.path or "").expanduser().absolute()
    if path.is_dir():
        names, root = find_pictures(path).files(), path
    else:
        names, root = sorted(set(read_listing(path, ()).files)), path.parent
    hashes = _of_named(root, names, path)
    return {_place(root, name): hashes[name] for name in names}


def shard_hashes(config: DataConfig) -> dict[str, str]:
    """Return the SHA-256 of each file of a source `tfrecord`, by its absolute path.

    Raises:
        DataError: nothing is there, or it cannot be read.
    """
    path = Path(config.path or "").expanduser().absolute()
    found = [str(file) for shards in find_shards(path).values() for file in shards]
    return _of_named(path.parent, sorted(found), path)


def _prepared_digests(path: Path) -> list[str]:
    folder = prepared_folder(path)
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_file())
    return [f"{name}\0{digest}" for name, digest in _of_named(folder, names, folder).items()]


def _manifest_digest(config: DataConfig) -> list[str]:
    manifest = Path(config.path or "").expanduser().absolute() / MANIFEST
    return [_hash_file(str(manifest))] if manifest.is_file() else []


def _listing_digest(path: Path) -> list[str]:
    return [_hash_file(str(path))] if path.is_file() else []


def _of_named(root: Path, names: Sequence[str], place: Path) -> dict[str, str]:
    """Return the hash of each file under `root`, in the order of `names`."""
    memory = cache_root() / "fingerprints" / f"{_hash([str(place)])}.json"
    known = _recall(memory)
    settled_before_ns = time.time_ns() - _SETTLED_NS
    stamps, unsettled = _stamps(root, names, settled_before_ns)
    digests = {n: known[n][1] for n in names if n in known and known[n][0] == stamps[n]}
    digests.update(_hash_files(root, [name for name in names if name not in digests]))
    current = {name: (stamps[name], digests[name]) for name in names if name not in unsettled}
    if current != known:
        _remember(memory, current)
    return {name: digests[name] for name in names}


def _stamps(
    root: Path, names: Sequence[str], settled_before_ns: int
) -> tuple[dict[str, str], set[str]]:
    """Return what tells each file from its other versions, and which changed a moment ago."""
    stamps, unsettled = {}, set()
    for name in names:
        try:
            status = os.stat(_place(root, name))  # noqa: PTH116
        except OSError as error:
            raise _unreadable(_place(root, name), error) from error
        changed = status.st_ctime_ns
        stamps[name] = f"{status.st_size} {status.st_mtime_ns} {changed} {status.st_ino}"
        if max(status.st_mtime_ns, changed) >= settled_before_ns:
            unsettled.add(name)
    return stamps, unsettled


def _place(root: Path, name: str) -> str:
    return name if name.startswith("/") else f"{root}/{name}"


def _hash_files(root: Path, names: Sequence[str]) -> list[tuple[str, str]]:
    chunks = [names[start : start + _CHUNK] for start in range(0, len(names), _CHUNK)]

    def hash_chunk(chunk: Sequence[str]) -> list[tuple[str, str]]:
        return [(name, _hash_file(_place(root, name))) for name in chunk]

    with ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1)) as pool:
        return [pair for pairs in pool.map(hash_chunk, chunks) for pair in pairs]


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


def _recall(memory: Path) -> _Known:
    """Return what is known of each file; nothing where the memory is missing or damaged."""
    try:
        digest, _, body = memory.read_bytes().partition(b"\n")
        if hashlib.sha256(_FORMAT + body).hexdigest().encode() != digest:
            return {}
        flat: dict[str, str] = json.loads(body)
    except (OSError, ValueError):
        return {}
    return {name: (entry[:-65], entry[-64:]) for name, entry in flat.items()}


def _remember(memory: Path, known: Mapping[str, tuple[str, str]]) -> None:
    # One string per file, not a list: JSON with 60,000 lists takes twice as long to read.
    body = json.dumps({name: f"{stamp} {digest}" for name, (stamp, digest) in known.items()})
    content = body.encode()
    digest = hashlib.sha256(_FORMAT + content).hexdigest().encode()
    with contextlib.suppress(OSError, ResourceError):
        files.write_bytes(memory, digest + b"\n" + content)


def _hash(parts: Iterable[str]) -> str:
    return hashlib.sha256(os.fsencode("\0".join(parts))).hexdigest()
