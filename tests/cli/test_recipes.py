"""`shrink validate` of one recipe, of several, and of standard input."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.cli.shell import command, environment, shrink
from tests.cli.toy import RECIPE, write_toy


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a right recipe and a wrong one."""
    write_toy(tmp_path)
    (tmp_path / "wrong.yaml").write_text(RECIPE.replace("epochs: 1", "epoch: 1"))
    return tmp_path


def test_validate_looks_at_every_recipe_whatever_the_others_hold(folder: Path) -> None:
    done = shrink(
        "validate", "wrong.yaml", "toy.yaml", "gone.yaml", cwd=folder, store=folder, expect=2
    )
    assert "toy.yaml: valid (train" in done.stdout
    assert "wrong.yaml:6:13: unknown key 'epoch'" in done.stderr
    assert "no such recipe" in done.stderr


def test_validate_refuses_a_model_that_no_stage_can_use(folder: Path) -> None:
    text = RECIPE.split("stages:")[0].replace("toy.py:build", "net.keras")
    (folder / "never.yaml").write_text(text + "stages:\n  - compact\n")
    missing = shrink("validate", "never.yaml", cwd=folder, store=folder)
    assert "no such model" in missing.stderr
    (folder / "net.keras").write_bytes(b"")
    done = shrink("validate", "never.yaml", "toy.yaml", cwd=folder, store=folder, expect=2)
    assert "never.yaml: compact starts from a .tflite file" in done.stderr
    assert "static_wi8_ai8" in done.stderr
    assert "toy.yaml: valid" in done.stdout


def test_validate_looks_at_the_values_of_small_data(folder: Path) -> None:
    np.savez(folder / "toy.npz", x=np.full((60, 4), np.nan), y=np.arange(60) % 3)
    done = shrink("validate", "toy.yaml", cwd=folder, store=folder, expect=2)
    assert "x[0, 0] is nan: not a finite float32" in done.stderr
    (folder / "toy.npz").unlink()
    missing = shrink("validate", "toy.yaml", cwd=folder, store=folder)
    assert "the data is not here" in missing.stderr
    assert shrink("validate", "tones-keyword", cwd=folder, store=folder).stderr == ""


def test_validate_of_several_is_one_document(folder: Path) -> None:
    done = shrink("validate", "toy.yaml", "toy.yaml", "--json", cwd=folder, store=folder)
    names = [found["recipe"] for found in json.loads(done.stdout)["recipes"]]
    assert names == ["toy", "toy"]


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [(RECIPE, 0, "-: valid"), (RECIPE.replace("epochs: 1", "epoch: 1"), 2, "stdin:6:13")],
)
def test_validate_reads_standard_input(folder: Path, text: str, code: int, words: str) -> None:
    done = subprocess.run(
        command("validate", "-"),
        cwd=folder,
        env=environment(folder),
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code
    assert words in done.stdout + done.stderr
