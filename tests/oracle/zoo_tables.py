"""Texts, a Parquet table and time series: written, and read again without shrink.

Each maker writes `model.keras` and `recipe.yaml` with their data into a folder, and returns what is
true of the test split, taken from the raw rows by the rules of docs/text.md and docs/data.md.
"""

from __future__ import annotations

import collections
import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tf_keras as keras
import yaml

from tests.oracle.truth import Output, Truth

SPLITS = {"train": 120, "validation": 40, "test": 60}
_WORDS = {
    "lights": ["turn", "on", "the", "lights", "off", "lamp", "please"],
    "music": ["play", "a", "song", "stop", "louder", "the", "next"],
    "timer": ["set", "timer", "for", "5", "10", "minutes", "please!"],
}
_LENGTH, _WINDOW, _HORIZON = 6, 16, 4


def texts(folder: Path) -> Truth:
    """Sentences of three classes as JSON lines, whose vocabulary the training split gives."""
    rng, rows = np.random.default_rng(3), list[dict[str, str]]()
    for split, count in SPLITS.items():
        for _ in range(count):
            label = str(rng.choice(list(_WORDS)))
            own, other = _WORDS[label], _WORDS[str(rng.choice(list(_WORDS)))]
            words = [str(rng.choice(own if rng.random() < 0.7 else other)) for _ in range(5)]
            words += ["Unseen", "extra"][: int(rng.integers(0, 3))] if split == "test" else []
            rows.append({"text": " ".join(words).capitalize(), "label": label, "split": split})
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "orders.jsonl").write_text(lines, encoding="utf-8")
    read = [json.loads(line) for line in (folder / "orders.jsonl").read_text("utf-8").splitlines()]
    counted = collections.Counter(
        token for row in read if row["split"] == "train" for token in _tokens(row["text"])
    )
    ordered = sorted(counted, key=lambda token: (-counted[token], token))
    ids = {token: number for number, token in enumerate(["[PAD]", "[UNK]", *ordered])}
    test = [row for row in read if row["split"] == "test"]
    tokens = [[ids.get(token, 1) for token in _tokens(row["text"])] for row in test]
    filled = [[*one, *[0] * _LENGTH][:_LENGTH] for one in tokens]
    labels = sorted(_WORDS)
    given = keras.Input((_LENGTH,), dtype="int32", name="tokens")
    flat = keras.layers.Flatten()(keras.layers.Embedding(len(ids), 6)(given))
    hidden = keras.layers.Dense(12, activation="relu")(flat)
    _save(keras.Model(given, keras.layers.Dense(3, name="intent")(hidden)), folder)
    section = {
        "source": "text",
        "path": "orders.jsonl",
        "tokens": {"length": _LENGTH, "lower": True, "split": "words"},
    }
    loss = "sparse_categorical_crossentropy"
    metrics = ["accuracy", "f1_macro"]
    _recipe(folder, section, metrics)
    return Truth(
        {"tokens": np.array(filled, np.int32)},
        [Output("intent", loss, from_logits=True)],
        {"intent": np.array([labels.index(row["label"]) for row in test])},
        metrics=metrics,
        labels=labels,
        train_examples=SPLITS["train"],
    )


def _tokens(text: str) -> list[str]:
    return re.findall(r"\w+|[^\w\s]", text.lower())


