"""Examples kept as they are fed, in memory or on disk, so that each is decoded only once."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from shrink.base.errors import DataError
from shrink.base.versions import versions
from shrink.data.arrays import ArrayExamples
from shrink.data.config import DataConfig
from shrink.data.examples import Examples, example_bytes, reading_batch
from shrink.data.fingerprint import fingerprint
from shrink.data.npz_members import available_memory_bytes
from shrink.data.pipeline import evaluation_batches, naming_bad_examples
from shrink.data.spool import ALL, Example, spooled

_AUTO_BYTES = 200 * 1000**2
_MOST_OF_MEMORY = 0.5


class CachedExamples:
    """Examples that are read once, in order, before the first batch is asked for.

    What reads single examples outside of training, such as calibration, does not fill the cache.

    Args:
        base: the examples.
        key: what decides them, for a cache on disk; None keeps them in memory.
    """

    def __init__(self, base: Examples, key: str | None) -> None:
        self._base = base
        self._key = key
        self._kept: ArrayExamples | None = None
        self.labels = base.labels
        self.input_spec = base.input_spec
        self.target_spec = base.target_spec

    def __len__(self) -> int:
        return len(self._base)

    def prepare(self) -> None:
        """Fill the cache, unless it is full.

        Raises:
            DataError: an example cannot be read, or memory is too short.
            ResourceError: the disk is full.
        """
        if self._kept is not None or not len(self):
            return
        specs = tf.nest.flatten((self.input_spec, self.target_spec))
        arrays = self._on_disk(len(specs)) if self._key is not None else self._in_memory(specs)
        x, y = tf.nest.pack_sequence_as((self.input_spec, self.target_spec), arrays)
        self._kept = ArrayExamples(x, y, np.arange(len(self)))

    def load(self, indices: tf.Tensor) -> tuple[Any, Any]:
        """Return a batch as tensors, from the cache where it is filled."""
        return (self._kept or self._base).load(indices)

    def arrays(self, indices: np.ndarray) -> tuple[Any, Any]:
        """Return a batch as arrays, from the cache where it is filled."""
        return (self._kept or self._base).arrays(indices)

    def explain(self, indices: np.ndarray) -> DataError | None:
        """Return the error of the first example that cannot be read, or None."""
        return (self._kept or self._base).explain(indices)

    def _in_memory(self, specs: list[Any]) -> list[np.ndarray]:
        needed, available = _decoded_bytes(self._base), available_memory_bytes()
        if available is not None and needed > _MOST_OF_MEMORY * available:
            raise DataError(
                f"the examples take {needed / 1e9:.1f} GB decoded, and {available / 1e9:.1f} GB of "
                "memory are left",
                subject="data.cache",
                hint="set data.cache: disk, or none",
            )
        arrays = [
            np.empty((len(self), *spec.shape.as_list()), spec.dtype.as_numpy_dtype)
            for spec in specs
        ]
        for start, batch in self._batches():
            for array, part in zip(arrays, batch, strict=True):
                array[start : start + len(part)] = part
        return arrays

    def _on_disk(self, count: int) -> list[np.ndarray]:
        def rows() -> Iterator[Example]:
            for _, batch in self._batches():
                yield from ([part[row] for part in batch] for row in range(len(batch[0])))

        names = [str(place) for place in range(count)]
        return list(spooled(lambda: str(self._key), lambda: {ALL: rows()}, names)[ALL].values())

    def _batches(self) -> Iterator[tuple[int, list[np.ndarray]]]:
        start, batch = 0, reading_batch(self.input_spec, self.target_spec)
        with naming_bad_examples(self._base):
            for found in evaluation_batches(self._base, batch).as_numpy_iterator():
                flat = tf.nest.flatten(found)
                yield start, flat
                start += len(flat[0])


def cached(examples: Examples, part: str, config: DataConfig, seed: int) -> Examples:
    """Return examples as `config.cache` asks: themselves, or kept in memory or on disk.

    Args:
        examples: of one part.
        part: its name.
        config: the `data` section; auto keeps a part of up to 200 MB in memory, unless it is an
            array already.
        seed: decides which examples are in the part.
    """
    if config.cache == "memory":
        return CachedExamples(examples, None)
    if config.cache in ("auto", part):
        decoded = not isinstance(examples, ArrayExamples)
        return CachedExamples(examples, None) if decoded and _fits(examples) else examples
    if config.cache != "disk":
        return examples
    relevant = config.model_dump_json(exclude={"path", "augment", "normalize", "cache"})
    decoders = json.dumps(versions())
    described = "\0".join([fingerprint(config), relevant, part, str(seed), decoders])
    return CachedExamples(examples, hashlib.sha256(described.encode()).hexdigest())


def _fits(examples: Examples) -> bool:
    """Whether examples are few enough to keep without being told to."""
    available = available_memory_bytes() or math.inf
    return _decoded_bytes(examples) <= min(_AUTO_BYTES, _MOST_OF_MEMORY * available)


def _decoded_bytes(examples: Examples) -> int:
    """Return the size of all examples as they are fed."""
    return len(examples) * example_bytes(examples.input_spec, examples.target_spec)
