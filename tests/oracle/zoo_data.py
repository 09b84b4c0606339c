"""Writes the data of an entry in the way that its source reads it, and says what is true of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from PIL import Image

from tests.oracle.keras_models import predict
from tests.oracle.truth import Output, Truth
from tests.oracle.whole import is_real
from tests.oracle.zoo_models import examples

Row = Mapping[str, str]
SPLITS = {"train": 96, "validation": 24, "test": 120}
PLACE = "place"
"""The slicing of the sources that have columns, arrays or paths."""
NOISE = 0.15
"""Fraction of labels that are drawn instead of taken from the model."""

Arrays = dict[str, np.ndarray]


OTHERS: dict[str, tuple[str, dict[str, float]]] = {
    "sparse_categorical_crossentropy": ("categorical_focal_crossentropy", {"gamma": 3.0}),
    "binary_crossentropy": ("binary_focal_crossentropy", {"gamma": 1.5, "label_smoothing": 0.1}),
    "mean_squared_error": ("huber", {"delta": 0.5}),
}
"""A loss with arguments in place of a plain one."""


def outputs_of(row: Row) -> list[Output]:
    """Return what the outputs mean, which follows from how the model was built."""
    ending = row["ending"]
    if ending == "linear":
        first = Output("zkind", "mean_squared_error")
    elif ending.startswith("sigmoid"):
        first = Output("zkind", "binary_crossentropy", ending == "sigmoid_logits")
    else:
        first = Output("zkind", "sparse_categorical_crossentropy", ending == "logits")
    both = [first, Output("angle", "mean_squared_error")] if row["outputs"] == "two" else [first]
    if row["loss"] == "plain":
        return both
    return [replace(o, loss=OTHERS[o.loss][0], arguments=OTHERS[o.loss][1]) for o in both]


def metrics_of(row: Row) -> list[str]:
    """Return the metrics that the recipe asks for."""
    ending = row["ending"]
    second = ["mean_absolute_error"] if row["outputs"] == "two" else []
    if ending == "linear":
        return ["mean_squared_error", "mean_absolute_error", "rmse", "r2"]
    if ending.startswith("sigmoid"):
        return ["binary_accuracy", *second]
    return ["accuracy", *second, "f1_macro", "roc_auc"]


def make(row: Row, model: Any, folder: Path, seed: int) -> tuple[dict[str, Any], Truth]:
    """Write the data, and return the recipe's `data` section and the truth of its test split."""
    rng = np.random.default_rng(seed + 1)
    splits = {name: _split(row, model, n, rng) for name, n in SPLITS.items()}
    section = WRITERS[row["source"]](row, folder, splits)
    inputs, targets = splits["test"]
    truth = Truth(
        inputs,
        outputs_of(row),
        targets,
        _masks(row, inputs, targets),
        metrics_of(row),
        _labels(row),
        SPLITS["train"],
        {PLACE: _places(len(next(iter(inputs.values()))))} if "slices" in section else {},
    )
    return section, truth


def _places(count: int) -> np.ndarray:
    """Return the slice of each example of a split, by its place: one is of ten in 120."""
    return np.array(["rare" if i % 12 == 5 else f"p{i % 2}" for i in range(count)])


def _masks(row: Row, inputs: Arrays, targets: Arrays) -> Arrays:
    if row["mask"] != "steps":
        return {}
    counted = next(iter(inputs.values())) != 0
    return dict.fromkeys(targets, counted)


def _labels(row: Row) -> list[str] | None:
    if row["source"] not in ("images", "csv") or is_real(outputs_of(row)[0]):
        return None
    return [f"c{i}" for i in range(2 if row["ending"] == "softmax_concat" else 4)]


def _split(row: Row, model: Any, n: int, rng: np.random.Generator) -> tuple[Arrays, Arrays]:
    inputs = examples(row, n, rng)
    values = predict(model, inputs)
    pairs = zip(outputs_of(row), values, strict=True)
    return inputs, {output.name: _target(output, value, rng) for output, value in pairs}


