"""Checkpoints of a training run on disk: whole and verified, or not there.

A folder holds `checkpoint.json` and the file of arrays that it names, whose name is the hash of
its content. The arrays are written first, so that a kill at any moment leaves the checkpoint
before or the one after.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shrink.base import files
from shrink.base.faults import reached

_VERSION = 1
_MANIFEST = "checkpoint.json"
_SUFFIX = ".zip"


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint.

    Attributes:
        content: what was written beside the arrays, plain data.
        arrays: by name; each is read from the disk when it is asked for.
        shapes: of the arrays, by name.
    """

    content: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray]
    shapes: Mapping[str, tuple[int, ...]]


class CheckpointFolder:
    """The newest checkpoint of one training run.

    Args:
        path: the folder; made with the first checkpoint.

    Attributes:
        note: why a checkpoint that is there was ignored; empty otherwise.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.note = ""

    def write(self, arrays: Iterable[tuple[str, np.ndarray]], content: Mapping[str, Any]) -> None:
        """Replace the checkpoint.

        Args:
            arrays: names and values; only one of them needs to be in memory at a time.
            content: plain data; numbers may be infinite or NaN.

        Raises:
            ResourceError: the disk is full, or the folder cannot be written to.
        """
        described: dict[str, list[Any]] = {}
        unnamed = self.path / f"arrays{_SUFFIX}"
        with files.replacing(unnamed) as temporary:
            _write_arrays(temporary, arrays, described)
        reached("checkpoint-arrays-written")
        digest = files.sha256(unnamed)
        unnamed.rename(self.path / f"{digest}{_SUFFIX}")
        body = {"version": _VERSION, "sha256": digest, "arrays": described, "content": content}
        manifest = {**body, "digest": _digest(body)}
        files.write_text(self.path / _MANIFEST, json.dumps(manifest, indent=1))
        reached("checkpoint-written")
        self._remove_all_but(digest)

    def read(self) -> Checkpoint | None:
        """Return the checkpoint, or None; a damaged one is a note."""
        self.note = ""
        files.sweep(self.path)
        manifest = self.path / _MANIFEST
        if not manifest.is_file():
            return None
        try:
            entry = json.loads(manifest.read_text(encoding="utf-8"))
            digest = entry.pop("digest")
            if entry["version"] != _VERSION or digest != _digest(entry):
                raise ValueError(f"{_MANIFEST} was changed")
            stored = self.path / f"{entry['sha256']}{_SUFFIX}"
            if files.sha256(stored) != entry["sha256"]:
                raise ValueError("its arrays do not match their hash")
            shapes = {name: tuple(shape) for name, (shape, _) in entry["arrays"].items()}
            return Checkpoint(entry["content"], _Arrays(stored, entry["arrays"]), shapes)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            self.note = f"a damaged checkpoint was ignored ({error})"
            return None

    def _remove_all_but(self, digest: str) -> None:
        for path in self.path.glob(f"*{_SUFFIX}"):
            if path.stem != digest:
                path.unlink(missing_ok=True)


class _Arrays(Mapping[str, np.ndarray]):
    """Arrays of a file, one at a time."""

    def __init__(self, path: Path, described: Mapping[str, list[Any]]) -> None:
        self._archive = zipfile.ZipFile(path)
        self._described = described

    def __getitem__(self, name: str) -> np.ndarray:
        shape, dtype = self._described[name]
        # bfloat16 is no dtype of numpy's: its name alone says what the bytes are.
        content = np.frombuffer(self._archive.read(name), np.uint8)
        return content.view(_dtype(dtype)).reshape(shape)

    def __iter__(self) -> Any:
        return iter(self._described)

    def __len__(self) -> int:
        return len(self._described)


def _write_arrays(
    path: Path, arrays: Iterable[tuple[str, np.ndarray]], described: dict[str, list[Any]]
) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays:
            described[name] = [list(array.shape), array.dtype.name]
            with archive.open(zipfile.ZipInfo(name), "w", force_zip64=True) as stream:
                stream.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def _dtype(name: str) -> Any:
    import tensorflow as tf

    return tf.as_dtype(name).as_numpy_dtype


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
