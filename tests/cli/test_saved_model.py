"""A SavedModel that holds a graph alone, as a model exported for serving does."""

from __future__ import annotations

from pathlib import Path

import pytest
import tf_keras as keras

from shrink.model.reference import parse_model_reference
from tests.cli.shell import read_report, shrink, stage
from tests.cli.toy import write_toy


def exported(folder: Path) -> Path:
    """Export a classifier of the toy's examples."""
    inputs = keras.layers.Input((4,))
    outputs = keras.layers.Dense(3, activation="softmax")(inputs)
    keras.Model(inputs, outputs).export(str(folder / "graph"))
    return folder / "graph"


def test_parse_model_reference_tells_a_graph_from_a_keras_model(tmp_path: Path) -> None:
    graph = exported(tmp_path)
    reference = parse_model_reference(str(graph), tmp_path)
    assert (reference.kind, reference.form, reference.graph_only) == ("savedmodel", "tflite", True)
    (graph / "keras_metadata.pb").touch()
    again = parse_model_reference(str(graph), tmp_path)
    assert (again.form, again.graph_only) == ("keras", False)


def test_stages_that_train_refuse_a_graph(tmp_path: Path) -> None:
    write_toy(tmp_path)
    graph = exported(tmp_path)
    words = ("prune", graph, "--data", "toy.npz", "--sparsity", "0.5", "--output", "out")
    done = shrink(*words, cwd=tmp_path, store=tmp_path / "store", expect=3)
    assert "prune cannot start from a SavedModel of a graph, which has no layers" in done.stderr


@pytest.mark.slow
def test_quantize_takes_a_graph(tmp_path: Path) -> None:
    write_toy(tmp_path)
    words = ("quantize", exported(tmp_path), "--data", "toy.npz", "--output", "out")
    shrink(*words, cwd=tmp_path, store=tmp_path / "store")
    report = read_report(tmp_path / "out")
    assert stage(report, "baseline")["artifact"].endswith(".tflite")
    assert stage(report, "quantize")["metrics"]["accuracy"] is not None
