"""Detectors that a user's function decodes: beside the built-in decoding, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from pydantic import ValidationError

from shrink.base.errors import StageError
from shrink.task.artifact import evaluate_artifact
from shrink.task.config import TaskConfig
from shrink.task.interface import keras_interface
from shrink.task.resolve import resolve_task
from shrink.task.user_detector import UserDetector
from shrink.tflite.convert import convert
from tests.task.test_detector_artifact import BOXES, DECODE, PICTURE, dataset, evaluated, identity

OWN = """
import numpy as np
import tensorflow as tf

def overlap(a, b):
    w, h = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    shared = max(w, 0) * max(h, 0)
    return shared / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared)

def decode(outputs):
    assert outputs.dtype == np.float64
    found = []
    for rows in outputs:
        kept = []
        every = [(s, c, i) for i, r in enumerate(rows) for c, s in enumerate(r[4:]) if s >= 0.05]
        for s, c, i in sorted(every, key=lambda one: (-one[0], one[2], one[1])):
            if all(k[5] != c or overlap(rows[i], k) <= 0.5 for k in kept):
                kept.append([*rows[i, :4], s, c])
        found.append(np.array(kept))
    return found

def loss(boxes, outputs):
    there = tf.cast(boxes[..., 4] >= 0, outputs.dtype)
    return tf.reduce_mean(tf.square(outputs), axis=(1, 2)) + tf.reduce_sum(there, axis=1)

def of_class_7(outputs):
    return np.tile([0, 0, 9, 9, 0.5, 7.0], (len(outputs), 3, 1))

def flat(outputs):
    return np.zeros((len(outputs), 6))

def one(outputs):
    return np.zeros((1, 3, 6))

def number(outputs):
    return 3

def raises(outputs):
    return outputs["boxes"]

def loss_of_all(boxes, outputs):
    return tf.reduce_sum(outputs)
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "own.py").write_text(OWN)
    return tmp_path / "own.py"


def test_metrics_are_those_of_the_same_decoding_built_in(own: Path, tmp_path: Path) -> None:
    metrics = ["map", "map_50", "map_cat"]
    decode = {"name": f"{own}:decode", "loss": f"{own}:loss"}
    found = evaluated(identity(), tmp_path, decode=decode, metrics=metrics)
    expected = evaluated(identity(), tmp_path, metrics=metrics)
    for name in metrics:
        assert found.metrics[name] == pytest.approx(expected.metrics[name], abs=1e-9)
    losses = np.square(PICTURE).mean((1, 2, 3)) + (BOXES[..., 4] >= 0).sum(1)
    assert found.metrics["loss"] == pytest.approx(losses.mean(), rel=1e-6)
    assert len(found.scores["loss"]) == len(BOXES)


def test_without_a_loss_it_is_null_and_nothing_is_trained(own: Path, tmp_path: Path) -> None:
    config = TaskConfig.model_validate({"decode": f"{own}:decode", "metrics": ["map"]})
    task = resolve_task(config, dataset(), keras_interface(identity()))
    path = tmp_path / "model.tflite"
    path.write_bytes(convert(identity(), "float32").content)
    found = evaluate_artifact(path, dataset().test, task)
    assert found.metrics["loss"] is None
    assert "without decode.loss" in found.undefined["loss"]
    with pytest.raises(StageError, match="trained without a loss"):
        task.objective()
    assert task.detector is not None
    same = [tf.constant(PICTURE[..., 0])]
    np.testing.assert_allclose(task.detector.teacher_losses(same, same, 2.0), 0)


def test_detections_are_sorted_cut_and_rid_of_what_is_no_box(own: Path) -> None:
    (own.parent / "more.py").write_text(
        "import numpy as np\n"
        "def f(outputs):\n"
        "    rows = [[0, 0, 1, 1, 0.2, 0], [0, 0, 2, 2, 0.9, 1], [0, 0, 3, np.inf, 0.8, 1],\n"
        "            [0, 0, 4, 4, 0.7, -1], [0, 0, 5, 5, np.nan, 0], [0, 0, 6, 6, 0.3, 1]]\n"
        "    return np.array([rows] * len(outputs[1]))\n"
    )
    found = UserDetector((str(own.parent / "more.py"), "f"), None, 2, 2)
    rows = found.detections([np.zeros((3, 4)), np.zeros((3, 2))])
    assert rows.shape == (3, 2, 6)
    np.testing.assert_array_equal(rows[2], [[0, 0, 2, 2, 0.9, 1], [0, 0, 6, 6, 0.3, 1]])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("of_class_7", "class 7 of 2"),
        ("flat", r"returned shape \(6,\) for a picture"),
        ("one", "1 arrays for 8 pictures"),
        ("number", "it returned int"),
        ("raises", r"raises: IndexError: .* \(line 39\)"),
    ],
)
def test_what_is_no_detections_ends_the_run_before_training(
    name: str, words: str, own: Path
) -> None:
    config = TaskConfig.model_validate({"decode": f"{own}:{name}"})
    with pytest.raises(StageError, match=words) as raised:
        resolve_task(config, dataset(), keras_interface(identity()))
    assert raised.value.subject == str(own)


def test_a_loss_for_the_whole_batch_is_refused(own: Path) -> None:
    decode = {"name": f"{own}:decode", "loss": f"{own}:loss_of_all"}
    config = TaskConfig.model_validate({"decode": decode})
    with pytest.raises(StageError, match=r"float32 of shape \(\)"):
        resolve_task(config, dataset(), keras_interface(identity()))


@pytest.mark.parametrize(
    ("decode", "words"),
    [
        ("gird", "no such head, nor file.py:function: 'gird'; did you mean grid"),
        ({"name": "own.py:f", "strides": [8]}, "strides does nothing"),
        ({"name": "own.py:f", "loss": {"gamma": 1}}, "loss does nothing"),
        ({**DECODE, "loss": "own.py:loss"}, "beside one that decodes"),
        ({"name": "own.py:f", "loss": "focal"}, "loss does nothing"),
    ],
)
def test_keys_that_do_not_go_together_are_refused(decode: object, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        TaskConfig.model_validate({"decode": decode})


def test_files_of_the_functions_are_files_of_the_task() -> None:
    decode = {"name": "a.py:f", "loss": "b.py:g"}
    config = TaskConfig.model_validate({"decode": decode, "metrics": ["c.py:cost"]})
    assert config.files() == ("c.py", "a.py", "b.py")
    placed = config.with_files(lambda file: f"/x/{file}").decode
    assert placed is not None
    assert (placed.name, placed.loss) == ("/x/a.py:f", "/x/b.py:g")