def table(folder: Path) -> Truth:
    """A Parquet table with a real-valued target, and a column that is a slicing."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng, count = np.random.default_rng(4), sum(SPLITS.values())
    columns: dict[str, Any] = {name: rng.normal(size=count) for name in ("a", "b", "c")}
    columns["on"] = rng.random(count) < 0.5
    columns["y"] = columns["a"] - 0.5 * columns["b"] + columns["on"] + rng.normal(0, 0.2, count)
    columns["site"] = [f"s{number % 3}" for number in range(count)]
    columns["split"] = [name for name, rows in SPLITS.items() for _ in range(rows)]
    pq.write_table(pa.table(columns), folder / "rows.parquet")
    rows = pq.read_table(folder / "rows.parquet").to_pylist()
    test = [row for row in rows if row["split"] == "test"]
    names = ["a", "b", "c", "on"]
    given = keras.Input((len(names),), name="cells")
    hidden = keras.layers.Dense(16, activation="relu")(given)
    _save(keras.Model(given, keras.layers.Dense(1, name="y")(hidden)), folder)
    section = {
        "source": "csv",
        "path": "rows.parquet",
        "inputs": names,
        "targets": ["y"],
        "slices": ["site"],
    }
    metrics = ["rmse", "r2", "mean_absolute_error"]
    _recipe(folder, section, metrics)
    return Truth(
        {"cells": np.array([[float(row[name]) for name in names] for row in test], np.float32)},
        [Output("y", "mean_squared_error")],
        {"y": np.array([[row["y"]] for row in test], np.float32)},
        metrics=metrics,
        train_examples=SPLITS["train"],
        slices={"site": np.array([row["site"] for row in test])},
    )


def series(folder: Path) -> Truth:
    """Two columns over time; windows of both, and the next steps of the first as their target."""
    rng, count = np.random.default_rng(5), sum(SPLITS.values())
    time = np.arange(count)
    load = np.sin(time / 3) + 0.1 * rng.normal(size=count)
    warm = np.cos(time / 7) + 0.1 * rng.normal(size=count)
    split = [name for name, rows in SPLITS.items() for _ in range(rows)]
    with (folder / "load.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["hour", "load", "warm", "split"])
        writer.writerows(zip(time, load.tolist(), warm.tolist(), split, strict=True))
    with (folder / "load.csv").open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["split"] == "test"]
    values = np.array([[float(row["load"]), float(row["warm"])] for row in rows], np.float32)
    starts = range(len(values) - _WINDOW - _HORIZON + 1)
    given = keras.Input((_WINDOW, 2), name="past")
    hidden = keras.layers.Dense(16, activation="relu")(keras.layers.Flatten()(given))
    _save(keras.Model(given, keras.layers.Dense(_HORIZON, name="next")(hidden)), folder)
    section = {
        "source": "series",
        "path": "load.csv",
        "inputs": ["load", "warm"],
        "targets": ["load"],
        "series": {"window": _WINDOW, "horizon": _HORIZON, "time": "hour"},
    }
    metrics = ["mean_absolute_error", "rmse"]
    _recipe(folder, section, metrics)
    ends = [(start + _WINDOW, start + _WINDOW + _HORIZON) for start in starts]
    return Truth(
        {"past": np.stack([values[start : start + _WINDOW] for start in starts])},
        [Output("next", "mean_squared_error")],
        {"next": np.stack([values[begin:end, 0] for begin, end in ends])},
        metrics=metrics,
        train_examples=SPLITS["train"] - _WINDOW - _HORIZON + 1,
    )


def _save(model: keras.Model, folder: Path) -> None:
    rng = np.random.default_rng(6)
    model.set_weights([rng.normal(0, 0.3, one.shape) for one in model.get_weights()])
    model.save(folder / "model.keras")


def _recipe(folder: Path, data: dict[str, Any], metrics: list[str]) -> None:
    recipe = {
        "name": "tables",
        "model": "model.keras",
        "data": data,
        "task": {"metrics": metrics},
        "training": {"global_batch_size": 20, "optimizer": {"name": "adam", "learning_rate": 1e-2}},
        "stages": [
            {"prune": {"method": "magnitude", "sparsity": 0.5, "epochs": 2}},
            {"quantize": {"scheme": "static_wi8_ai8"}},
        ],
        "gates": {"file_bytes": "1MB"},
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")


MAKERS: dict[str, Callable[[Path], Truth]] = {"texts": texts, "table": table, "series": series}
