"""Metadata of imported models, in the metadata of a `.keras` file.

Keras reads its own keys of `metadata.json` alone, so that the file stays any Keras model.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

from shrink.base import files
from shrink.contract.model_source import ModelSource
from shrink.contract.trained_range import ModelMetadata, metadata_from_plain, metadata_to_plain
from shrink.model.scan_files import METADATA, check_archive

_KEY = "shrink"


def read_metadata(path: Path) -> ModelMetadata:
    """Return what a model brings along; nothing where it is no `.keras` file.

    Raises:
        ModelError: the file is damaged.
    """
    if path.suffix != ".keras" or not path.is_file():
        return ModelMetadata()
    metadata = check_archive(path)[0]
    return (
        metadata_from_plain(metadata.get(_KEY)) if isinstance(metadata, dict) else ModelMetadata()
    )


def metadata_of(source: ModelSource | None) -> ModelMetadata:
    """Return what the model of a step brings along; a scaled copy brings nothing."""
    if source is None or source.kind != "keras" or source.arguments:
        return ModelMetadata()
    return read_metadata(source.path)


def write_metadata(path: Path, imported: ModelMetadata) -> None:
    """Put into a `.keras` file what its model brings along.

    Args:
        path: as Keras saved it; it is replaced whole.
        imported: what it brings.
    """
    with (
        files.replacing(path) as temporary,
        zipfile.ZipFile(path) as old,
        zipfile.ZipFile(temporary, "w") as new,
    ):
        for member in old.infolist():
            with old.open(member) as source, new.open(member.filename, "w") as target:
                if member.filename == METADATA:
                    metadata = {**json.load(source), _KEY: metadata_to_plain(imported)}
                    target.write(json.dumps(metadata).encode())
                else:
                    shutil.copyfileobj(source, target)
