"""Memory and speed of reading data, side by side with `image_dataset_from_directory`.

    python -m tests.benchmarks.bench_data --data PICTURES [--huge]

PICTURES is a folder of pictures by class, such as the train split of CIFAR-10 as JPEG files. Every
measurement runs in a process of its own. Memory is what the kernel's high-water mark (VmHWM)
rises by after TensorFlow is imported and has run one batch. `--huge` reads batches from sparse
files of 40 GB.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

_BATCH = 128
_HUGE_BYTES = 40 * 1000**3
_HUGE_SHAPE = (96, 96, 3)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of pictures by class")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--counts", type=int, nargs="+", default=[5_000, 50_000, 500_000])
    parser.add_argument("--huge", action="store_true")
    parser.add_argument("--only-speed", action="store_true", help="leave memory out")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        call = json.loads(arguments.child)
        _say(json.dumps(_CHILDREN[call.pop("action")](**call)))
        return
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SHRINK_CACHE_DIR"] = f"{folder}/cache"
        if arguments.data:
            if not arguments.only_speed:
                _memory_table(arguments.data, arguments.counts, Path(folder))
            _speed_table(arguments.data, arguments.repeats, Path(folder))
        if arguments.huge:
            _huge_table(Path(folder))


def _memory_table(pictures: Path, counts: list[int], folder: Path) -> None:
    _say(f"{'files':>9} {'pictures read':>14} {'MB above TensorFlow':>20} {'pictures/s':>11}")
    for count in counts:
        listed = _listed(pictures, count, folder)
        found = _child(action="stream", path=str(listed), source="images", batches=400)
        _say(f"{count:>9,} {found['examples']:>14,} {found['mb']:>20.0f} {found['per_s']:>11,.0f}")


def _listed(pictures: Path, count: int, folder: Path) -> Path:
    """Write a CSV file of `count` rows, with every picture as often as it takes."""
    files = sorted(p for p in pictures.rglob("*") if p.is_file())
    target = folder / f"{count}.csv"
    with target.open("w", encoding="utf-8") as stream:
        stream.write("path,label\n")
        chosen = np.random.default_rng(0).permutation(max(count, len(files)))[:count] % len(files)
        for index in chosen:
            stream.write(f"{files[index]},{files[index].parent.name}\n")
    return target


def _speed_table(pictures: Path, repeats: int, folder: Path) -> None:
    packed = folder / "packed"
    command = ("data", "pack", str(pictures), "--output", str(packed), "--quiet")
    subprocess.run([sys.executable, "-m", "shrink", *command], check=True)
    ways: dict[str, dict[str, Any]] = {
        "image_dataset_from_directory": {"action": "keras", "path": str(pictures)},
        "shrink, pictures": {"action": "stream", "path": str(pictures), "source": "images"},
        "shrink, packed": {"action": "stream", "path": str(packed), "source": "tfrecord"},
    }
    speeds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):  # in turn, so that a busy minute meets all of them
        for name, call in ways.items():
            speeds[name].append(_child(**call)["per_s"])
    base = statistics.median(speeds["image_dataset_from_directory"])
    _say(f"\n{'one epoch, shuffled':30} {'pictures/s (median)':>20} {'ratio':>6}")
    for name, values in speeds.items():
        median = statistics.median(values)
        _say(f"{name:30} {median:>20,.0f} {median / base:>6.2f}")


def _huge_table(folder: Path) -> None:
    _say(f"\n{'a sparse file of 40 GB':30} {'MB above TensorFlow':>20} {'read, MB':>9}")
    for source, write in (("npz", _huge_npz), ("hdf5", _huge_hdf5)):
        path = write(folder)
        found = _child(action="stream", path=str(path), source=source, batches=400)
        _say(f"{source:30} {found['mb']:>20.0f} {found['read_mb']:>9,.0f}")
        path.unlink()


def _huge_rows() -> int:
    return _HUGE_BYTES // (int(np.prod(_HUGE_SHAPE)) * 4)


def _huge_npz(folder: Path) -> Path:
    """Write an .npz file whose x is a hole of 40 GB."""
    import io
    import struct

    def header(shape: tuple[int, ...], dtype: str) -> bytes:
        stream = io.BytesIO()
        described = {"descr": dtype, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(stream, described)
        return stream.getvalue()

    rows, path = _huge_rows(), folder / "huge.npz"
    labels = np.arange(rows, dtype=np.int64) % 10
    members = {
        "x.npy": (header((rows, *_HUGE_SHAPE), "<f4"), rows * int(np.prod(_HUGE_SHAPE)) * 4),
        "y.npy": (header((rows,), "<i8") + labels.tobytes(), 0),
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


def _huge_hdf5(folder: Path) -> Path:
    """Write an HDF5 file whose x is a hole of 40 GB."""
    import h5py

    rows, path = _huge_rows(), folder / "huge.h5"
    with h5py.File(path, "w") as file:
        layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        layout.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        layout.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        space = h5py.h5s.create_simple((rows, *_HUGE_SHAPE))
        h5py.h5d.create(file.id, b"x", h5py.h5t.IEEE_F32LE, space, layout)
        file["y"] = np.arange(rows) % 10
    return path


def _child(**call: Any) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.benchmarks.bench_data", "--child", json.dumps(call)]
    environment = {**os.environ, "TF_USE_LEGACY_KERAS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _stream(path: str, source: str, batches: int | None = None) -> dict[str, Any]:
    """Read shuffled batches as training does."""
    import tensorflow as tf

    from shrink.data.config import DataConfig
    from shrink.data.dataset import open_dataset
    from shrink.data.pipeline import training_batches

    list(tf.data.Dataset.range(3).map(lambda i: tf.image.resize(tf.ones((8, 8, 3)), (4, 4))))
    before = _high_water_mb()
    config = DataConfig.model_validate({"source": source, "path": path})
    train = open_dataset(config, 0).train
    steps = min(batches or 1 << 40, -(-len(train) // _BATCH))
    dataset = training_batches(
        train, global_batch_size=_BATCH, seed=0, first_step=0, last_step=steps
    )
    found = _timed(dataset)
    size = sum(int(np.prod(s.shape[1:])) * s.dtype.size for s in dataset.element_spec)
    read_mb = found["examples"] * size / 1e6
    return {**found, "mb": _high_water_mb() - before, "read_mb": read_mb}


def _keras(path: str) -> dict[str, Any]:
    """Read the same share of the same pictures with Keras' own function, as its guide shows."""
    import tensorflow as tf
    import tf_keras as keras
    from PIL import Image

    with Image.open(next(p for p in Path(path).rglob("*") if p.is_file())) as picture:
        width, height = picture.size
    dataset = keras.utils.image_dataset_from_directory(
        path, image_size=(height, width), batch_size=_BATCH, validation_split=0.3,
        subset="training", seed=0,
    )  # fmt: skip
    return _timed(dataset.prefetch(tf.data.AUTOTUNE))


def _timed(dataset: Any) -> dict[str, Any]:
    """Return examples, and examples per second from the second batch on."""
    batches = iter(dataset)
    examples = len(next(batches)[1])
    started = time.perf_counter()
    timed = sum(int(y.shape[0]) for _, y in batches)
    seconds = time.perf_counter() - started
    return {"examples": examples + timed, "per_s": timed / max(seconds, 1e-9)}


def _high_water_mb() -> float:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1e3


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


_CHILDREN: dict[str, Callable[..., dict[str, Any]]] = {"stream": _stream, "keras": _keras}

if __name__ == "__main__":
    main()
