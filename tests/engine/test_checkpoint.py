"""A checkpoint on disk: whole and the newest, or the one before."""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from shrink.engine.checkpoint import CheckpointFolder
from tests.forks import call
from tests.run.killing import kill_at


def write_twice(folder: str, kill: int) -> int:
    """Write two checkpoints; this process is killed at a change of a file by the second.

    Returns:
        How many changes there are.
    """
    checkpoints = CheckpointFolder(Path(folder))
    checkpoints.write([("a", np.full((1000,), 1.0))], {"update": 1})
    changes = kill_at(Path(folder), kill)
    checkpoints.write([("a", np.full((1000,), 2.0))], {"update": 2})
    return changes()


def test_read_returns_a_whole_checkpoint_whichever_change_was_the_last(tmp_path: Path) -> None:
    found = []
    for number in range(1, 1 + call(__name__, "write_twice", folder=str(tmp_path / "all"), kill=0)):
        place = tmp_path / str(number)
        with pytest.raises(RuntimeError, match=f"exit {-signal.SIGKILL}\n"):
            call(__name__, "write_twice", folder=str(place), kill=number)
        folder = CheckpointFolder(place)
        checkpoint = folder.read()
        assert checkpoint is not None
        update = checkpoint.content["update"]
        np.testing.assert_array_equal(checkpoint.arrays["a"], np.full((1000,), float(update)))
        found.append(update)
        folder.write([], {"update": 3})
        assert len(list(place.iterdir())) == 2
    assert found == sorted(found)
    assert set(found) == {1, 2}


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
