"""The fingerprint of a data set."""

from __future__ import annotations

import hashlib
import itertools
import os
from pathlib import Path

from shrink.base.foreign import Json
from shrink.data.config import LEARNED, DataConfig, source_code, source_of
from shrink.model.user_reads import code_digest


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
    source = source_of(config.source)
    digest = hashlib.sha256(os.fsencode(source.identity()))
    for part in itertools.chain(source_code(config.source).values(), source.content(config)):
        digest.update(os.fsencode(f"\0{part}"))
    return digest.hexdigest()


def section_by_content(config: DataConfig) -> dict[str, Json]:
    """Return a `data` section without places, and with the hash of a vocabulary for its file."""
    section = config.model_dump(mode="json", exclude={"path", "slices"})
    if config.augment is not None:
        file = config.augment.file
        changes = config.augment if file is None else config.augment.at(f"{code_digest(file)}.py")
        section["augment"] = changes.model_dump(mode="json")
    tokens = config.tokens
    if tokens is not None and (file := tokens.vocabulary_file(Path.cwd())) is not None:
        kept = tokens.model_dump(mode="json", exclude=set(LEARNED))
        section["tokens"] = {**kept, "vocabulary": hashlib.sha256(file.read_bytes()).hexdigest()}
    return section
