"""A model's record travels: the run's own data named again, a copy, other examples of its kind."""

from __future__ import annotations

import json
import random
import shutil
import wave
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import h5py
import lmdb
import numpy as np
import pytest
import tf_keras as keras
from PIL import Image

from tests.cli.shell import read_report, shrink

NETS = """
import tf_keras as k
L = k.layers
def dense(classes=3):
    i = L.Input((4,), name="x")
    return k.Model(i, L.Dense(classes)(L.Dense(8, activation="relu")(i)))
def rescaled():
    i = L.Input((4,), name="x")
    x = L.Rescaling(0.02, -1)(i)
    return k.Model(i, L.Dense(3)(L.Dense(8, activation="relu")(x)))
def picture():
    i = L.Input((8, 8, 3))
    return k.Model(i, L.Dense(4)(L.GlobalAveragePooling2D()(L.Conv2D(4, 3, activation="tanh")(i))))
def sound():
    i = L.Input((24, 8, 1))
    return k.Model(i, L.Dense(2)(L.Flatten()(i)))
def digit():
    i = L.Input((8, 8, 1))
    return k.Model(i, L.Dense(10)(L.Flatten()(i)))
def forecast():
    i = L.Input((6, 2))
    return k.Model(i, L.Reshape((1, 2))(L.Dense(2)(L.Flatten()(i))))
def segments():
    i = L.Input((8, 8, 3))
    return k.Model(i, L.Conv2D(3, 1)(L.Conv2D(8, 1, activation="relu")(i)))
def text():
    i = L.Input((6,), dtype="int32")
    return k.Model(i, L.Dense(2)(L.GlobalAveragePooling1D()(L.Embedding(40, 8)(i))))
"""
COLOURS = {
    "ant": (220, 30, 30), "bee": (30, 220, 30), "cat": (30, 30, 220), "dog": (200, 200, 40),
}  # fmt: skip


def write_pictures(root: Path, classes: Sequence[str], count: int, seed: int) -> None:
    noise = np.random.default_rng(seed)
    for name in classes:
        (root / name).mkdir(parents=True)
        for index in range(count):
            pixels = np.array(COLOURS[name]) + noise.normal(0, 25, (8, 8, 3))
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(root / name / f"{index}.png")


def write_texts(path: Path, fillers: str, count: int) -> None:
    chance, lines = random.Random(0), []
    for index in range(count):
        words = chance.choices(fillers.split(), k=5)
        words[chance.randrange(5)] = chance.choice([["red", "ruby"], ["blue", "navy"]][index % 2])
        row = {"text": " ".join(words), "label": ["warm", "cold"][index % 2]}
        lines.append(json.dumps(row))
    path.write_text("\n".join(lines), encoding="utf-8")


LOAD = """
import numpy as np
def load():
    held = np.load(__file__.rpartition("/")[0] + "/numbers.npz")
    return list(zip(held["values"], held["y"]))
"""


def write_sounds(root: Path) -> None:
    noise = np.random.default_rng(0)
    for name, hertz in (("low", 300), ("tall", 1500)):
        (root / name).mkdir(parents=True)
        for index in range(40):
            tone = np.sin(2 * np.pi * hertz * np.arange(1000) / 4000)
            samples = (8000 * tone + noise.normal(0, 800, 1000)).astype("<i2")
            with wave.open(str(root / name / f"{index}.wav"), "wb") as file:
                file.setparams((1, 2, 4000, 0, "NONE", ""))
                file.writeframes(samples.tobytes())


def serialized(x: np.ndarray, y: np.ndarray) -> Iterator[bytes]:
    import tensorflow as tf

    for values, label in zip(x, y, strict=True):
        numbers = tf.train.Feature(float_list=tf.train.FloatList(value=values))
        kind = tf.train.Feature(int64_list=tf.train.Int64List(value=[label]))
        features = tf.train.Features(feature={"x": numbers, "y": kind})
        yield tf.train.Example(features=features).SerializeToString()


def write_records(path: Path, x: np.ndarray, y: np.ndarray) -> None:
    import tensorflow as tf

    path.mkdir()
    with tf.io.TFRecordWriter(str(path / "all.tfrecord")) as writer:
        for example in serialized(x, y):
            writer.write(example)


