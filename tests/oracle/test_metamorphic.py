"""What must not change a figure: names, orders, shards, places, keys that have nothing to do."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import tf_keras as keras
import yaml

from tests.oracle.audit import figures
from tests.oracle.drive import Done, Fork

layers = keras.layers
CLASSES, TEST = 4, 200
MOVED_BY_NAMES = (
    "file_bytes gzip_bytes tflite_bytes arena_bytes arena_estimate_bytes arena_32_bytes"
    " arena_32_reference_bytes"
)

Arrays = dict[str, Any]


@pytest.fixture(scope="module")
def fork(tmp_path_factory: pytest.TempPathFactory) -> Fork:
    return Fork(tmp_path_factory.mktemp("store"))


def _model(names: tuple[str, str] = ("a", "b")) -> keras.Model:
    """Two inputs of one shape, the second a hundred times as large.

    All have names of their own: counted ones are bytes of files, and one byte more from 9 to 10.
    """
    keras.utils.set_random_seed(0)
    one, other = (layers.Input((6,), name=name) for name in names)
    small = layers.Rescaling(1 / 100, name="small")(other)
    joined = layers.Concatenate(name="joined")([one, small])
    x = layers.Dense(16, activation="relu", name="hidden")(joined)
    outputs = layers.Dense(CLASSES, kernel_initializer="random_normal", name="kind")(x)
    model = keras.Model([one, other], outputs, name="two_inputs")
    kernel, bias = model.get_layer("kind").get_weights()
    model.get_layer("kind").set_weights([kernel * 40, bias])
    return model


def _arrays(model: keras.Model) -> Arrays:
    """Return splits whose labels are the model's, but for a few."""
    rng = np.random.default_rng(1)
    found: Arrays = {}
    for split, n in (("train", 64), ("validation", 24), ("test", TEST)):
        a = rng.normal(size=(n, 6)).astype(np.float32)
        b = (100 * rng.normal(size=(n, 6))).astype(np.float32)
        label = np.asarray(model([a, b])).argmax(-1)
        other = rng.random(n) < 0.2
        label = np.where(other, rng.integers(0, CLASSES, n), label)
        found |= {f"a_{split}": a, f"b_{split}": b, f"kind_{split}": label}
    return found


def _run(
    fork: Fork,
    folder: Path,
    arrays: Arrays,
    model: keras.Model | None = None,
    names: tuple[str, str] = ("a", "b"),
    stages: list[Any] | None = None,
) -> dict[str, Any]:
    """Run a recipe over the arrays, and return its report."""
    folder.mkdir(parents=True, exist_ok=True)
    (model or _model()).save(folder / "model.keras")
    np.savez(folder / "data.npz", **arrays)
    data = {"source": "npz", "path": "data.npz", "inputs": list(names), "targets": ["kind"]}
    if not stages:
        return _evaluated(fork, folder, data, "out")
    recipe = {"name": "same", "model": "model.keras", "data": data, "stages": stages}
    _write(folder / "recipe.yaml", recipe)
    return _report(fork.run(["run", "recipe.yaml", "--output", "out"], folder), folder / "out")


def _evaluated(fork: Fork, folder: Path, data: Mapping[str, Any], output: str) -> dict[str, Any]:
    """Measure `model.keras` on the data, and return the report."""
    _write(folder / f"{output}.yaml", {"data": data})
    words = ["evaluate", "model.keras", "--data", f"{output}.yaml", "--output", output]
    return _report(fork.run(words, folder), folder / output)


