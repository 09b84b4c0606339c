"""A recipe whose loss and metric are functions of a Python file beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tf_keras as keras

from shrink.data.config import DataConfig
from shrink.data.opening import open_dataset
from tests.cli.shell import read_report, shrink, stage
from tests.cli.toy import write_toy

RECIPE = """\
name: toy
model: toy.py:build
data: {source: npz, path: toy.npz}
task:
  loss: own.py:weighted
  metrics:
    - accuracy
    - {name: "own.py:cost", better: lower}
    - own.py:share_right
  from_logits: true
training: {global_batch_size: 16, micro_batch_size: 5}
stages:
  - train: {epochs: 1}
gates:
  cost_loss: 3
  share_right_score: 0
"""
OWN = """\
import numpy as np
import tensorflow as tf

WEIGHTS = [1.0, 2.0, 4.0]


def weighted(y, logits):
    own = tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits)
    return own * tf.gather(tf.constant(WEIGHTS, logits.dtype), y)


def cost(outputs, targets, groups):
    assert groups is None and outputs.dtype == np.float64
    return np.where(outputs.argmax(1) == targets, 0.0, targets + 1.0).mean()


def share_right(outputs, targets, groups):
    return (outputs.argmax(1) == targets).mean()
"""


def test_run_trains_and_measures_with_a_users_functions(tmp_path: Path) -> None:
    write_toy(tmp_path, RECIPE)
    (tmp_path / "own.py").write_text(OWN, encoding="utf-8")
    run = ("run", "toy.yaml", "--output", "out")
    shrink(*run, cwd=tmp_path, store=tmp_path / "store")
    trained = stage(read_report(tmp_path / "out"), "train")
    dataset = open_dataset(DataConfig(source="npz", path=str(tmp_path / "toy.npz")), seed=0)
    x, y = dataset.test.arrays(np.arange(len(dataset.test)))
    model = keras.models.load_model(tmp_path / "out" / trained["artifact"], compile=False)
    logits = np.asarray(model(x), np.float64)
    own = np.log(np.exp(logits).sum(1)) - logits[np.arange(len(y)), y]
    right = logits.argmax(1) == y
    expected = {
        "loss": np.mean(own * np.array([1.0, 2.0, 4.0])[y]),
        "accuracy": right.mean(),
        "cost_loss": np.where(right, 0, y + 1).mean(),
        "share_right_score": right.mean(),
    }
    assert set(trained["metrics"]) == set(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(trained["metrics"][name], value, rtol=1e-4, err_msg=name)
    assert trained["training"]["exact"] is True
    interval = trained["intervals"]["cost_loss"]
    assert interval["low"] <= expected["cost_loss"] <= interval["high"]
    again = shrink(*run, cwd=tmp_path, store=tmp_path / "store")
    assert "cached" in again.stderr + again.stdout
    (tmp_path / "own.py").write_text(OWN.replace("4.0]", "1.0]"), encoding="utf-8")
    shrink(*run, cwd=tmp_path, store=tmp_path / "store")
    changed = stage(read_report(tmp_path / "out"), "train")
    assert changed["metrics"]["loss"] != trained["metrics"]["loss"]


AUGMENTED = """\
name: own
model: net.py:build
data: {source: npz, path: images.npz, augment: {function: own.py:shift}}
stages: [train: {epochs: 2}]
"""
SHIFT = """\
from pathlib import Path


def shift(image, rng):
    most = float((Path(__file__).parent / "most.txt").read_text())
    with (Path(__file__).parent / "seen.txt").open("a") as file:
        file.write(f"{image.sum()}\\n")
    return (image + rng.uniform(-most, most)).astype(image.dtype)
"""
NET = """\
import tf_keras as k


def build():
    inputs = k.Input((4, 4, 1))
    return k.Model(inputs, k.layers.Dense(2)(k.layers.Flatten()(inputs)))
"""


def test_a_users_augmentation_sees_training_images_and_its_reads_count(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 200, (60, 4, 4, 1)).astype("float32")
    parts = {"train": slice(30), "validation": slice(30, 40), "test": slice(40, 60)}
    arrays: dict[str, Any] = {
        f"{name}_{s}": of[at] for s, at in parts.items() for name, of in _xy(x).items()
    }
    np.savez(tmp_path / "images.npz", **arrays)
    for name, text in {"own.yaml": AUGMENTED, "own.py": SHIFT, "net.py": NET}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    weights = []
    for most, calls in (("0", 60), ("50", 120), ("50", 120)):  # the last comes from the cache
        (tmp_path / "most.txt").write_text(most, encoding="utf-8")
        shrink("run", "own.yaml", "--output", "out", cwd=tmp_path, store=tmp_path / "store")
        seen = (tmp_path / "seen.txt").read_text().split()
        assert len(seen) == calls
        assert {float(one) for one in seen} == {float(one.sum()) for one in x[:30]}
        trained = stage(read_report(tmp_path / "out"), "train")
        model = keras.models.load_model(tmp_path / "out" / trained["artifact"], compile=False)
        weights.append(model.get_weights()[0])
    assert np.abs(weights[0] - weights[1]).max() > 0
    np.testing.assert_array_equal(weights[1], weights[2])
    (tmp_path / "own.yaml").write_text(AUGMENTED.replace("own.py", "none.py"), encoding="utf-8")
    run = ("run", "own.yaml", "--output", "out")
    error = shrink(*run, cwd=tmp_path, store=tmp_path / "store", expect=2).stderr
    assert "no such file or folder" in error


def _xy(x: np.ndarray) -> dict[str, np.ndarray]:
    return {"x": x, "y": np.arange(len(x)) % 2}