def _target(output: Output, value: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if is_real(output):
        return (value + 0.5 * rng.normal(size=value.shape)).astype(np.float32)
    if output.loss.startswith("binary"):
        label = value > np.median(value)
        other = rng.random(value.shape) < NOISE
        return (label ^ other).astype(np.int64)
    label = value.argmax(-1)
    other = rng.integers(0, value.shape[-1], label.shape)
    return np.where(rng.random(label.shape) < NOISE, other, label).astype(np.int64)


def _named(row: Row, splits: Mapping[str, tuple[Arrays, Arrays]]) -> dict[str, Any]:
    inputs, targets = splits["test"]
    return {"inputs": list(inputs), "targets": list(targets)}


def _flat(splits: Mapping[str, tuple[Arrays, Arrays]]) -> dict[str, Any]:
    return {
        f"{name}_{split}": array
        for split, pair in splits.items()
        for arrays in pair
        for name, array in arrays.items()
    }


def _npz(row: Row, folder: Path, splits: Any) -> dict[str, Any]:
    with (folder / "data.npz").open("wb") as file:
        np.savez(file, allow_pickle=False, **_flat(splits), **_flat_places(splits))
    return {"source": "npz", "path": "data.npz", **_named(row, splits), "slices": [PLACE]}


def _flat_places(splits: Mapping[str, tuple[Arrays, Arrays]]) -> Arrays:
    return {
        f"{PLACE}_{split}": _places(len(next(iter(x.values())))) for split, (x, _) in splits.items()
    }


def _hdf5(row: Row, folder: Path, splits: Any) -> dict[str, Any]:
    import h5py

    with h5py.File(folder / "data.h5", "w") as file:
        for name, array in _flat(splits).items():
            file.create_dataset(name, data=array, chunks=True, compression="gzip")
    return {"source": "hdf5", "path": "data.h5", **_named(row, splits)}


SCRIPT = """\
from pathlib import Path

import numpy as np

INPUTS, TARGETS = {inputs}, {targets}


def examples():
    held = np.load(Path(__file__).with_name("arrays.npz"))
    return {{part: list(_pairs(held, part)) for part in ("train", "validation", "test")}}


def _pairs(held, part):
    for i in range(len(held[f"{{INPUTS[0]}}_{{part}}"])):
        yield tuple({{n: held[f"{{n}}_{{part}}"][i] for n in names}} for names in (INPUTS, TARGETS))
"""


def _python(row: Row, folder: Path, splits: Any) -> dict[str, Any]:
    with (folder / "arrays.npz").open("wb") as file:
        np.savez(file, **_flat(splits))
    named = _named(row, splits)
    (folder / "data.py").write_text(SCRIPT.format(**named), encoding="utf-8")
    return {"source": "python", "path": "data.py:examples", **named}


def _tfrecord(row: Row, folder: Path, splits: Any) -> dict[str, Any]:
    place = folder / "records"
    place.mkdir()
    for split, (inputs, targets) in splits.items():
        arrays = {**inputs, **targets}
        rows = range(len(next(iter(arrays.values()))))
        for shard in range(2):
            with tf.io.TFRecordWriter(str(place / f"{split}-{shard}.tfrecord")) as writer:
                for i in rows[shard::2]:
                    held = {name: _feature(array[i]) for name, array in arrays.items()}
                    features = tf.train.Features(feature=held)
                    writer.write(tf.train.Example(features=features).SerializeToString())
    inputs, targets = splits["test"]
    described = {name: _described(array) for name, array in {**inputs, **targets}.items()}
    return {"source": "tfrecord", "path": "records", "features": described, **_named(row, splits)}


def _feature(value: np.ndarray) -> Any:
    if value.ndim == 0 and value.dtype == np.int64:
        return tf.train.Feature(int64_list=tf.train.Int64List(value=[int(value)]))
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value.tobytes()]))


def _described(array: np.ndarray) -> dict[str, Any]:
    if array.ndim == 1 and array.dtype == np.int64:
        return {"type": "int64"}
    return {"type": "raw", "dtype": array.dtype.name, "shape": list(array.shape[1:])}


def _images(row: Row, folder: Path, splits: Any) -> dict[str, Any]:
    for split, (inputs, targets) in splits.items():
        for i, (image, label) in enumerate(zip(inputs["x"], targets["zkind"], strict=True)):
            place = folder / "images" / split / f"c{int(label)}"
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(place / f"{i:03}-{_places(i + 1)[i]}.png")
    by_name = {"name": PLACE, "pattern": r"-(\w+)\.png"}
    return {"source": "images", "path": "images", "slices": [by_name]}


def _csv(row: Row, folder: Path, splits: Any) -> dict[str, Any]:
    (folder / "pictures").mkdir()
    real = row["ending"] == "linear"
    names = [f"t{i}" for i in range(3)] if real else ["label"]
    lines = [",".join(["path", *names, PLACE, "split"])]
    for split, (inputs, targets) in splits.items():
        for i, (image, label) in enumerate(zip(inputs["x"], targets["zkind"], strict=True)):
            path = f"pictures/{split}{i:03}.png"
            Image.fromarray(image).save(folder / path)
            cells = [repr(float(v)) for v in label] if real else [f"c{int(label)}"]
            lines.append(",".join([path, *cells, _places(i + 1)[i], split]))
    (folder / "list.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    targets = {"targets": names} if real else {}
    return {"source": "images", "path": "list.csv", "slices": [PLACE], **targets}


WRITERS: dict[str, Callable[[Row, Path, Any], dict[str, Any]]] = {
    "npz": _npz,
    "hdf5": _hdf5,
    "python": _python,
    "tfrecord": _tfrecord,
    "images": _images,
    "csv": _csv,
}