def _write(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(yaml.safe_dump(dict(content), sort_keys=False), encoding="utf-8")


def _report(done: Done, folder: Path) -> dict[str, Any]:
    assert done.code == 0, done.printed
    report: dict[str, Any] = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    return report


def _known(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures that do not depend on the machine."""
    exact = {k: v for k, v in figures(entry).items() if not k.endswith(("_ms", "peak_bytes"))}
    ends = {
        f"{name}.{end}": interval[end]
        for name, interval in entry["intervals"].items()
        for end in ("low", "high")
    }
    return {**exact, **entry["metrics"], **ends}


def _assert_same(one: Mapping[str, Any], other: Mapping[str, Any], *, but: str = "") -> None:
    for before, after in zip(one["stages"], other["stages"], strict=True):
        known = _known(after)
        for name, value in _known(before).items():
            if name not in but.split():
                wanted = value if value is None else pytest.approx(value, rel=1e-6)
                assert known[name] == wanted, (before["name"], name)


@pytest.fixture(scope="module")
def base(fork: Fork, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    folder = tmp_path_factory.mktemp("base") / "run"
    stages = [{"quantize": {"scheme": "static_wi8_ai8", "calibration_samples": 48}}]
    return _run(fork, folder, _arrays(_model()), stages=stages), folder


def test_base_is_worth_comparing(base: tuple[dict[str, Any], Path]) -> None:
    baseline, quantized = base[0]["stages"]
    assert baseline["metrics"]["accuracy"] > 0.7
    assert quantized["metrics"]["accuracy"] > 0.7


@pytest.mark.parametrize("names", [pytest.param(("z", "a"), marks=pytest.mark.slow), ("b", "a")])
def test_names_of_inputs_change_nothing(
    names: tuple[str, str], base: tuple[dict[str, Any], Path], fork: Fork, tmp_path: Path
) -> None:
    arrays = {}
    for key, value in _arrays(_model()).items():
        kind, _, split = key.partition("_")
        arrays[f"{dict(zip(('a', 'b'), names, strict=True)).get(kind, kind)}_{split}"] = value
    stages = [{"quantize": {"scheme": "static_wi8_ai8", "calibration_samples": 48}}]
    renamed = _run(fork, tmp_path, arrays, _model(names), names, stages)
    # Names are bytes of files, and an order of operands moves a byte of padding.
    _assert_same(base[0], renamed, but=MOVED_BY_NAMES)


def test_order_of_classes_changes_nothing(
    base: tuple[dict[str, Any], Path], fork: Fork, tmp_path: Path
) -> None:
    order = np.array([2, 0, 3, 1])  # the class that was `order[i]` is now `i`
    model = _model()
    kernel, bias = model.get_layer("kind").get_weights()
    model.get_layer("kind").set_weights([kernel[:, order], bias[order]])
    arrays = _arrays(_model())
    for split in ("train", "validation", "test"):
        arrays[f"kind_{split}"] = np.argsort(order)[arrays[f"kind_{split}"]]
    permuted = _run(fork, tmp_path, arrays, model)
    first = {"stages": base[0]["stages"][:1]}
    _assert_same(first, permuted, but="file_bytes gzip_bytes")


def test_test_split_twice_gives_the_values_again_and_narrower_intervals(
    base: tuple[dict[str, Any], Path], fork: Fork, tmp_path: Path
) -> None:
    arrays = _arrays(_model())
    for name in ("a_test", "b_test", "kind_test"):
        arrays[name] = np.concatenate([arrays[name], arrays[name]])
    before, after = base[0]["stages"][0], _run(fork, tmp_path, arrays)["stages"][0]
    assert after["examples"] == 2 * before["examples"]
    for name, value in before["metrics"].items():
        assert after["metrics"][name] == pytest.approx(value, rel=1e-6)
        wide, narrow = (e["intervals"][name] for e in (before, after))
        ratio = (wide["high"] - wide["low"]) / (narrow["high"] - narrow["low"])
        # What corrects a mean's interval for skewness falls with n, not with its root.
        slack = 0.03 if name == "accuracy" else 0.1
        assert ratio == pytest.approx(np.sqrt(2), rel=slack)


def test_folder_that_moved_takes_everything_from_the_store(
    base: tuple[dict[str, Any], Path], fork: Fork, tmp_path: Path
) -> None:
    moved = tmp_path / "elsewhere"
    shutil.copytree(base[1], moved, ignore=shutil.ignore_patterns("out"))
    report = _report(fork.run(["run", "recipe.yaml", "--output", "other"], moved), moved / "other")
    assert [stage["status"] for stage in report["stages"]] == ["cached", "cached"]
    _assert_same(base[0], report)


def test_keys_that_have_nothing_to_do_with_a_baseline_change_nothing(
    base: tuple[dict[str, Any], Path], fork: Fork
) -> None:
    settings = ("name=other", "data.cache=none", "training.optimizer.learning_rate=0.5")
    words = [word for setting in settings for word in ("--set", setting)]
    arguments = ["run", "recipe.yaml", *words, "--output", "unrelated"]
    report = _report(fork.run(arguments, base[1]), base[1] / "unrelated")
    assert report["stages"][0]["status"] == "cached"
    _assert_same(base[0], report)


@pytest.mark.slow
def test_shards_and_kinds_of_files_change_nothing(
    base: tuple[dict[str, Any], Path], fork: Fork, tmp_path: Path
) -> None:
    arrays = _arrays(_model())
    with h5py.File(tmp_path / "data.h5", "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array, chunks=True)
    kinds: dict[str, tuple[str, dict[str, Any]]]
    kinds = {"hdf5": ("data.h5", {}), "one": _records(tmp_path, arrays, 1)}
    kinds["three"] = _records(tmp_path, arrays, 3)
    _model().save(tmp_path / "model.keras")
    for kind, (path, more) in kinds.items():
        source = "hdf5" if kind == "hdf5" else "tfrecord"
        data = {"source": source, "path": path, "inputs": ["a", "b"], "targets": ["kind"], **more}
        first = {"stages": base[0]["stages"][:1]}
        # A .keras file holds the time of its making.
        _assert_same(first, _evaluated(fork, tmp_path, data, kind), but="file_bytes gzip_bytes")


def _records(folder: Path, arrays: Arrays, shards: int) -> tuple[str, dict[str, Any]]:
    """Write TFRecord files, and return their folder and what their features hold."""
    import tensorflow as tf

    place = folder / f"records{shards}"
    place.mkdir()
    for split in ("train", "validation", "test"):
        a, b, kind = (arrays[f"{name}_{split}"] for name in ("a", "b", "kind"))
        for shard in range(shards):
            with tf.io.TFRecordWriter(str(place / f"{split}-{shard}.tfrecord")) as writer:
                for i in range(len(a))[shard::shards]:
                    raw = [tf.train.BytesList(value=[array[i].tobytes()]) for array in (a, b)]
                    held = {
                        "a": tf.train.Feature(bytes_list=raw[0]),
                        "b": tf.train.Feature(bytes_list=raw[1]),
                        "kind": tf.train.Feature(int64_list=tf.train.Int64List(value=[kind[i]])),
                    }
                    features = tf.train.Features(feature=held)
                    writer.write(tf.train.Example(features=features).SerializeToString())
    six = {"type": "raw", "dtype": "float32", "shape": [6]}
    return place.name, {"features": {"a": six, "b": six, "kind": {"type": "int64"}}}


# Labels that nothing can tell: whatever was trained, pruned, distilled or quantized, and by
# whichever chain of commands, the test split must know nothing. In the default suite one chain
# splits with another seed; tests/cli/test_chain.py evaluates such a model.

SHUFFLED = 480
CHANCE = 0.25 + 4 * np.sqrt(0.25 * 0.75 / 96)
"""Four deviations above a guess, on the fifth of the examples that is the test split."""


def _shuffled(folder: Path) -> None:
    keras.utils.set_random_seed(0)
    x = layers.Input((16,), name="x")
    y = layers.Dense(128, activation="relu")(x)
    model = keras.Model(x, layers.Dense(CLASSES)(layers.Dense(128, activation="relu")(y)))
    model.save(folder / "model.keras")
    rng = np.random.default_rng(3)
    arrays: Arrays = {"x": rng.normal(size=(SHUFFLED, 16)).astype(np.float32)}
    np.savez(folder / "random.npz", **arrays, y=rng.integers(0, CLASSES, SHUFFLED))
    stages = [{"train": {"epochs": 1}}, {"prune": {"sparsity": 0.3, "epochs": 1}}, {"quantize": {}}]
    data = {"source": "npz", "path": "random.npz"}
    again = {"name": "again", "model": "a", "data": data, "training": {"seed": 8}, "stages": stages}
    _write(folder / "again.yaml", again)


TRAIN = "train model.keras --data random.npz --epochs 25 --seed 7 --output a"
CHAINS = {
    "evaluate": ["evaluate a"],
    "evaluate --data": ["evaluate a --data random.npz"],
    "train --seed": ["train a --seed 3 --epochs 1"],
    "run": ["run again.yaml"],
    "prune --seed": ["prune a --data random.npz --sparsity 0.3 --epochs 1 --seed 11"],
    "prune channels": ["prune a --data random.npz --method channels --ratio 0.2 --seed 2"],
    "cluster": ["cluster a --data random.npz --clusters 64 --epochs 1 --seed 4"],
    "distill": ["distill --teacher a --student model.keras --data random.npz --epochs 5"],
    "distill from itself": ["distill --teacher a --student a --data random.npz --seed 1"],
    "quantize": ["quantize a --data random.npz"],
    "quantize aware": ["quantize a --data random.npz --aware --epochs 2 --seed 6"],
    "quantize the file": ["quantize a/artifacts/01-train.keras --data random.npz --seed 9"],
    "prune, quantize": [
        "prune a --data random.npz --sparsity 0.3 --epochs 1 --output p",
        "quantize p --data random.npz --seed 5",
    ],
    "distill, cluster, quantize": [
        "distill --teacher a --student a --data random.npz --epochs 1 --seed 1 --output d",
        "cluster d --data random.npz --clusters 64 --epochs 1 --seed 2 --output c",
        "quantize c/artifacts/01-cluster.keras --data random.npz --seed 3 --output q",
        "evaluate q --data random.npz --seed 4",
    ],
}


@pytest.fixture(scope="module")
def trained(fork: Fork, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shuffled")
    _shuffled(folder)
    report = _report(fork.run(TRAIN.split(), folder), folder / "a")
    assert report["stages"][-1]["training"]["history"]["accuracy"][-1] > 0.8, "not memorised"
    assert report["stages"][-1]["metrics"]["accuracy"] < CHANCE
    return folder


def _accuracies(chain: list[str], fork: Fork, folder: Path) -> list[float]:
    found = []
    for i, command in enumerate(chain):
        words = command.split()
        output = words[words.index("--output") + 1] if "--output" in words else f"out{i}"
        words += [] if "--output" in words else ["--output", output]
        done = fork.run([*words, "--force"], folder)
        report = _report(done, folder / output)
        found += [stage["metrics"]["accuracy"] for stage in report["stages"]]
    return found


@pytest.mark.parametrize(
    "name",
    [
        name if name == "prune --seed" else pytest.param(name, marks=pytest.mark.slow)
        for name in CHAINS
    ],
)
def test_shuffled_labels_stay_at_chance_through_a_chain(
    name: str, trained: Path, fork: Fork
) -> None:
    assert max(_accuracies(CHAINS[name], fork, trained)) < CHANCE
