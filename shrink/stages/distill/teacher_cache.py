"""Cached teacher outputs: what a teacher gives for every training example, memory-mapped.

A cache is a folder named by its key: `rows.bin`, one row for each input, `state.json`, which
says how many rows are good, and the hash of all of them once they are complete. Rows are synced
before the state counts them, so a killed run goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.base import files
from shrink.base.cache import existing
from shrink.base.errors import ResourceError
from shrink.base.foreign import JsonObject
from shrink.data.examples import Examples
from shrink.data.pipeline import evaluation_batches, naming_bad_examples, training_batches
from shrink.stages.distill.objective import Teach, TeacherOutputs

CacheDtype = Literal["float32", "float16", "topk"]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Rows:
    """How outputs and features become rows: flattened one after the other, in one dtype.

    topk keeps, at each position of an output, the k largest logits with their classes, and one
    logit that all the others share, with which their probability at T = 1 is what it was.

    Attributes:
        outputs: shape of each output of one example.
        features: shape of each feature of one example.
        cache_dtype: float32, float16, or topk, whose numbers are float32.
        top_k: k; an output of at most 2k + 1 classes is kept whole.
    """

    outputs: tuple[Shape, ...]
    features: tuple[Shape, ...] = ()
    cache_dtype: CacheDtype = "float32"
    top_k: int = 16

    @property
    def is_known(self) -> bool:
        """Whether all dimensions of all shapes are known, without which there are no rows."""
        return all(size > 0 for shape in (*self.outputs, *self.features) for size in shape)

    @property
    def dtype(self) -> np.dtype:
        """The numpy dtype of a row's numbers."""
        return np.dtype(np.float16 if self.cache_dtype == "float16" else np.float32)

    @property
    def columns(self) -> int:
        """Numbers in a row."""
        return sum(self._widths())

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.columns * int(self.dtype.itemsize)

    def encode(self, teacher_outputs: TeacherOutputs) -> tf.Tensor:
        """Return (n, columns) in `dtype`."""
        parts = [
            self._sparse(logits) if self._is_sparse(shape) else logits
            for logits, shape in zip(teacher_outputs.outputs, self.outputs, strict=True)
        ]
        everything = [*parts, *teacher_outputs.features]
        flat = [tf.reshape(p, (tf.shape(p)[0], -1)) for p in everything]
        return tf.cast(tf.concat(flat, axis=-1), tf.as_dtype(self.dtype))

    def decode(self, rows: tf.Tensor) -> TeacherOutputs:
        """Return what `encode` was given, as float32; (n, columns) in."""
        parts = tf.split(tf.cast(rows, tf.float32), self._widths(), axis=-1)
        count = len(self.outputs)
        outputs = [
            self._dense(part, shape) if self._is_sparse(shape) else _shaped(part, shape)
            for part, shape in zip(parts[:count], self.outputs, strict=True)
        ]
        features = map(_shaped, parts[count:], self.features)
        return TeacherOutputs(tuple(outputs), tuple(features))

    def _widths(self) -> list[int]:
        return [self._width(shape) for shape in self.outputs] + [
            math.prod(shape) for shape in self.features
        ]

    def _width(self, shape: Shape) -> int:
        if not self._is_sparse(shape):
            return math.prod(shape)
        return math.prod(shape[:-1]) * (2 * self.top_k + 1)

    def _is_sparse(self, shape: Shape) -> bool:
        return self.cache_dtype == "topk" and bool(shape) and shape[-1] > 2 * self.top_k + 1

    def _sparse(self, logits: tf.Tensor) -> tf.Tensor:
        """Return [k largest, their classes, the others' shared logit], (n, ..., 2k + 1)."""
        largest, classes = tf.math.top_k(logits, self.top_k)
        kept = tf.reduce_sum(tf.one_hot(classes, logits.shape[-1]), axis=-2) > 0
        others = tf.where(kept, tf.cast(-np.inf, logits.dtype), logits)
        shared = tf.reduce_logsumexp(others, axis=-1, keepdims=True)
        shared -= math.log(logits.shape[-1] - self.top_k)
        # A float32 holds every class number below 2**24 exactly.
        return tf.concat([largest, tf.cast(classes, logits.dtype), shared], axis=-1)

    def _dense(self, part: tf.Tensor, shape: Shape) -> tf.Tensor:
        entries = _shaped(part, (*shape[:-1], 2 * self.top_k + 1))
        largest, classes, shared = tf.split(entries, [self.top_k, self.top_k, 1], axis=-1)
        one_hot = tf.one_hot(tf.cast(classes, tf.int32), shape[-1], dtype=largest.dtype)
        kept = tf.reduce_sum(one_hot, axis=-2)
        return tf.reduce_sum(one_hot * largest[..., None], axis=-2) + (1 - kept) * shared


def shapes_of(tensors: Sequence[tf.Tensor]) -> tuple[Shape, ...]:
    """Return the shapes of one example of Keras tensors; -1 for an unknown dimension."""
    return tuple(tuple(size or -1 for size in tensor.shape[1:]) for tensor in tensors)


