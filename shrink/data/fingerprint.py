"""The fingerprint of a data set."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
from collections.abc import Iterator, Sequence
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

_LISTED = ("images", "audio", "tiles", "masks", "boxes")
"""Sources of files in folders or in a list."""


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
    digest = hashlib.sha256(os.fsencode(config.source))
    if config.source in BUILT_IN:
        version = importlib.metadata.version("scikit-learn")
        digest = hashlib.sha256(os.fsencode(f"{config.source} of scikit-learn {version}"))
    for part in _parts(config):
        digest.update(os.fsencode(f"\0{part}"))
    return digest.hexdigest()


def _parts(config: DataConfig) -> Iterator[str]:
    """Yield what decides the examples of a source, beside its name."""
    if config.source in (*BUILT_IN, NO_DATA):
        return
    text, _, function = (config.path or "").rpartition(":")
    path = Path(text if config.source == "python" else config.path or "").expanduser().absolute()
    if config.source == "tfrecord":
        # Each shard's split, how it is compressed and its content, in the order it is read.
        hashes = shard_hashes(config)
        for split, shards in sorted(find_shards(path).items()):
            for shard in shards:
                yield f"{split}\0{shard.suffix == '.zlib'}\0{hashes[str(shard)]}"
        return
    if config.source == "tfds":
        folder = prepared_folder(path)
        yield from _named(folder, sorted(one.name for one in folder.iterdir() if one.is_file()))
        return
    if config.source not in SOURCES:
        yield from source_code(config.source).values()
        if hasattr(added_source(config.source), "fingerprint"):
            yield ask_source(config.source, "fingerprint", str, config)
            return
    if not path.exists():
        raise DataError(
            "no such file or folder",
            subject=shown(path),
            hint="data.path is relative to the recipe, or absolute",
        )
    if config.source == "python":
        # Its place counts, for a function may read what lies beside it unseen.
        yield from (function, os.path.realpath(path), code_digest(path))
        yield from declared_digests(path.parent, config.depends or ())
    elif config.source not in SOURCES and path.is_dir():
        yield from _named(path, [str(file.relative_to(path)) for file in files_under(path)])
    elif config.source in _LISTED or (config.source == "text" and path.is_dir()):
        root, names, empty = _found(config, path)
        if path.is_file() and config.source != "boxes":
            yield hash_file(str(path))
        yield from _named(root, names, path)
        yield from empty
    elif config.source == "lmdb" and path.is_dir():
        yield from _digests(path, ["data.mdb"], path)
    elif config.source not in SOURCES:
        yield hash_file(str(path))
    else:
        yield from _digests(path.parent, [path.name], path)


def _digests(root: Path, names: Sequence[str], owner: Path) -> Iterator[str]:
    """Yield the SHA-256 of each file, in hex."""
    digests = hash_files(root, names, owner)
    for start in range(0, len(digests), DIGEST_BYTES):
        yield digests[start : start + DIGEST_BYTES].hex()


def _named(root: Path, names: Sequence[str], owner: Path | None = None) -> Iterator[str]:
    pairs = zip(names, _digests(root, names, owner or root), strict=True)
    return (f"{name}\0{digest}" for name, digest in pairs)


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


def _found(config: DataConfig, path: Path) -> tuple[Path, Sequence[str], list[str]]:
    """Return the files of a source of files, each once.

    Returns:
        The folder that names are relative to, where they are not absolute; the names; and the
        folders of classes that are empty, which decide what is a class as the files do.
    """
    if config.source == "masks":
        return path, find_pairs(path).names(), []
    if config.source == "boxes":
        root = path if path.is_dir() else path.parent
        files = sorted(set(read_boxes(path, config.classes).files))
        return root, [str(file.relative_to(root)) for file in files], []
    if not path.is_dir():
        return path.parent, list(dict.fromkeys(read_listing(path, ()).cells["path"])), []
    found = find_images(path, {"audio": CLIPS, "text": TEXTS}.get(config.source, IMAGES))
    empty = [
        f"{split}/{name}/"
        for split, own in found.splits.items()
        for name, files in own.items()
        if not files
    ]
    return path, found.names, empty


def content_hashes(config: DataConfig) -> dict[str, str]:
    """Return the SHA-256 of each image of a source `images` or `tiles`, by its absolute path.

    Raises:
        DataError: an image, its folder or its list cannot be read.
    """
    path = Path(config.path or "").expanduser().absolute()
    root, names, _ = _found(config, path)
    return {
        place(root, name): digest
        for name, digest in zip(names, _digests(root, names, path), strict=True)
    }


def shard_hashes(config: DataConfig) -> dict[str, str]:
    """Return the SHA-256 of each file of a source `tfrecord`, by its absolute path.

    Raises:
        DataError: nothing is there, or it cannot be read.
    """
    path = Path(config.path or "").expanduser().absolute()
    names = sorted(str(file) for shards in find_shards(path).values() for file in shards)
    return dict(zip(names, _digests(path.parent, names, path), strict=True))
