"""A checkpoint on disk: whole and the newest, or the one before."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from shrink.base.files import KILL_VARIABLE
from shrink.engine.checkpoint import CheckpointFolder
from tests.forks import call


def write_twice(folder: str, killed_at: str) -> None:
    """Write two checkpoints; this process is killed in the second."""
    checkpoints = CheckpointFolder(Path(folder))
    checkpoints.write([("a", np.full((1000,), 1.0))], {"update": 1})
    os.environ[KILL_VARIABLE] = killed_at
    checkpoints.write([("a", np.full((1000,), 2.0))], {"update": 2})


@pytest.mark.parametrize(
    ("label", "update"), [("checkpoint-arrays-written", 1), ("checkpoint-written", 2)]
)
def test_read_returns_a_whole_checkpoint_when_killed_at(
    label: str, update: int, tmp_path: Path
) -> None:
    with pytest.raises(RuntimeError, match=f"exit {-signal.SIGKILL}\n"):
        call(__name__, "write_twice", folder=str(tmp_path), killed_at=label)
    folder = CheckpointFolder(tmp_path)
    checkpoint = folder.read()
    assert checkpoint is not None
    assert checkpoint.content == {"update": update}
    np.testing.assert_array_equal(checkpoint.arrays["a"], np.full((1000,), float(update)))
    folder.write([], {"update": 3})
    assert len(list(tmp_path.iterdir())) == 2


def test_read_returns_what_was_written(tmp_path: Path) -> None:
    arrays = {
        "scalar": np.array(7, np.int64),
        "matrix": np.arange(6, dtype=np.float32).reshape(2, 3).T,
        "flags": np.array([True, False]),
        "empty": np.zeros((0, 3), np.float16),
        "half": tf.constant([1.5, -2.0], tf.bfloat16).numpy(),
    }
    content = {"history": {"loss": [0.1, float("inf")]}, "best": -float("inf")}
    CheckpointFolder(tmp_path).write(arrays.items(), content)
    checkpoint = CheckpointFolder(tmp_path).read()
    assert checkpoint is not None
    assert checkpoint.content == content
    assert list(checkpoint.arrays) == list(arrays)
    for name, array in arrays.items():
        assert checkpoint.arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(checkpoint.arrays[name], array)


@pytest.mark.parametrize("damage", ["manifest", "arrays", "missing", "not-json", "truncated"])
def test_read_ignores_a_damaged_checkpoint_with_a_note(damage: str, tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    folder.write([("a", np.ones(100))], {"update": 5})
    (arrays,) = tmp_path.glob("*.zip")
    manifest = tmp_path / "checkpoint.json"
    if damage == "manifest":
        manifest.write_text(manifest.read_text("utf-8").replace('"update": 5', '"update": 6'))
    elif damage == "arrays":
        content = arrays.read_bytes()
        arrays.write_bytes(content[:200] + bytes([content[200] ^ 1]) + content[201:])
    elif damage == "missing":
        arrays.unlink()
    elif damage == "not-json":
        manifest.write_text("{", encoding="utf-8")
    else:
        arrays.write_bytes(arrays.read_bytes()[:-20])
    assert folder.read() is None
    assert folder.note.startswith("a damaged checkpoint was ignored (")


def test_read_finds_nothing_where_nothing_was_written(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path / "none")
    assert folder.read() is None
    assert folder.note == ""
