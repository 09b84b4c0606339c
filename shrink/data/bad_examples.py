"""Images that cannot be decoded: found in parallel, remembered, and left out where asked."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple

import numpy as np
import tensorflow as tf

from shrink.base import files
from shrink.base.cache import entry_path, keep, key_of
from shrink.base.errors import DataError
from shrink.base.packages import versions
from shrink.data.config import DataConfig
from shrink.data.decoding import ImageDecoder
from shrink.data.fingerprint import fingerprint
from shrink.data.folders import Names, shown

_CHUNK = 64
_CHUNK_OF_LARGE = 4
_MOST_NAMED = 10

Splits = Mapping[str, tuple[Names, np.ndarray]]


class SkippedNote(str):
    """A note on examples that were left out, as they cannot be decoded."""


def _bad_files(
    paths: Sequence[str], decoder: ImageDecoder, on_progress: Callable[[int], None] | None
) -> dict[str, str]:
    """Return why each image that cannot be used cannot, in the order of `paths`."""
    size = _CHUNK if decoder.reads_batches else _CHUNK_OF_LARGE
    chunks = [paths[start : start + size] for start in range(0, len(paths), size)]
    all_decode = _compiled(decoder)

    def check(chunk: Sequence[str]) -> dict[str, str]:
        errors = {} if all_decode(chunk) else {path: decoder.explain(path) for path in chunk}
        if on_progress is not None:
            on_progress(len(chunk))
        return {path: str(error) for path, error in errors.items() if error is not None}

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return {path: error for bad in pool.map(check, chunks) for path, error in bad.items()}


def _compiled(decoder: ImageDecoder) -> Callable[[Sequence[str]], bool]:
    """Return what tells whether all of some files decode, at a tenth of the cost of asking why."""

    def decode(contents: tf.Tensor) -> tf.Tensor:
        images = tf.map_fn(
            decoder.decode,
            contents,
            fn_output_signature=decoder.spec,
            parallel_iterations=decoder.parallel_decodes,
        )
        return tf.shape(images)

    compiled = tf.function(decode, input_signature=[tf.TensorSpec([None], tf.string)])

    def all_decode(paths: Sequence[str]) -> bool:
        try:
            with tf.device("CPU:0"):
                compiled(tf.constant([decoder.read(os.fsencode(path)) for path in paths]))
        except (tf.errors.OpError, DataError):
            return False
        return True

    return all_decode


def without_bad_files(
    splits: Splits, decoder: ImageDecoder, config: DataConfig
) -> tuple[dict[str, tuple[Names, np.ndarray]], tuple[str, ...]]:
    """Return the splits without images that cannot be decoded, and what the report says of it.

    The first stage looks at every image; later ones, and later runs on the same files, take
    its word from the cache folder.

    Raises:
        DataError: more than `config.bad_examples_limit` of them.
    """
    every = [path for paths, _ in splits.values() for path in paths]
    bad = remembered_bad_files(every, decoder, config)
    if not bad:
        return dict(splits), ()
    named = ", ".join(shown(path) for path in list(bad)[:_MOST_NAMED])
    more = f" and {len(bad) - _MOST_NAMED} more" if len(bad) > _MOST_NAMED else ""
    if len(bad) > config.bad_examples_limit * len(every):
        raise DataError(
            f"{len(bad)} of {len(every):,} images cannot be decoded, more than "
            f"{config.bad_examples_limit:.2%}: {named}{more}",
            subject=shown(config.path or ""),
            hint=f"shrink data check {shown(config.path or '')} says why; mend them, or raise "
            "data.bad_examples_limit",
        )
    kept = {}
    for split, (paths, targets) in splits.items():
        good = [index for index, path in enumerate(paths) if path not in bad]
        kept[split] = (paths.take(good), targets[good])
    note = f"skipped {len(bad)} of {len(every):,} images that cannot be decoded: {named}{more}"
    return kept, (SkippedNote(note),)


def remembered_bad_files(
    paths: Sequence[str],
    decoder: ImageDecoder,
    config: DataConfig,
    on_progress: Callable[[int], None] | None = None,
) -> dict[str, str]:
    """Return what is wrong with each bad image, from the cache folder where it was found out.

    Args:
        paths: of all images.
        decoder: decides what can be used.
        config: the `data` section.
        on_progress: called with the number of images done since the last call, by any thread.
    """
    decoders = json.dumps(versions())
    settings = [fingerprint(config), decoders, *map(str, astuple(decoder)), *sorted(paths)]
    memory = entry_path("checked", key_of(*settings), ".json")
    try:
        known = json.loads(memory.read_text("utf-8", "surrogateescape"))
        if isinstance(known, dict) and known.keys() <= set(paths):
            return {path: str(text) for path, text in known.items()}
    except (OSError, ValueError):
        pass
    errors = _bad_files(paths, decoder, on_progress)
    keep(memory, files.encoded(files.json_text(errors)))
    return errors
