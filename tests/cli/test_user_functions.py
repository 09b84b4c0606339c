"""A recipe whose loss and metric are functions of a Python file beside it."""

from __future__ import annotations

from pathlib import Path

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
  cost_loss_drop: 5
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
