"""Wrong recipes, flags and paths: a clear error, the documented exit code, and no worker."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from shrink.base.errors import ShrinkError
from shrink.data.fingerprint import fingerprint
from shrink.recipe.load import load_recipe
from shrink.recipe.plan import build_plan
from tests.cli.shell import shrink
from tests.cli.toy import RECIPE, write_toy

UNWRITABLE = "/proc/shrink"
"""Not even root can make a folder here."""


def refused(folder: Path, *arguments: str | Path, exit_code: int, words: list[str]) -> str:
    """Run in a folder with a toy recipe; return stderr, in which every word must stand."""
    done = shrink(*arguments, cwd=folder, store=folder / "store", expect=exit_code)
    assert done.stderr.startswith("error: "), done.stderr
    missing = [word for word in words if word not in done.stderr]
    assert not missing, f"{missing} are missing in:\n{done.stderr}"
    assert "[1/" not in done.stderr, "a stage was started"
    return done.stderr


def problem(recipe: Path, words: list[str]) -> ShrinkError:
    """Prepare a run in this process; return its error, in which every word must stand."""
    with pytest.raises(ShrinkError) as caught:
        fingerprint(build_plan(load_recipe(recipe)).recipe.data)
    missing = [word for word in words if word not in str(caught.value)]
    assert not missing, f"{missing} are missing in:\n{caught.value}"
    return caught.value


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a toy recipe."""
    write_toy(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "by", "exit_code", "words"),
    [
        ("toy.py:build", "gone.keras", 3, ["gone.keras", "no such model", "give .keras"]),
        ("toy.py:build", "tory.py:build", 3, ["tory.py", "did you mean", "toy.py?"]),
        ("toy.py:build", "~nobody-at-all/m.h5", 3, ["~nobody-at-all", "no such model"]),
        ("toy.py:build", "sweep", 3, ["name one of its runs", "sweep/a"]),
        ("toy.py:build", "toy.npz", 3, ["toy.npz", "not a kind of model"]),
        ("toy.py:build", "net.PTH", 3, ["net.PTH", "litert-torch", "rebuild it in Keras"]),
        ("toy.py:build", "net.onnx", 3, ["net.onnx", "onnx2tf"]),
        ("toy.py:build", "net.ckpt", 3, ["net.ckpt", "model.save"]),
        ("toy.py:build", "saved_model.pb", 3, ["saved_model.pb", "folder of the SavedModel"]),
        ("toy.py:build", r"D:\a\m.keras", 3, ["no such model", "Linux", "/mnt/d/a/m.keras"]),
        ("toy.npz", "gone.npz", 3, ["gone.npz", "no such file", "correct data.path"]),
        ("source: npz, path: toy.npz", "source: images, path: .", 3, ["no images", "class"]),
        ("epochs: 1", "epochs: one", 2, ["toy.yaml:6:13", "epochs", "integer", "one"]),
        ("epochs: 1", "epochs: 1, epochs: 2", 2, ["toy.yaml:6:24", "epochs"]),
        ("stages:", "task: {metrics: [acuracy]}\nstages:", 2, ["toy.yaml:5", "accuracy?"]),
        ("stages:", "gates: {tflite_bytes: 4 parsecs}\nstages:", 2, ["toy.yaml:5", "parsecs"]),
        ("- train: {epochs: 1}", "- quantize", 2, ["toy.yaml:6", "without weights", "train"]),
    ],
)
def test_run_refuses_a_wrong_recipe(
    tmp_path: Path, changed: str, by: str, exit_code: int, words: list[str]
) -> None:
    assert changed in RECIPE
    (tmp_path / "sweep" / "a").mkdir(parents=True)
    (tmp_path / "sweep" / "a" / "report.json").touch()
    error = problem(write_toy(tmp_path, RECIPE.replace(changed, by)), words)
    assert error.exit_code == exit_code


def test_evaluate_refuses_a_builder(folder: Path) -> None:
    words = ["toy.py:build", "without weights", "shrink train"]
    refused(folder, "evaluate", "toy.py:build", "--data", "toy.npz", exit_code=2, words=words)


def test_run_refuses_a_recipe_that_is_missing(folder: Path) -> None:
    refused(folder, "run", "tiy.yaml", exit_code=2, words=["tiy.yaml", "no such", "toy.yaml?"])
    refused(folder, "run", "digts", exit_code=2, words=["digts", "did you mean digits?"])
    refused(folder, "run", "a" * 300, exit_code=2, words=["no bundled recipe"])


