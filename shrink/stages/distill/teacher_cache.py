"""Cached teacher outputs for every training example, memory-mapped.

A cache is a folder named by its key: `rows.bin`, one row for each example, and `state.json` with
the number of valid rows, and the hash of all of them once they are complete. Rows are synced
before the state counts them, so a killed run continues where it was.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.base import files
from shrink.base.cache import existing
from shrink.base.errors import ResourceError
from shrink.base.foreign import JsonObject
from shrink.data.examples import Examples
from shrink.data.pipeline import evaluation_batches, naming_bad_examples
from shrink.stages.distill.objective import Teach, TeacherOutputs

CacheDtype = Literal["float32", "float16"]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Rows:
    """How outputs and features become rows: flattened one after the other, in one dtype.

    Attributes:
        outputs: shape of each output of one example.
        features: shape of each feature of one example.
        cache_dtype: of the numbers.
    """

    outputs: tuple[Shape, ...]
    features: tuple[Shape, ...] = ()
    cache_dtype: CacheDtype = "float32"

    @property
    def is_known(self) -> bool:
        """Whether all dimensions of all shapes are known, without which there are no rows."""
        return all(size > 0 for shape in (*self.outputs, *self.features) for size in shape)

    @property
    def dtype(self) -> np.dtype:
        """The numpy dtype of a row's numbers."""
        return np.dtype(self.cache_dtype)

    @property
    def columns(self) -> int:
        """Numbers in a row."""
        return sum(map(math.prod, (*self.outputs, *self.features)))

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.columns * int(self.dtype.itemsize)

    def encode(self, teacher_outputs: TeacherOutputs) -> tf.Tensor:
        """Return (n, columns) in `dtype`."""
        parts = (*teacher_outputs.outputs, *teacher_outputs.features)
        flat = [tf.reshape(part, (tf.shape(part)[0], -1)) for part in parts]
        return tf.cast(tf.concat(flat, axis=-1), tf.as_dtype(self.dtype))

    def decode(self, rows: tf.Tensor) -> TeacherOutputs:
        """Return the outputs of rows (n, columns), as float32."""
        shapes = (*self.outputs, *self.features)
        parts = tf.split(tf.cast(rows, tf.float32), list(map(math.prod, shapes)), axis=-1)
        parts = [tf.reshape(part, (-1, *shape)) for part, shape in zip(parts, shapes, strict=True)]
        count = len(self.outputs)
        return TeacherOutputs(tuple(parts[:count]), tuple(parts[count:]))


def shapes_of(tensors: Sequence[tf.Tensor]) -> tuple[Shape, ...]:
    """Return the shapes of one example of Keras tensors; -1 for an unknown dimension."""
    return tuple(tuple(size or -1 for size in tensor.shape[1:]) for tensor in tensors)


_VERSION = 1
_ROWS, _STATE, _LOCK = "rows.bin", "state.json", "lock"
_SAVE_EVERY_S = 5.0
_SPARE_BYTES = 64 * 1000**2
"""Left free on the disk, beside the cache."""


def cache_key(parts: Mapping[str, object]) -> str:
    """Return the SHA-256, in hex, of plain data that determines a teacher's outputs."""
    text = json.dumps({"version": _VERSION, **parts}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def model_digest(model: keras.Model) -> str:
    """Return the SHA-256, in hex, of a model's configuration and weights."""
    config = json.dumps(model.get_config(), sort_keys=True, default=str)
    digest = hashlib.sha256(config.encode())
    for weights in model.get_weights():
        digest.update(np.ascontiguousarray(weights).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def check_room(folder: Path, needed_bytes: int) -> None:
    """Raise `ResourceError` where so many bytes do not fit on the disk of `folder`."""
    there = folder / _ROWS
    held = there.stat().st_size if there.is_file() else 0
    free = shutil.disk_usage(existing(folder)).free + held - _SPARE_BYTES
    if needed_bytes > free:
        raise ResourceError(
            f"the teacher's cache takes {needed_bytes:,} bytes, and {max(free, 0):,} are free",
            subject=folder,
            hint="set distill.cache_dtype to float16, distill.teacher_cache to off, or"
            " SHRINK_CACHE_DIR to a larger disk",
        )


def write_cache(
    folder: Path, rows: Rows, examples: Examples, batch_size: int, teach: Teach
) -> bool:
    """Run the teacher on every example that is not in the cache yet.

    Args:
        folder: of this key alone; made where it is missing.
        rows: how outputs are stored.
        examples: one for each row.
        batch_size: examples at a time.
        teach: the teacher.

    Returns:
        Whether anything was missing.

    Raises:
        ResourceError: it does not fit on the disk.
        DataError: an example cannot be read.
    """
    files.make_folder(folder)
    total = len(examples)
    with files.locked(folder / _LOCK):
        if is_complete(folder, rows, total):
            return False
        check_room(folder, rows.row_bytes * total)
        done = _valid_rows(folder, rows, total)
        encoded = tf.function(lambda x: rows.encode(teach(x)), reduce_retracing=True)
        saved_at = time.monotonic()
        with (
            files.appending(folder / _ROWS, done * rows.row_bytes) as stream,
            naming_bad_examples(examples),
        ):
            for x, _ in evaluation_batches(examples, batch_size, np.arange(done, total)):
                outputs = encoded(x).numpy()
                stream.write(np.ascontiguousarray(outputs, rows.dtype).data)
                done += len(outputs)
                if time.monotonic() - saved_at > _SAVE_EVERY_S:
                    stream.flush()
                    files.sync(folder / _ROWS)
                    _save(folder, rows, done, None)
                    saved_at = time.monotonic()
        _save(folder, rows, total, files.sha256(folder / _ROWS))
        return True


def open_cache(folder: Path, rows: Rows, count: int) -> np.ndarray:
    """Return the rows of a complete cache, (count, columns), mapped into memory, not read."""
    (folder / _STATE).touch()  # used now: what was not for long is swept away
    return np.memmap(folder / _ROWS, rows.dtype, mode="r", shape=(count, rows.columns))


def is_complete(folder: Path, rows: Rows, count: int) -> bool:
    """Whether the cache has all rows, with their hash."""
    state = _state(folder)
    if state.get("rows") != count or state.get("row_bytes") != rows.row_bytes:
        return False
    path = folder / _ROWS
    return path.is_file() and state.get("sha256") == files.sha256(path)


def _valid_rows(folder: Path, rows: Rows, count: int) -> int:
    """Return how many rows can be kept; none of a cache that was complete and is damaged."""
    state, path = _state(folder), folder / _ROWS
    if not path.is_file() or state.get("sha256") or state.get("row_bytes") != rows.row_bytes:
        return 0
    return int(min(state.get("rows", 0), path.stat().st_size // rows.row_bytes, count))


def _state(folder: Path) -> JsonObject:
    try:
        state = json.loads((folder / _STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


def _save(folder: Path, rows: Rows, done: int, sha256: str | None) -> None:
    state = {"rows": done, "row_bytes": rows.row_bytes, "sha256": sha256}
    files.write_json(folder / _STATE, state)
