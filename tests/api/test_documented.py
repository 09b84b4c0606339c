"""The Python of docs/python.md: its keywords are there, and it runs from the first block on."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import shrink
from shrink.api import given
from shrink.stages import STAGES
from tests.cli.shell import environment
from tests.test_docs import DOCS, blocks

BLOCKS = [text for kind, text in blocks(DOCS / "python.md") if kind == "python"]
BEFORE = """
import os
os.environ["TF_USE_LEGACY_KERAS"] = "0"
import tf_keras
from sklearn.datasets import load_digits
digits = load_digits()
x, y = digits.images[..., None].astype("float32") / 16, digits.target
x_train, y_train, x_test, y_test = x[:1400], y[:1400], x[1400:], y[1400:]
net = tf_keras.Sequential(
    [tf_keras.layers.Input((8, 8, 1)), tf_keras.layers.Flatten(), tf_keras.layers.Dense(10)]
)
net.compile("adam", tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True))
net.fit(x_train, y_train, verbose=0)
net.save("model.keras")
del net
"""
"""What the page takes for granted: a model's file and arrays of examples."""


def calls() -> list[ast.Call]:
    trees = map(ast.parse, BLOCKS)
    found = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [call for call in found if ast.unparse(call.func).startswith("shrink.")]


def test_functions_and_keywords_are_those_that_there_are() -> None:
    assert len(BLOCKS) == 4
    assert len(calls()) >= 5
    for call in calls():
        name = ast.unparse(call.func).removeprefix("shrink.")
        assert name in shrink.__all__
        keys = {str(keyword.arg): None for keyword in call.keywords if keyword.arg != "data"}
        if name in STAGES or name == "evaluate":
            rest = {key: None for key in keys if key not in given.COMMON}
            given.verb_sections(name, rest, skip=("teacher", "student"))


@pytest.mark.slow
def test_the_page_runs_block_by_block(tmp_path: Path) -> None:
    script = tmp_path / "page.py"
    script.write_text("\n".join([BEFORE, *BLOCKS]), encoding="utf-8")
    command = [sys.executable, str(script)]
    root = {"PYTHONPATH": str(DOCS.parent)}
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment(tmp_path / "store", root),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "runs" / "q" / "report.json").is_file()
    assert "runs/q/artifacts/" in done.stdout
