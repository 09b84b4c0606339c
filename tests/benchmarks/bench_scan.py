"""How long the scan of a 100 MB model takes.

Run: python -m tests.benchmarks.bench_scan

Prints the longest scan of 2,000 damaged copies of small files, and the median of 5 for each form of
a large one: a `.keras` as Keras writes it (stored), one packed again by somebody else (deflated),
an `.h5`, and a SavedModel with as much in its variables.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import statistics
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np

from shrink.base.errors import ModelError
from shrink.model.scan import check_model_file
from tests.attacks.parts import archive, dense, h5, sequential
from tests.attacks.test_mutants import mutate
from tests.benchmarks.harness import say

_LAYERS, _SHAPE = 50, (1000, 500)
_RUNS = 5
_DENSE = {"module": "keras.layers", "class_name": "Dense", "registered_name": None}


def main() -> None:
    """Print a line for each form."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        say(f"longest of 2,000 damaged files {longest_s(folder, 2000):.3f} s")
        for path in (*archives(folder), hdf5(folder), saved_model(folder)):
            own = median_s(check_model_file, path)
            busy = median_s(check_model_file, path, time.process_time)
            times = f"{own:.3f} s ({busy:.3f} of the processor)"
            say(f"{path.name:16} {size_bytes(path) / 1e6:5.1f} MB  {times}")


def longest_s(folder: Path, count: int) -> float:
    """Return the longest that the scan of a damaged archive or HDF5 file took, in seconds."""
    config = sequential(dense(activation="relu"))
    sources = [archive(folder, config), h5(folder, config)]
    contents, chance, longest = [path.read_bytes() for path in sources], random.Random(0), 0.0
    for index in range(count):
        path = sources[index % 2]
        path.write_bytes(mutate(contents[index % 2], chance))
        started = time.perf_counter()
        with contextlib.suppress(ModelError):
            check_model_file(path)
        longest = max(longest, time.perf_counter() - started)
    return longest


def configuration() -> dict[str, object]:
    """Return a sequential model of dense layers."""
    entry = {"class_name": "InputLayer", "config": {"batch_input_shape": [None, _SHAPE[0]]}}
    layers = [
        {**_DENSE, "config": {"name": f"dense_{i}", "units": _SHAPE[1]}} for i in range(_LAYERS)
    ]
    return {"class_name": "Sequential", "config": {"name": "net", "layers": [entry, *layers]}}


def archives(folder: Path) -> list[Path]:
    """Write a `.keras` file, stored and deflated."""
    values, buffer, paths = np.random.default_rng(0), io.BytesIO(), []
    with h5py.File(buffer, "w") as file:
        for index in range(_LAYERS):
            group = file.create_group(f"layers/dense_{index}/vars")
            group["0"] = values.normal(size=_SHAPE).astype(np.float32)
            group["1"] = np.zeros(_SHAPE[1], np.float32)
    for name, kind in (("stored", zipfile.ZIP_STORED), ("deflated", zipfile.ZIP_DEFLATED)):
        paths.append(folder / f"{name}.keras")
        with zipfile.ZipFile(paths[-1], "w", kind) as archive:
            archive.writestr("metadata.json", json.dumps({"keras_version": "3.15.0"}))
            archive.writestr("config.json", json.dumps(configuration()))
            archive.writestr("model.weights.h5", buffer.getvalue())
    return paths


def hdf5(folder: Path) -> Path:
    """Write an `.h5` file."""
    values = np.random.default_rng(0)
    with h5py.File(folder / "model.h5", "w") as file:
        file.attrs["model_config"] = json.dumps(configuration())
        for index in range(_LAYERS):
            file[f"model_weights/dense_{index}/kernel:0"] = values.normal(size=_SHAPE).astype("f4")
    return folder / "model.h5"


def saved_model(folder: Path) -> Path:
    """Write a SavedModel of 2,000 additions; what matters is that its variables are not read."""
    node = b"\x0a\x01n\x12\x03Add"
    graph = b"".join(b"\x0a" + bytes([len(node)]) + node for _ in range(2000))
    target = folder / "saved"
    (target / "variables").mkdir(parents=True)
    body = b"\x12" + _varint(len(graph)) + graph
    (target / "saved_model.pb").write_bytes(b"\x12" + _varint(len(body)) + body)
    (target / "variables" / "variables.data-00000-of-00001").write_bytes(bytes(100_000_000))
    return target


def median_s(
    scan: Callable[[Path], object],
    path: Path,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Return the median seconds of a scan, by the wall clock or another."""
    times = []
    for _ in range(_RUNS):
        started = clock()
        scan(path)
        times.append(clock() - started)
    return statistics.median(times)


def size_bytes(path: Path) -> int:
    """Return the bytes of a file or of all files of a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


if __name__ == "__main__":
    main()
