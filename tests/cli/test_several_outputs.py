"""A recipe for a model of two inputs and two outputs, each with a loss of its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tf_keras as keras

from shrink.data.config import DataConfig
from shrink.data.opening import open_dataset
from tests.cli.shell import read_report, shrink, stage

BUILDER = """
import tf_keras as keras

layers = keras.layers


def build():
    wide, narrow = layers.Input((6,), name="wide"), layers.Input((3,), name="narrow")
    joined = layers.Concatenate()([wide, narrow])
    kind = layers.Dense(4, activation="softmax", name="kind")(joined)
    return keras.Model([wide, narrow], [kind, layers.Dense(1, name="angle")(joined)])
"""
RECIPE = """\
name: two
model: two.py:build
data: {source: npz, path: two.npz, inputs: [wide, narrow], targets: [kind, angle]}
task:
  loss: {kind: sparse_categorical_crossentropy, angle: mean_squared_error}
  loss_weights: {angle: 0.25}
  metrics: [accuracy, mean_absolute_error]
training: {global_batch_size: 16, micro_batch_size: 5}
stages:
  - train: {epochs: 2}
"""


def test_run_trains_and_measures_each_output_on_its_own_loss(tmp_path: Path) -> None:
    (tmp_path / "two.py").write_text(BUILDER, encoding="utf-8")
    (tmp_path / "two.yaml").write_text(RECIPE, encoding="utf-8")
    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "two.npz",
        wide=rng.normal(size=(60, 6)).astype(np.float32),
        narrow=rng.normal(size=(60, 3)).astype(np.float32),
        kind=np.arange(60) % 4,
        angle=rng.normal(size=(60, 1)).astype(np.float32),
    )
    shrink("run", "two.yaml", "--output", "out", cwd=tmp_path, store=tmp_path / "store")
    trained = stage(read_report(tmp_path / "out"), "train")
    config = DataConfig(
        source="npz",
        path=str(tmp_path / "two.npz"),
        inputs=("wide", "narrow"),
        targets=("kind", "angle"),
    )
    test = open_dataset(config, seed=0).test
    x, (kind, angle) = test.arrays(np.arange(len(test)))
    model = keras.models.load_model(tmp_path / "out" / trained["artifact"], compile=False)
    probabilities, angles = (np.asarray(output, np.float64) for output in model(x))
    error = angles - angle
    chosen = probabilities[np.arange(len(kind)), kind]
    assert trained["metrics"] == {
        "accuracy": pytest.approx((probabilities.argmax(1) == kind).mean()),
        "mean_absolute_error": pytest.approx(np.abs(error).mean(), rel=1e-4),
        "loss": pytest.approx(np.mean(-np.log(chosen)) + 0.25 * np.mean(error**2), rel=1e-4),
    }
    history = trained["training"]["history"]
    assert history["loss"][1] < history["loss"][0]
