"""What a later stage asks of the examples is looked at before an earlier one trains."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.shell import shrink
from tests.cli.toy import write_toy

RECIPE = """\
name: toy
model: toy.py:build
data: {{source: npz, path: toy.npz}}
training: {{global_batch_size: 16}}
stages:
  - train: {{epochs: 1}}
  - {later}
"""
MIXED = "quantize: {scheme: mixed, accuracy_drop: 0.1}"
ONE_HOT = np.eye(3, dtype=np.float32)[np.arange(60) % 3]
SEVERAL = np.random.default_rng(1).integers(0, 2, (60, 3))


def refused(
    tmp_path: Path, later: str, targets: Any, status: int = 3, activation: str = "relu"
) -> str:
    """Run a recipe that cannot end well; return what it prints."""
    write_toy(tmp_path, RECIPE.format(later=later))
    builder = tmp_path / "toy.py"
    builder.write_text(builder.read_text("utf-8").replace("relu", activation), "utf-8")
    np.savez(tmp_path / "toy.npz", x=np.load(tmp_path / "toy.npz")["x"], y=targets)
    done = shrink("run", "toy.yaml", cwd=tmp_path, store=tmp_path / "store", expect=status)
    assert not re.search("epoch 1", done.stderr), done.stderr
    return done.stderr


def test_accuracy_drop_is_refused_before_any_stage_trains_where_nothing_is_classified(
    tmp_path: Path,
) -> None:
    targets = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    printed = refused(tmp_path, MIXED, targets)
    assert "accuracy_drop needs classes, and the loss is mean_squared_error" in printed
    assert "give metric_drop or file_bytes instead" in printed


@pytest.mark.parametrize(
    ("targets", "words"),
    [(SEVERAL, "each example has several labels"), (ONE_HOT, "the labels are one-hot")],
)
def test_class_weights_of_a_later_stage_are_refused_before_any_trains(
    tmp_path: Path, targets: Any, words: str
) -> None:
    later = "prune: {sparsity: 0.5, epochs: 1, training: {class_weights: balanced}}"
    printed = refused(tmp_path, later, targets)
    assert f"class weights need one class number for each example, but {words}" in printed


@pytest.mark.parametrize(
    ("later", "words"),
    [
        ("distill: {student: {depth: 0.5}, teacher: train, epochs: 1}", "no block of"),
        (
            "distill: {student: {depth: 0.5, inherit: true}, teacher: train, epochs: 1}",
            "no block has a kernel and equal input and output shapes",
        ),
        (
            "distill: {student: {width: 0.95, inherit: true}, teacher: train, epochs: 1}",
            "the largest of 1 groups has 8",
        ),
        ("prune: {method: layers, blocks: 1}", "prune.blocks is 1, but the model has 0"),
    ],
)
def test_a_model_that_cannot_become_smaller_is_refused_before_any_stage_trains(
    tmp_path: Path, later: str, words: str
) -> None:
    assert words in refused(tmp_path, later, np.arange(60) % 3)


def test_a_layer_that_tflite_micro_has_no_kernel_for_is_refused_before_any_stage_trains(
    tmp_path: Path,
) -> None:
    later = """prune: {method: channels, ratio: 0.2, epochs: 1}
  - quantize: {target: tflm}"""
    printed = refused(tmp_path, later, np.arange(60) % 3, status=4, activation="gelu")
    assert "TFLite Micro has no kernel for GELU, and quantize needs one" in printed
