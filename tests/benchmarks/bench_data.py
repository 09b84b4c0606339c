"""Memory and speed of reading data, side by side with `image_dataset_from_directory`.

    python -m tests.benchmarks.bench_data --data IMAGES [--repeats 3]

IMAGES is a folder of images by class, such as the train split of CIFAR-10 as JPEG files. Every
measurement runs in a process of its own. Memory is what the kernel's high-water mark (VmHWM)
rises by after TensorFlow is imported and has run one batch.
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.harness import apart, by_turns, say

_BATCH = 128


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of images by class")
    parser.add_argument("--repeats", type=int, default=3, help="of speed; 0 leaves it out")
    parser.add_argument("--counts", type=int, nargs="+", default=[5_000, 50_000, 500_000])
    parser.add_argument("--only-speed", action="store_true", help="leave memory out")
    arguments = parser.parse_args()
    images = arguments.data.resolve()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SHRINK_CACHE_DIR"] = f"{folder}/cache"
        if not arguments.only_speed:
            _memory_table(images, arguments.counts, Path(folder))
            _fingerprint_table(images)
            _membership_table(images)
        if arguments.repeats:
            _speed_table(images, arguments.repeats)


def _memory_table(images: Path, counts: list[int], folder: Path) -> None:
    say(f"{'files':>9} {'images read':>14} {'MB above TensorFlow':>20} {'images/s':>11}")
    for count in counts:
        listed = _listed(images, count, folder)
        found = apart(_stream, path=str(listed), source="images", batches=400)
        say(f"{count:>9,} {found['examples']:>14,} {found['mb']:>20.0f} {found['per_s']:>11,.0f}")


def _listed(images: Path, count: int, folder: Path) -> Path:
    """Write a CSV file of `count` rows, with every image as often as it takes."""
    files = sorted(p for p in images.rglob("*") if p.is_file())
    target = folder / f"{count}.csv"
    with target.open("w", encoding="utf-8") as stream:
        stream.write("path,label\n")
        chosen = np.random.default_rng(0).permutation(max(count, len(files)))[:count] % len(files)
        for index in chosen:
            stream.write(f"{files[index]},{files[index].parent.name}\n")
    return target


def _speed_table(images: Path, repeats: int) -> None:
    ways: dict[str, Callable[[], dict[str, Any]]] = {
        "image_dataset_from_directory": functools.partial(apart, _keras, path=str(images)),
        "shrink, images": functools.partial(apart, _stream, path=str(images), source="images"),
    }
    found = by_turns(ways, repeats)
    speeds = {name: [run["per_s"] for run in runs] for name, runs in found.items()}
    base = statistics.median(speeds["image_dataset_from_directory"])
    say(f"\n{'one epoch, shuffled':30} {'images/s (median)':>20} {'ratio':>6}")
    for name, values in speeds.items():
        median = statistics.median(values)
        say(f"{name:30} {median:>20,.0f} {median / base:>6.2f}")


def _fingerprint_table(images: Path) -> None:
    """Hash all images with nothing remembered and nothing in the page cache, then again."""
    files = [path for path in images.rglob("*") if path.is_file()]
    for path in files:
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
    say(f"\n{'fingerprint of':24} {'seconds':>8} {'MB above Python':>16}")
    for name in ("files not read before", "files known by stamps"):
        found = apart(_fingerprint, path=str(images))
        say(f"{len(files):,} {name:24} {found['s']:>8.2f} {found['mb']:>16.0f}")


def _fingerprint(path: str) -> dict[str, Any]:
    from shrink.data.config import DataConfig
    from shrink.data.fingerprint import fingerprint

    config = DataConfig.model_validate({"source": "images", "path": path})
    before, started = _high_water_mb(), time.perf_counter()
    fingerprint(config)
    return {"s": time.perf_counter() - started, "mb": _high_water_mb() - before}


def _membership_table(images: Path) -> None:
    """Say what it costs to know which examples are in which split, and in two of them."""
    for name in ("hashes not known", "hashes in the cache"):
        found = apart(_membership, path=str(images))
        say(f"\n{name}: CPU seconds, {found.pop('examples'):,} examples")
        for step, seconds in found.items():
            say(f"{step:24} {seconds:>8.2f}")


def _membership(path: str) -> dict[str, Any]:
    from shrink.data.config import DataConfig
    from shrink.data.fingerprint import fingerprint
    from shrink.data.opening import open_dataset

    config = DataConfig.model_validate({"source": "images", "path": path})
    times = [time.process_time()]
    fingerprint(config)
    times.append(time.process_time())
    dataset = open_dataset(config, 0)
    times.append(time.process_time())
    assert dataset.membership is not None
    counted = sum(map(len, dataset.membership().splits.values()))
    times.append(time.process_time())
    dataset.shared()
    times.append(time.process_time())
    steps = ("fingerprint", "open", "examples of each split", "examples in two splits")
    return {"examples": counted, **dict(zip(steps, np.diff(times).tolist(), strict=True))}


def _stream(path: str, source: str, batches: int | None = None) -> dict[str, Any]:
    """Read shuffled batches as training does."""
    import tensorflow as tf

    from shrink.data.config import DataConfig
    from shrink.data.opening import open_dataset
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
    """Read the same share of the same images with Keras' own function, as its guide shows."""
    import tensorflow as tf
    import tf_keras as keras
    from PIL import Image

    with Image.open(next(p for p in Path(path).rglob("*") if p.is_file())) as image:
        width, height = image.size
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


if __name__ == "__main__":
    main()