def test_run_refuses_a_recipe_that_cannot_be_read(folder: Path) -> None:
    (folder / "dir.yaml").mkdir()
    refused(folder, "run", "dir.yaml", exit_code=2, words=["dir.yaml", "directory"])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_run_refuses_a_recipe_without_permission(folder: Path) -> None:
    (folder / "toy.yaml").chmod(0)
    refused(folder, "run", "toy.yaml", exit_code=2, words=["cannot be read", "ermission denied"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["runn", "toy.yaml"], ["'runn'", "Did you mean 'run'", "shrink --help"]),
        (["run"], ["shrink run", "Missing argument 'RECIPE'"]),
        (["run", "toy.yaml", "--outptu", "x"], ["--outptu", "--output"]),
        (
            ["train", "toy.py", "--data", "digits", "--class-weights", "{1: 3}"],
            ["class_weights:1:2: a key must be text", "quote the key"],
        ),
        (["run", "toy.yaml", "--set", "x={1: 3}"], ["--set x={1: 3}: a key must", "quote the key"]),
        (["run", "toy.yaml", "more"], ["unexpected", "more"]),
        (["run", "toy.yaml", "--set"], ["'--set' requires an argument"]),
        (["run", "toy.yaml", "--from", "trian"], ["--from", "trian", "did you mean train?"]),
        (["train", "toy.py"], ["--data", "no data was named"]),
        (["init", "toy.py:build", "--data", "whole.yaml"], ["whole.yaml: test_split: 1 leaves"]),
        (["quantize", "toy.py", "--aware"], ["`shrink quantize --help-all`"]),
        (["data", "check", "--seed"], ["`shrink data check --help`"]),
        (["train", "toy.py", "--data", "digtis"], ["did you mean digits?"]),
        (["train", "toy.py", "--data", "digits", "--epochs", "x"], ["epochs", "integer", "'x'"]),
        (["profile", "toy.py", "--batch-size", "0"], ["--batch-size", "0 is not in the range"]),
        (["profile", "toy.py", "--batch-size", "x"], ["--batch-size", "not a valid integer"]),
        (["export", "toy.py", "--format", "onnx"], ["--format", "'onnx'", "'keras'"]),
    ],
    ids=lambda value: " ".join(value[:4]) if isinstance(value, list) else None,
)
def test_shrink_refuses_wrong_flags(folder: Path, arguments: list[str], words: list[str]) -> None:
    (folder / "whole.yaml").write_text("data: {source: npz, path: toy.npz, test_split: 1}\n")
    exit_code = 3 if "digtis" in arguments else 2
    error = refused(folder, *arguments, exit_code=exit_code, words=words)
    assert "Value error" not in error
    assert "Input should" not in error


@pytest.mark.parametrize(
    ("arguments", "exit_code"),
    [
        (["run", "gone.yaml", "--json"], 2),
        (["run", "--json"], 2),
        (["run", "toy.yaml", "--bogus", "--json"], 2),
        (["evaluate", "gone.keras", "--data", "digits", "--json"], 3),
        (["run", "toy.yaml", "--json", "--output", UNWRITABLE], 5),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_an_error_is_one_json_document_with_json(
    folder: Path, arguments: list[str], exit_code: int
) -> None:
    done = shrink(*arguments, cwd=folder, store=folder / "store", expect=exit_code)
    document = json.loads(done.stdout)
    assert document["error"]["exit_code"] == exit_code
    assert document["error"]["message"] in done.stderr
    assert document["error"]["hint"]


def test_every_problem_of_a_recipe_is_named_at_once(tmp_path: Path) -> None:
    text = RECIPE.replace("epochs: 1", "epochs: x").replace("source: npz", "sauce: npz")
    write_toy(tmp_path, text + "extra: 1\n")
    words = ["unknown key 'sauce'", "did you mean source?", "epochs", "unknown key 'extra'"]
    error = refused(tmp_path, "run", "toy.yaml", exit_code=2, words=words)
    assert error.count("error: ") >= 4


def test_run_refuses_an_output_folder_that_cannot_be_written(folder: Path) -> None:
    for place in (UNWRITABLE, "/sys/shrink"):
        words = [place, "cannot write here", "--output"]
        refused(folder, "run", "toy.yaml", "--output", place, exit_code=5, words=words)


@pytest.mark.parametrize("force", [[], ["--force"]], ids=["plain", "force"])
def test_run_refuses_an_output_folder_that_is_a_file(folder: Path, force: list[str]) -> None:
    (folder / "file").write_text("mine", encoding="utf-8")
    arguments = ["run", "toy.yaml", "--output", "file", *force]
    refused(folder, *arguments, exit_code=2, words=["file", "is a file", "--output"])
    assert (folder / "file").read_text(encoding="utf-8") == "mine"


def test_run_refuses_an_output_folder_with_other_files(folder: Path) -> None:
    mine = folder / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("mine", encoding="utf-8")
    (mine / "report.json").write_text('{"stages": [], "recipe": "cake"}', encoding="utf-8")
    words = ["mine", "no run of shrink wrote", "--force"]
    refused(folder, "run", "toy.yaml", "--output", "mine", exit_code=2, words=words)
    assert sorted(path.name for path in mine.iterdir()) == ["report.json", "thesis.txt"]


def test_commands_refuse_what_is_no_run_folder(folder: Path) -> None:
    refused(folder, "report", "gone", exit_code=3, words=["gone", "no report", "a finished run"])
    refused(folder, "diff", ".", ".", exit_code=3, words=["no report"])
    refused(folder, "evaluate", ".", "--data", "digits", exit_code=3, words=["SavedModel", "run"])
