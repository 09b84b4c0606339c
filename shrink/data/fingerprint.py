"""The fingerprint of a data set."""

from __future__ import annotations

import hashlib
import importlib.metadata
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from shrink.base.errors import DataError
from shrink.base.file_hashes import DIGEST_BYTES, files_under, hash_file, hash_files, place
from shrink.base.foreign import Json
from shrink.contract.usage import vocabulary_text
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
from shrink.data.folders import CLIPS, IMAGES, TEXTS, find_images, shown
from shrink.data.pairs import find_pairs
from shrink.data.shards import find_shards, prepared_folder
from shrink.data.table import read_listing
from shrink.data.token_config import LEARNED, TokensConfig
from shrink.model.user_reads import code_digest, declared_digests


def fingerprint(config: DataConfig) -> str:
    """Return the SHA-256, in hex, of what the source of a `data` section holds.

    Names of classes and images count as well as their contents, and of shards their splits and
    their order; the place does not, so data may be moved as a whole. How the data is split and
    transformed is not part of it; `section_by_content` says that. Of source python the place
    counts, and all that the function is known to read, and `data.depends`. Of a source that
    another package adds, its version and its sources count.

    Raises:
        DataError: nothing is there, or it cannot be read.
        RecipeError: the package that adds the source cannot be imported.
    """
    if config.source in BUILT_IN:
        # What decides the examples of a source without files, beside shrink's own sources.
        version = importlib.metadata.version("scikit-learn")
        return _hash([(f"{config.source} of scikit-learn {version}")])
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
        root, names, empty = _found(config)
        listed = _named_digests(names, hash_files(root, names, path))
        return _hash(
            itertools.chain(
                [config.source, *([hash_file(str(path))] if path.is_file() else [])], listed, empty
            )
        )
    digest = hash_files(path.parent, [path.name], path)
    return _hash([config.source, *_hexadecimal(digest)])


def section_by_content(
    config: DataConfig,
    classes: Sequence[str] | None = None,
    vocabulary: Sequence[str] = (),
) -> dict[str, Json]:
    """Return a `data` section without places, and with the tokens of a vocabulary for its file.

    Args:
        config: the section.
        classes: the names of the labels, where they are known and the section names none.
        vocabulary: the tokens, where they are known and the section names no file.
    """
    section = config.model_dump(mode="json", exclude={"path", "slices"})
    section["classes"] = section["classes"] or list(classes or ()) or None
    if config.augment is not None:
        file = config.augment.function_file(Path.cwd())
        changes = config.augment if file is None else config.augment.at(f"{code_digest(file)}.py")
        section["augment"] = changes.model_dump(mode="json")
    tokens = config.tokens
    if config.source == "text" and (vocabulary or (tokens and tokens.vocabulary)):
        tokens = tokens or TokensConfig()
        if (file := tokens.vocabulary_file(Path.cwd())) is not None:
            content = hashlib.sha256(file.read_bytes()).hexdigest()
        else:
            content = hashlib.sha256(vocabulary_text(vocabulary).encode()).hexdigest()
        kept = tokens.model_dump(mode="json", exclude=set(LEARNED))
        section["tokens"] = {**kept, "vocabulary": content}
    return section


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


def _added_digests(config: DataConfig) -> Iterator[str]:
    """Yield what a source of another package says, or all files at its path by name."""
    if hasattr(added_source(config.source), "fingerprint"):
        yield ask_source(config.source, "fingerprint", str, config)
        return
    path = Path(config.path or "").expanduser().absolute()
    _check_there(path)
    if path.is_file():
        yield hash_file(str(path))
        return
    names = [str(file.relative_to(path)) for file in files_under(path)]
    digests = _hexadecimal(hash_files(path, names, path))
    yield from (f"{name}\0{digest}" for name, digest in zip(names, digests, strict=True))


def _check_there(path: Path) -> None:
    if not path.exists():
        raise DataError(
            "no such file or folder",
            subject=shown(path),
            hint="data.path is relative to the recipe, or absolute",
        )


def _found(config: DataConfig) -> tuple[Path, Sequence[str], list[str]]:
    """Return the files of a source `images`, `audio`, `tiles` or `text`, each once.

    Returns:
        The folder that names are relative to, where they are not absolute; the names; and the
        folders of classes that are empty, which decide what is a class as the files do.

    Raises:
        DataError: an image, its folder or its list cannot be read.
    """
    path = Path(config.path or "").expanduser().absolute()
    if not path.is_dir():
        return path.parent, list(dict.fromkeys(read_listing(path, ()).cells["path"])), []
    found = find_images(path, {"audio": CLIPS, "text": TEXTS}.get(config.source, IMAGES))
    classes = (
        (split, name, files) for split, own in found.splits.items() for name, files in own.items()
    )
    return path, found.names, [f"{split}/{name}/" for split, name, files in classes if not files]


def content_hashes(config: DataConfig) -> dict[str, str]:
    """Return the SHA-256 of each image of a source `images` or `tiles`, by its absolute path.

    Raises:
        DataError: an image, its folder or its list cannot be read.
    """
    root, names, _ = _found(config)
    digests = hash_files(root, names, Path(config.path or "").expanduser().absolute())
    paths = (place(root, name) for name in names)
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
    """Yield what decides the examples of a function, as far as it can be known.

    Its place counts, for a function may read what lies beside it unseen.
    """
    _check_there(entry)
    yield from (function, os.path.realpath(entry), code_digest(entry))
    yield from declared_digests(entry.parent, config.depends or ())


def _prepared_digests(path: Path) -> list[str]:
    folder = prepared_folder(path)
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_file())
    digests = _hexadecimal(hash_files(folder, names, folder))
    return [f"{name}\0{digest}" for name, digest in zip(names, digests, strict=True)]


def _hash(parts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for number, part in enumerate(parts):
        digest.update(os.fsencode(f"\0{part}" if number else part))
    return digest.hexdigest()