def write_database(path: Path, x: np.ndarray, y: np.ndarray) -> None:
    with (
        lmdb.open(str(path), subdir=False, map_size=1 << 20) as environment,
        environment.begin(write=True) as transaction,
    ):
        for number, example in enumerate(serialized(x, y)):
            transaction.put(f"{number:05}".encode(), example)


def write_scans(root: Path) -> None:
    """Pictures of four squares in three colours, and the colour of each pixel."""
    noise = np.random.default_rng(0)
    colours = np.array([(30, 220, 30), (220, 30, 30), (30, 30, 220)])
    for name in ("images", "masks"):
        (root / name).mkdir(parents=True)
    for index in range(60):
        mask = noise.integers(0, 3, (2, 2)).repeat(4, 0).repeat(4, 1).astype(np.uint8)
        pixels = (colours[mask] + noise.normal(0, 25, (8, 8, 3))).clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(root / "images" / f"{index}.png")
        Image.fromarray(mask).save(root / "masks" / f"{index}.png")


def write_series(path: Path) -> None:
    t = np.arange(300)
    rows = [f"{np.sin(i / 4):.4f},{5 + 3 * np.cos(i / 4):.4f}" for i in t]
    path.write_text("\n".join(["sine,cosine", *rows]), encoding="utf-8")


def numbers() -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).normal(50, 40, (300, 4)).astype(np.float32)
    return x, (x[:, 0] > 50).astype(int) + (x[:, 1] > 50)


