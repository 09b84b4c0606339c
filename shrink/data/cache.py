"""Decoded examples cached in memory or in one file.

Shuffling and resuming need examples by number, and a generator has none. Each split becomes a
folder with a file of raw rows for every array, and a manifest that is written last.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from shrink.base import files
from shrink.base.cache import entry_path, key_of
from shrink.base.errors import DataError, ResourceError
from shrink.base.host import available_memory_bytes
from shrink.base.packages import versions
from shrink.base.types import Spec, leaves
from shrink.data.arrays import ArrayExamples, Rows, unmapped
from shrink.data.config import DataConfig
from shrink.data.examples import Batch, Examples, example_bytes, reading_batch
from shrink.data.fingerprint import fingerprint
from shrink.data.folders import ALL
from shrink.data.pipeline import evaluation_batches, naming_bad_examples
from shrink.data.views import View
from shrink.tflite.lazy import tf

_MANIFEST = "rows.json"
_LEAST_FREE_BYTES = 500 * 1000**2
_CHECKED_EVERY = 1000


Example = list[np.ndarray]
"""The arrays of one example, inputs first; every example has the same shapes and dtypes."""


def spooled(
    key: Callable[[], str],
    splits: Callable[[], Mapping[str, Iterable[Example]]],
    names: Sequence[str],
) -> dict[str, dict[str, np.ndarray]]:
    """Return the arrays of each split by name, each (rows, ...), mapped from the cache folder.

    Args:
        key: returns what decides the examples, a hash; the next stage with the same key reads them
            from the disk. Once they are written it may know more than before.
        splits: gives the examples of each split; called only where nothing is under this key.
        names: of the arrays of an example, in order.

    Raises:
        DataError: no examples, examples of different shapes or dtypes, or a name occurs twice.
        ResourceError: the disk is full.
    """
    folder = entry_path("spool", key())
    if not (folder / _MANIFEST).is_file():
        with files.replacing(folder) as temporary:
            temporary.mkdir()
            described = {
                split: _write(temporary / split, examples, names)
                for split, examples in splits().items()
            }
            (temporary / _MANIFEST).write_text(json.dumps(described), encoding="utf-8")
        made, folder = folder, entry_path("spool", key())
        if made != folder:  # the name by which they are found from now on
            shutil.rmtree(folder, ignore_errors=True)
            try:
                made.rename(folder)
            except OSError:  # another process wrote the same first
                folder = folder if (folder / _MANIFEST).is_file() else made
    manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
    return {
        split: {
            name: _mapped(folder / split / f"{index}.bin", shape, np.dtype(dtype))
            for index, (name, (shape, dtype)) in enumerate(arrays.items())
        }
        for split, arrays in manifest.items()
    }


def _write(
    folder: Path, examples: Iterable[Example], names: Sequence[str]
) -> dict[str, tuple[tuple[int, ...], str]]:
    """Write a file of raw rows for each array; return shape and dtype of each by name."""
    if len(set(names)) < len(names):
        raise DataError(
            "a name occurs twice", subject=", ".join(names), hint="give each array its own name"
        )
    folder.mkdir()
    first: Example = []
    rows = 0
    with ExitStack() as stack:
        streams = [
            stack.enter_context((folder / f"{index}.bin").open("wb")) for index in range(len(names))
        ]
        for example in examples:
            first = first or example
            if len(example) != len(names):
                raise DataError(f"example {rows} has {len(example)} arrays, not {len(names)}")
            for name, array, wanted, stream in zip(names, example, first, streams, strict=True):
                if (array.shape, array.dtype) != (wanted.shape, wanted.dtype):
                    raise DataError(
                        f"{name} of example {rows} is {array.dtype} of shape {array.shape}, and "
                        f"that of the first is {wanted.dtype} of shape {wanted.shape}",
                        hint="give every example the same shape and dtype",
                    )
                stream.write(np.ascontiguousarray(array).data)
            free = shutil.disk_usage(folder).free if rows % _CHECKED_EVERY == 0 else math.inf
            if free < _LEAST_FREE_BYTES:
                raise ResourceError(
                    f"{free / 1e9:.1f} GB are left on the disk that examples are written to",
                    subject=folder,
                    hint="free some space, choose another place with SHRINK_CACHE_DIR, or end the "
                    "stream of examples, for example with dataset.take(n)",
                )
            rows += 1
    if not rows:
        raise DataError("there are no examples", subject=", ".join(names))
    return {name: ((rows, *a.shape), a.dtype.str) for name, a in zip(names, first, strict=True)}


def _mapped(path: Path, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    if not math.prod(shape) * dtype.itemsize:
        return np.zeros(shape, dtype)
    return np.memmap(path, dtype, "r", shape=tuple(shape))


_AUTO_BYTES = 200 * 1000**2
_MOST_OF_MEMORY = 0.5


class CachedExamples(View):
    """Examples that are read once, in order, before the first batch is asked for.

    What reads single examples outside of training, such as calibration, does not fill the cache.

    Args:
        base: the examples.
        key: what decides them, for a cache on disk; None keeps them in memory.
    """

    def __init__(self, base: Examples, key: str | None) -> None:
        super().__init__(base)
        self._key = key
        self._kept: ArrayExamples | None = None

    def prepare(self) -> None:
        """Fill the cache, unless it is full.

        Raises:
            DataError: an example cannot be read, or memory is too short.
            ResourceError: the disk is full.
        """
        if self._kept is not None or not len(self):
            return
        specs = leaves((self.input_spec, self.target_spec))
        arrays: Sequence[Rows] = (
            self._in_memory(specs) if self._key is None else self._on_disk(len(specs))
        )
        x, y = tf.nest.pack_sequence_as((self.input_spec, self.target_spec), arrays)
        self._kept = ArrayExamples(x, y, np.arange(len(self)))

    def arrays(self, indices: np.ndarray) -> Batch:
        """Return a batch as arrays, from the cache where it is filled."""
        return (self._kept or self._base).arrays(indices)

    def _in_memory(self, specs: Sequence[Spec]) -> list[np.ndarray]:
        needed, available = _decoded_bytes(self._base), available_memory_bytes()
        if available is not None and needed > _MOST_OF_MEMORY * available:
            raise DataError(
                f"the examples take {needed / 1e9:.1f} GB decoded, and {available / 1e9:.1f} GB of "
                "memory are left",
                subject="data.cache",
                hint="set data.cache: disk, or none",
            )
        arrays = [np.empty((len(self), *spec.shape), spec.dtype) for spec in specs]
        for start, batch in self._batches():
            for array, part in zip(arrays, batch, strict=True):
                array[start : start + len(part)] = part
        return arrays

    def _on_disk(self, count: int) -> list[Rows]:
        def rows() -> Iterator[Example]:
            for _, batch in self._batches():
                yield from ([part[row] for part in batch] for row in range(len(batch[0])))

        names = [str(index) for index in range(count)]
        arrays = spooled(lambda: str(self._key), lambda: {ALL: rows()}, names)[ALL].values()
        return [unmapped(one) if isinstance(one, np.memmap) else one for one in arrays]

    def _batches(self) -> Iterator[tuple[int, list[np.ndarray]]]:
        start, batch = 0, reading_batch(self.input_spec, self.target_spec)
        with naming_bad_examples(self._base):
            for examples in evaluation_batches(self._base, batch).as_numpy_iterator():
                flat = leaves(examples)
                yield start, flat
                start += len(flat[0])


def cached(examples: Examples, split: str, config: DataConfig, seed: int) -> Examples:
    """Return examples as `config.cache` asks: themselves, or kept in memory or on disk.

    Args:
        examples: of one split.
        split: its name.
        config: the `data` section; auto keeps a split of up to 200 MB in memory, unless it is an
            array already.
        seed: decides which examples are in the split.
    """
    if config.cache == "memory":
        return CachedExamples(examples, None)
    if config.cache in ("auto", split):
        decoded = not isinstance(examples, ArrayExamples) or examples.is_decoded
        return CachedExamples(examples, None) if decoded and _fits(examples) else examples
    if config.cache != "disk":
        return examples
    relevant = config.model_dump_json(exclude={"path", "augment", "normalize", "cache"})
    key = key_of(fingerprint(config), relevant, split, str(seed), json.dumps(versions()))
    return CachedExamples(examples, key)


def _fits(examples: Examples) -> bool:
    """Whether examples are few enough to keep without being told to."""
    available = available_memory_bytes() or math.inf
    return _decoded_bytes(examples) <= min(_AUTO_BYTES, _MOST_OF_MEMORY * available)


def _decoded_bytes(examples: Examples) -> int:
    """Return the size of all examples as they are fed."""
    return len(examples) * example_bytes(examples.input_spec, examples.target_spec)