def _shaped(part: tf.Tensor, shape: Shape) -> tf.Tensor:
    return tf.reshape(part, (-1, *shape))


_VERSION = 1
_ROWS, _STATE, _LOCK = "rows.bin", "state.json", "lock"
_SAVE_EVERY_S = 5.0
_SPARE_BYTES = 64 * 1000**2
"""Left free on the disk, beside the cache."""

OnRows = Callable[[int, int], None]
"""Told of the rows that are there and of all that there will be."""


def cache_key(parts: Mapping[str, object]) -> str:
    """Return the SHA-256, in hex, of everything that decides what a teacher gives: plain data."""
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
            hint="set distill.cache_dtype to float16 or topk, distill.teacher_cache to off, or"
            " SHRINK_CACHE_DIR to a larger disk",
        )


@dataclass(frozen=True)
class TeacherInputs:
    """What a teacher is run on, one input for each row: examples, or views of them.

    Attributes:
        examples: what it is about.
        total: rows.
        batches: the batches `(x, y)` of the rows from a given one on.
        start: the last row, not after a given one, that a batch can begin with.
    """

    examples: Examples
    total: int
    batches: Callable[[int], tf.data.Dataset]
    start: Callable[[int], int]


def every_example(examples: Examples, batch_size: int) -> TeacherInputs:
    """Return an input for each example, in their own order."""
    total = len(examples)

    def batches(done: int) -> tf.data.Dataset:
        return evaluation_batches(examples, batch_size, np.arange(done, total))

    return TeacherInputs(examples, total, batches, lambda done: done)


def every_view(examples: Examples, batch_size: int, seed: int, epochs: int) -> TeacherInputs:
    """Return an input for each example in each epoch, augmented, in the order of training.

    In the same batches too, for an augmentation may mix the examples of a batch.

    Args:
        examples: augmented ones.
        batch_size: the global batch size of the training.
        seed: of the training.
        epochs: of the training.
    """
    n = len(examples)
    steps = -(-n // batch_size)

    def start(done: int) -> int:
        epoch, position = divmod(done, n)
        return epoch * n + position // batch_size * batch_size

    def batches(done: int) -> tf.data.Dataset:
        epoch, position = divmod(done, n)
        return training_batches(
            examples,
            global_batch_size=batch_size,
            seed=seed,
            first_step=epoch * steps + position // batch_size,
            last_step=epochs * steps,
        )

    return TeacherInputs(examples, n * epochs, batches, start)


def write_cache(
    folder: Path,
    rows: Rows,
    teacher_inputs: TeacherInputs,
    teach: Teach,
    on_rows: OnRows = lambda done, total: None,
) -> bool:
    """Run the teacher on every input that is not in the cache yet.

    Args:
        folder: of this key alone; made where it is missing.
        rows: how outputs are stored.
        teacher_inputs: what to run it on.
        teach: the teacher.
        on_rows: told of the progress.

    Returns:
        Whether anything was missing.

    Raises:
        ResourceError: it does not fit on the disk.
        DataError: an example cannot be read.
    """
    files.make_folder(folder)
    with files.exclusive(folder / _LOCK):
        if is_complete(folder, rows, teacher_inputs.total):
            return False
        check_room(folder, rows.row_bytes * teacher_inputs.total)
        done = teacher_inputs.start(_rows_there(folder, rows, teacher_inputs.total))
        with files.appending(folder / _ROWS, done * rows.row_bytes) as stream:
            _append(folder, stream, rows, teacher_inputs, teach, done, on_rows)
        _save(folder, rows, teacher_inputs.total, files.sha256(folder / _ROWS))
        return True


def open_cache(folder: Path, rows: Rows, count: int) -> np.ndarray:
    """Return the rows of a complete cache, (count, columns), mapped into memory, not read."""
    (folder / _STATE).touch()  # used now: what was not for long is swept away
    return np.memmap(folder / _ROWS, rows.dtype, mode="r", shape=(count, rows.columns))


def is_complete(folder: Path, rows: Rows, count: int) -> bool:
    """Whether every row is there and as it was written."""
    state = _state(folder)
    if state.get("rows") != count or state.get("row_bytes") != rows.row_bytes:
        return False
    path = folder / _ROWS
    return path.is_file() and state.get("sha256") == files.sha256(path)


def _append(
    folder: Path,
    stream: BinaryIO,
    rows: Rows,
    teacher_inputs: TeacherInputs,
    teach: Teach,
    done: int,
    on_rows: OnRows,
) -> None:
    give = tf.function(lambda x: rows.encode(teach(x)), reduce_retracing=True)
    saved_at = time.monotonic()
    with naming_bad_examples(teacher_inputs.examples):
        for x, _ in teacher_inputs.batches(done):
            outputs = give(x).numpy()
            stream.write(np.ascontiguousarray(outputs, rows.dtype).data)
            done += len(outputs)
            on_rows(done, teacher_inputs.total)
            if time.monotonic() - saved_at > _SAVE_EVERY_S:
                stream.flush()
                files.sync(folder / _ROWS)
                _save(folder, rows, done, None)
                saved_at = time.monotonic()


def _rows_there(folder: Path, rows: Rows, count: int) -> int:
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