CLIPS = {"sample_rate": 4000, "seconds": 0.25, "window_ms": 20, "stride_ms": 10, "bands": 8}
SCALED = {"scale": 0.02, "offset": -1}
SECTIONS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "images": ("picture", "pictures", {"source": "images", "normalize": {"scale": 1 / 255}}),
    "npz": (
        "dense",
        "numbers.npz",
        {
            "source": "npz",
            "normalize": SCALED,
            "inputs": ["values"],
            "test_split": 0.3,
        },
    ),
    "csv": (
        "dense",
        "table.csv",
        {"source": "csv", "normalize": SCALED, "targets": ["kind"]},
    ),
    "python": ("dense", "load.py:load", {"source": "python", "normalize": SCALED}),
    "tfrecord": (
        "dense",
        "records",
        {
            "source": "tfrecord",
            "normalize": SCALED,
            "features": {"x": {"type": "float32", "shape": [4]}, "y": {"type": "int64"}},
        },
    ),
    "lmdb": (
        "dense",
        "numbers.lmdb",
        {
            "source": "lmdb",
            "normalize": SCALED,
            "features": {"x": {"type": "float32", "shape": [4]}, "y": {"type": "int64"}},
        },
    ),
    "masks": ("segments", "scans", {"source": "masks", "normalize": {"scale": 1 / 255}}),
    "hdf5": ("dense", "numbers.h5", {"source": "hdf5", "normalize": SCALED, "inputs": ["values"]}),
    "audio": ("sound", "sounds", {"source": "audio", "audio": CLIPS}),
    "series": (
        "forecast",
        "waves.csv",
        {"source": "series", "series": {"window": 6}, "normalize": {"scale": 0.2}},
    ),
    "digits": ("digit", "", {"source": "digits", "normalize": {"scale": 1 / 16}}),
    "text": ("text", "a.jsonl", {"source": "text", "tokens": {"length": 6, "lower": False}}),
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data of each source, and a run on them."""
    folder = tmp_path_factory.mktemp("record")
    (folder / "nets.py").write_text(NETS, encoding="utf-8")
    write_pictures(folder / "pictures", [*COLOURS], 30, 0)
    write_pictures(folder / "fewer", ["ant", "bee", "dog"], 15, 1)
    write_texts(folder / "a.jsonl", "the a car is very my house was", 200)
    write_texts(folder / "b.jsonl", "zebra yak xray wolf vole urchin", 100)
    x, y = numbers()
    np.savez(folder / "numbers.npz", values=x, y=y)
    with h5py.File(folder / "numbers.h5", "w") as file:
        file["values"], file["y"] = x, y
    (folder / "load.py").write_text(LOAD, encoding="utf-8")
    write_records(folder / "records", x, y)
    write_database(folder / "numbers.lmdb", x, y)
    write_scans(folder / "scans")
    write_sounds(folder / "sounds")
    write_series(folder / "waves.csv")
    rows = [f"{','.join(map(str, one))},k{label}" for one, label in zip(x, y, strict=True)]
    (folder / "table.csv").write_text("\n".join(["a,b,c,d,kind", *rows]), encoding="utf-8")
    for name in ("images", "npz", "csv", "text"):
        trained(folder, name)
    return folder


def trained(root: Path, name: str) -> None:
    """Run the recipe of a source, once."""
    build, path, section = SECTIONS[name]
    if not (root / name).exists():
        data = {**({"path": path} if path else {}), **section}
        recipe: dict[str, Any] = {"name": name, "model": f"nets.py:{build}", "data": data}
        recipe["training"] = {"optimizer": {"learning_rate": 0.03}, "seed": 3}
        recipe["stages"] = [{"train": {"epochs": 15}}]
        (root / f"{name}.yaml").write_text(json.dumps(recipe), encoding="utf-8")
        command(root, "run", f"{name}.yaml", "--output", name)


def command(root: Path, *words: str, expect: int = 0) -> str:
    return shrink(*words, "--quiet", cwd=root, store=root / "store", expect=expect).stderr


def last(folder: Path) -> dict[str, Any]:
    return dict(read_report(folder)["stages"][-1])


def record(folder: Path) -> dict[str, Any]:
    entries = json.loads((folder / "artifacts" / "metadata.json").read_text())["artifacts"]
    kept = ("labels", "normalize", "front_end", "data", "fingerprint", "test_examples", "task")
    entry = {key: entries[-1].get(key) for key in kept}
    for output in entry["task"]["outputs"]:
        output.pop("loss_by")  # from the data in a first run, from the run in the next
    entry["task"].pop("metrics_by")
    return entry


OFTEN = ("images", "series", "text")
NAMES = [n if n in OFTEN else pytest.param(n, marks=pytest.mark.slow) for n in SECTIONS]


@pytest.mark.parametrize("name", NAMES)
def test_naming_the_runs_own_data_again_changes_nothing(root: Path, name: str) -> None:
    trained(root, name)
    path = SECTIONS[name][1] or "digits"
    command(root, "evaluate", name, "--no-cache", "--output", f"{name}-left-out")
    command(root, "evaluate", name, "--data", path, "--no-cache", "--output", f"{name}-again")
    others = ["left-out", "again"]
    if name not in ("digits", "python"):  # a function is known by its place
        others.append("moved")
        moved = root / f"moved-{path}"
        if name in ("images", "audio"):  # folders in another order
            for one in sorted((root / path).iterdir(), reverse=True):
                shutil.copytree(one, moved / one.name)
        else:
            (shutil.copytree if (root / path).is_dir() else shutil.copy)(root / path, moved)
        (model,) = (root / name / "artifacts").glob("*.keras")
        # Other bytes, and known by layers and weights.
        keras.models.load_model(model).save(root / f"{name}.keras")
        words = ("--data", f"moved-{path}", "--output", f"{name}-moved")
        command(root, "evaluate", f"{name}.keras", *words)
    first, metrics = record(root / name), last(root / name)["metrics"]
    assert metrics.get("accuracy", 1) > 0.85
    for other in others:
        folder = root / f"{name}-{other}"
        assert (record(folder), last(folder)["metrics"]) == (first, metrics), other
        codes = {warning["code"] for warning in read_report(folder)["warnings"]}
        assert codes <= {"few-test-examples"}, other


def test_classes_are_those_of_the_outputs_in_a_folder_that_lacks_one(root: Path) -> None:
    command(root, "quantize", "images", "--data", "fewer", "--output", "fewer-int8")
    assert last(root / "fewer-int8")["metrics"]["accuracy"] == 1
    assert record(root / "fewer-int8")["labels"] == [*COLOURS]
    write_pictures(root / "other", ["ant", "bee"], 8, 2)
    (root / "other" / "bee").rename(root / "other" / "eel")
    error = command(root, "evaluate", "images", "--data", "other", "--output", "no", expect=3)
    assert "the class 'eel' is not in data.classes" in error
    assert "data.classes comes from the model's record" in error
    words = ("--data", "fewer", "--classes", "dog,cat,bee,ant", "--output", "no")
    error = command(root, "evaluate", "images", *words, expect=3)
    assert "the outputs of the model are ant, bee, cat, dog" in error


def test_a_gate_against_other_labels_is_missed(root: Path) -> None:
    x, y = numbers()
    np.savez(root / "other.npz", values=x, y=np.roll(y, 7))  # the same inputs
    for data, expect in (("numbers.npz", 0), ("other.npz", 1)):
        recipe = json.loads((root / "npz.yaml").read_text())
        recipe["data"]["path"] = data
        recipe |= {"model": "npz/artifacts/00-train.keras", "name": "gated"}
        recipe["stages"] = [{"quantize": {"scheme": "float16"}}]
        recipe["gates"] = {"accuracy": {"against": "npz", "limit": 1}}
        (root / "gated.yaml").write_text(json.dumps(recipe), encoding="utf-8")
        command(root, "run", "gated.yaml", "--output", "gated", expect=expect)
    (gate,) = read_report(root / "gated")["gates"]
    assert (gate["passed"], gate["value"]) == (False, None)
    assert "npz was measured on other data" in gate["reason"]
    # A copy of the run's file is the same model: both stages are in the cache.
    shutil.copy(root / "npz" / "artifacts" / "00-train.keras", root / "copied.keras")
    recipe["data"]["path"], recipe["model"] = "numbers.npz", "copied.keras"
    (root / "gated.yaml").write_text(json.dumps(recipe), encoding="utf-8")
    words = ("run", "gated.yaml", "--output", "copied", "--dry-run")
    preview = shrink(*words, cwd=root, store=root / "store").stdout
    assert preview.count("in the cache") == 2
    assert "nothing to compute" in preview


def test_a_first_run_names_every_output(root: Path) -> None:
    words = ("train", "nets.py:picture", "--data", "fewer", "--epochs", "1", "--output", "three")
    command(root, *words, "--normalize-scale", "0.004")
    assert record(root / "three")["labels"] == ["ant", "bee", "dog", "3"]
    codes = [warning["code"] for warning in read_report(root / "three")["warnings"]]
    assert codes.count("unnamed-outputs") == 1


def test_the_vocabulary_of_a_run_reads_other_texts(root: Path) -> None:
    command(root, "evaluate", "text", "--data", "b.jsonl", "--output", "other-texts")
    assert last(root / "other-texts")["metrics"]["accuracy"] == 1
    (warning,) = [w for w in read_report(root / "other-texts")["warnings"] if "token" in w["code"]]
    # One word of five is known in each text; texts of the run's own kind give no warning.
    assert warning["code"] == "unknown-tokens"
    assert "lacks 80.0% of the test tokens" in warning["message"]
    assert str(root / "text" / "artifacts" / "vocabulary.txt") in warning["message"]
    tokens = record(root / "text")["front_end"]["vocabulary"]
    assert record(root / "other-texts")["front_end"]["vocabulary"] == tokens
    written = (root / "text" / "artifacts" / "vocabulary.txt").read_text(encoding="utf-8")
    assert written.splitlines() == tokens


def distilled(
    root: Path, name: str, student: str, teacher: str = "npz", store: str = "store", **data: Any
) -> dict[str, Any]:
    """Follow the teacher of the run on arrays alone, without labels; return the last stage."""
    recipe: dict[str, Any] = {"name": name, "model": f"nets.py:{student}"}
    recipe["data"] = {"source": "npz", "path": "numbers.npz", "inputs": ["values"], **data}
    recipe["training"] = {"optimizer": {"learning_rate": 0.03}, "seed": 3}
    follow = {"teacher": teacher, "student": "train", "alpha": 0.0, "epochs": 10}
    recipe["stages"] = [{"train": {"epochs": 1}}, {"distill": follow}]
    (root / f"{name}.yaml").write_text(json.dumps(recipe), encoding="utf-8")
    shrink("run", f"{name}.yaml", "--output", name, cwd=root, store=root / store)
    return last(root / name)


def test_a_teacher_is_fed_as_in_its_own_run(root: Path) -> None:
    """From its folder, or from a copy with its record on another machine, stated or left out."""
    own: dict[str, Any] = {"normalize": {"scale": 0.02, "offset": -1}, "test_split": 0.3}
    shutil.copy(root / "npz" / "artifacts" / "00-train.keras", root / "teacher.keras")
    shutil.copy(root / "npz" / "artifacts" / "metadata.json", root / "teacher.keras.json")
    students = [
        distilled(root, "raw", "rescaled", "teacher.keras", "elsewhere", test_split=0.3),
        distilled(root, "like-teacher", "dense", **own),
    ]
    accuracy = last(root / "npz")["training"]["history"]["val_accuracy"][-1]  # as Keras saw it
    for student in students:
        assert student["metrics"]["accuracy"] > 0.75
        (note,) = [text for text in student["notes"] if text.startswith("teacher: accuracy")]
        assert note == f"teacher: accuracy {100 * accuracy:.2f} % on 30 validation examples"
    adapted = [any("inputs are normalized" in text for text in s["notes"]) for s in students]
    assert adapted == [True, False]


def test_a_teacher_of_other_examples_is_refused_before_training(root: Path) -> None:
    """Names of folders and learned vocabularies are known once the data is open."""
    write_pictures(root / "renamed", ["ant", "bee", "dog"], 10, 3)
    (root / "renamed" / "bee").rename(root / "renamed" / "eel")
    for kind, build, path, message in (
        ("images", "picture", "renamed", "ant, bee, cat, dog apart, and the data has eel"),
        ("text", "text", "b.jsonl", "was made with other vocabulary"),
    ):
        recipe: dict[str, Any] = {"name": "refused", "model": f"nets.py:{build}"}
        recipe["data"] = {**SECTIONS[kind][2], "path": path}
        follow = {"teacher": kind, "student": "train", "epochs": 1}
        recipe["stages"] = [{"train": {"epochs": 1}}, {"distill": follow}]
        (root / "refused.yaml").write_text(json.dumps(recipe), encoding="utf-8")
        error = command(root, "run", "refused.yaml", "--output", f"refused-{kind}", expect=3)
        assert f"the teacher {message}" in error.replace("tells ", "")
        assert not list((root / f"refused-{kind}").glob("artifacts/*.keras"))


def test_a_copied_file_is_used_as_in_its_run_where_its_record_lies_beside_it(root: Path) -> None:
    """On another machine, whose cache is empty."""
    (root / "sent").mkdir()
    for number, form in enumerate(("keras", "savedmodel")):
        name = ("model.keras", "model")[number]
        command(root, "export", "images", "--format", form, "--output", f"sent/{name}")
    words = ("--data", "pictures", "--scheme", "static_wi8_ai8", "--output", "sent/int8.tflite")
    command(root, "quantize", "images", *words)
    command(root, "compact", "sent/int8.tflite", "--output", "sent/small.tflite")
    shutil.copytree(root / "images" / "artifacts", root / "sent" / "run")
    first, metrics = record(root / "images"), last(root / "images")["metrics"]
    kept = ("labels", "normalize", "data", "test_examples")
    for name in ("model.keras", "model", "int8.tflite", "small.tflite", "run/00-train.keras"):
        evaluate = ("evaluate", f"sent/{name}", "--data", "pictures", "--output", "there")
        shrink(*evaluate, "--force", cwd=root, store=root / "empty")
        shutil.rmtree(root / "empty")
        there = record(root / "there")
        assert {key: there[key] for key in kept} == {key: first[key] for key in kept}, name
        assert last(root / "there")["metrics"]["accuracy"] == metrics["accuracy"], name
        codes = {warning["code"] for warning in read_report(root / "there")["warnings"]}
        assert codes <= {"few-test-examples"}, name


def test_columns_of_a_table_are_matched_by_name(root: Path) -> None:
    rows = [line.split(",") for line in (root / "table.csv").read_text().splitlines()]
    order = ("kind", "d", "more", "b", "a", "c")
    cells = [dict(zip(rows[0], row, strict=True), more="7") for row in rows[1:]]
    lines = [",".join(order), *(",".join(row[name] for name in order) for row in cells)]
    (root / "reordered.csv").write_text("\n".join(lines), encoding="utf-8")
    command(root, "evaluate", "csv", "--data", "reordered.csv", "--output", "reordered")
    # The test split of other rows is another one, and the model separates all of them.
    assert last(root / "reordered")["metrics"]["accuracy"] > 0.85
    assert record(root / "reordered")["data"]["inputs"] == ["a", "b", "c", "d"]
