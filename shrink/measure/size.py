"""Sizes of an artifact: bytes, parameters, multiply-accumulates."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import tf_keras as keras

from shrink.base.files import size_bytes
from shrink.graph.macs import macs_figure
from shrink.tflite.flatbuffer import nonzero_parameters, parameters, weights

_GZIP = zlib.MAX_WBITS | 16  # with a gzip header, whose time stamp zlib leaves at 0
_MANY_ZEROS = 0.3
_CHUNK_BYTES = 1 << 20


def measure_sizes(
    artifact: Path, tflite: Path, model: keras.Model | None
) -> tuple[dict[str, int | None], list[str]]:
    """Return the sizes of a stage's artifact, by the keys of the report's `size`.

    Args:
        artifact: what the stage made, a file or a folder: `file_bytes`, `gzip_bytes` (level 9).
        tflite: the artifact, or its float32 conversion: `tflite_bytes`, `macs` per example.
        model: where given, `parameters` and `nonzero_parameters` count all its weights, trainable
            or not; otherwise they come from `tflite`.

    Returns:
        The sizes, and notes for the report: `macs` is None, with a note, where it cannot be told.

    Raises:
        ModelError: `tflite` is no TFLite model.
    """
    content = tflite.read_bytes()
    if model is None:
        total, nonzero = parameters(content), nonzero_parameters(content)
    else:
        total, nonzero = int(model.count_params()), _nonzero(model)
    macs = macs_figure(content)
    sizes = {
        "file_bytes": size_bytes(artifact),
        "gzip_bytes": gzip_bytes(artifact),
        "tflite_bytes": len(content),
        "parameters": total,
        "nonzero_parameters": nonzero,
        "macs": macs.value,
    }
    return sizes, [f"macs: {macs.note}"] if macs.note else []


def zeros_note(size: Mapping[str, int | None], tflite: Path) -> list[str]:
    """Return a sentence on what zeros do not save, where many parameters are zero and stored.

    Args:
        size: what `measure_sizes` returned.
        tflite: the file that it looked at.
    """
    zeros = 1 - (size["nonzero_parameters"] or 0) / max(size["parameters"] or 0, 1)
    if zeros < _MANY_ZEROS or any(tensor.sparse for tensor in weights(tflite.read_bytes())):
        return []
    return [
        f"{zeros:.0%} of the parameters are zero, which does not shrink the TFLite file: it holds "
        f"each of them in its {size['tflite_bytes']:,} bytes, of which gzip -9 makes "
        f"{gzip_bytes(tflite):,}; quantize with `sparse: true` leaves them out where it can"
    ]


def gzip_bytes(path: Path) -> int:
    """Return the bytes that `gzip -9` makes of a file, or of a folder's files one after another."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, _GZIP)
    size = sum(len(compressor.compress(chunk)) for chunk in _chunks(path))
    return size + len(compressor.flush())


def _nonzero(model: keras.Model) -> int:
    return sum(int(np.count_nonzero(array)) for array in model.get_weights())


def _chunks(path: Path) -> Iterator[bytes]:
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    for file in files:
        with file.open("rb") as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                yield chunk
