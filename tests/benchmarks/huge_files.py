"""Sparse files of 40 GB that hold examples: their inputs are holes, which read as zeros."""

from __future__ import annotations

import io
import os
import struct
from pathlib import Path

import numpy as np

HUGE_BYTES = 40 * 1000**3
SHAPE = (96, 96, 3)
"""Of one example, float32."""
_RECORD_SHAPE = (512, 512, 3)


def rows(shape: tuple[int, ...] = SHAPE) -> int:
    """Return how many examples of float32 fill the file."""
    return HUGE_BYTES // (int(np.prod(shape)) * 4)


def write_npz(folder: Path) -> Path:
    """Write an .npz file whose x is a hole."""

    def header(shape: tuple[int, ...], dtype: str) -> bytes:
        stream = io.BytesIO()
        described = {"descr": dtype, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(stream, described)
        return stream.getvalue()

    count, path = rows(), folder / "huge.npz"
    labels = np.arange(count, dtype=np.int64) % 10
    members = {
        "x.npy": (header((count, *SHAPE), "<f4"), count * int(np.prod(SHAPE)) * 4),
        "y.npy": (header((count,), "<i8") + labels.tobytes(), 0),
    }
    directory = b""
    with path.open("wb") as stream:
        for name, (content, hole) in members.items():
            offset, size = stream.tell(), len(content) + hole
            # zip64: sizes of 32 bits are all ones, the real ones stand in the extra field.
            extra = struct.pack("<HHQQ", 1, 16, size, size)
            common = struct.pack("<HHHHHLLLHH", 45, 0, 0, 0, 33, 0, 2**32 - 1, 2**32 - 1,
                                 len(name), len(extra))  # fmt: skip
            stream.write(b"PK\x03\x04" + common + name.encode() + extra + content)
            stream.seek(hole, os.SEEK_CUR)
            extra = struct.pack("<HHQQQ", 1, 24, size, size, offset)
            common = struct.pack("<HHHHHHLLLHHHHHLL", 45, 45, 0, 0, 0, 33, 0, 2**32 - 1, 2**32 - 1,
                                 len(name), len(extra), 0, 0, 0, 0, 2**32 - 1)  # fmt: skip
            directory += b"PK\x01\x02" + common + name.encode() + extra
        start = stream.tell()
        stream.write(directory)
        end = stream.tell()
        counts = (len(members), len(members), len(directory), start)
        stream.write(struct.pack("<4sQHHLLQQQQ", b"PK\x06\x06", 44, 45, 45, 0, 0, *counts))
        stream.write(struct.pack("<4sLQL", b"PK\x06\x07", 0, end, 1))
        stream.write(struct.pack("<4sHHHHLLH", b"PK\x05\x06", 0, 0, 2, 2, 2**32 - 1, 2**32 - 1, 0))
    return path


def write_hdf5(folder: Path) -> Path:
    """Write an HDF5 file whose x is a hole."""
    import h5py

    path = folder / "huge.h5"
    with h5py.File(path, "w") as file:
        layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        layout.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        layout.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        space = h5py.h5s.create_simple((rows(), *SHAPE))
        h5py.h5d.create(file.id, b"x", h5py.h5t.IEEE_F32LE, space, layout)
        file["y"] = np.arange(rows()) % 10
    return path


def write_tfrecord(folder: Path) -> Path:
    """Write a TFRecord file of images whose pixels are holes: 3 MB each, so that it is sparse.

    Checksums are right, as the first pass over the labels checks every one.
    """
    import tensorflow as tf

    path, size = folder / "huge.tfrecord", int(np.prod(_RECORD_SHAPE)) * 4
    record = folder / "one.tfrecord"
    parts = []
    for label in range(10):
        with tf.io.TFRecordWriter(str(record)) as writer:
            x = tf.train.Feature(bytes_list=tf.train.BytesList(value=[bytes(size)]))
            y = tf.train.Feature(int64_list=tf.train.Int64List(value=[label]))
            features = tf.train.Features(feature={"x": x, "y": y})
            writer.write(tf.train.Example(features=features).SerializeToString())
        content = record.read_bytes()
        hole = content.index(bytes(size))
        parts.append((content[:hole], content[hole + size :]))
    with path.open("wb") as stream:
        for number in range(rows(_RECORD_SHAPE)):
            head, tail = parts[number % 10]
            stream.write(head)
            stream.seek(size, os.SEEK_CUR)
            stream.write(tail)
    return path


TFRECORD_FEATURES = {
    "x": {"type": "raw", "dtype": "float32", "shape": list(_RECORD_SHAPE)},
    "y": {"type": "int64"},
}
"""The `data.features` of `write_tfrecord`."""
