"""The README's file tree and commands are true."""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
import yaml

from shrink.cli import init, tools, validate, verbs
from shrink.cli import run as shrink_run

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def tracked() -> list[Path]:
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [Path(line) for line in done.stdout.splitlines()]


def tree() -> str:
    return README.partition("## The code")[2].partition("```")[2].partition("```")[0]


def test_tree_names_every_folder_of_the_package() -> None:
    rooms = {p.parts[1] for p in tracked() if p.parts[0] == "shrink" and len(p.parts) > 2}
    missing = [room for room in rooms if f"{room}/" not in tree()]
    assert missing == []
    stages = {p.parts[2] for p in tracked() if p.parts[:2] == ("shrink", "stages")}
    folders = [name for name in stages if (ROOT / "shrink" / "stages" / name).is_dir()]
    assert [name for name in folders if f"{name}/" not in tree()] == []


def test_tree_names_nothing_that_is_not_there() -> None:
    known = {part for path in tracked() for part in path.parts}
    names = re.findall(r"(?<!\S)([\w.-]+/|[\w-]+\.(?:py|md|toml|json))(?=\s|$|:)", tree())
    assert len(names) > 20
    assert [name for name in names if name.rstrip("/") not in known] == []


def blocks() -> list[str]:
    """Return all commands, of fenced blocks and between backticks; comments and pipes cut off."""
    fenced = re.findall(r"```\n(.*?)```", README, flags=re.DOTALL)
    lines = [line.strip() for block in fenced for line in block.splitlines()]
    calls = [line.rpartition("&& ")[2] for line in lines]
    calls += re.findall(r"`(shrink [a-z-]+ [^`]+)`", README)
    known = [re.split(r"\s[#>|]", call)[0].strip() for call in calls if call.startswith("shrink ")]
    return [call for call in dict.fromkeys(known) if not re.search(r"\b[A-Z][A-Z_]{2,}\b", call)]


def run_in_process(words: list[str], folder: Path) -> str:
    """Run a command without a process of its own, which would cost seconds; return its stdout."""
    app = typer.Typer(no_args_is_help=True)
    shrink_run.register(app)
    verbs.register(app, words)
    app.command("validate")(validate.validate)
    printed = io.StringIO()
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stdout(printed),
        contextlib.suppress(typer.Exit),
    ):
        app(words, standalone_mode=False)
    return printed.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of the names that the README gives; a recipe or a verb only asks whether they exist."""
    path = tmp_path_factory.mktemp("readme")
    for name in ("recipes", "models"):
        (path / name).symlink_to(ROOT / name)
    for name in ("model.h5", "model.keras", "big.keras", "student.py", "arrays.npz"):
        (path / name).touch()
    (path / "pictures").mkdir()
    run = path / "runs" / "prune-model"
    (run / "artifacts").mkdir(parents=True)
    (run / "artifacts" / "01-prune.keras").touch()
    stages = [{"artifact": "artifacts/01-prune.keras"}]
    (run / "report.json").write_text(json.dumps({"stages": stages}), encoding="utf-8")
    data = "data: {source: images, path: ../../pictures}\n"
    (run / "recipe.resolved.yaml").write_text(data, encoding="utf-8")
    return path


@pytest.mark.parametrize("call", blocks())
def test_commands_of_the_readme_are_ones_that_shrink_takes(call: str, folder: Path) -> None:
    _, verb, *words = shlex.split(call)
    if verb in verbs.VERBS or verb == "evaluate":
        recipe = run_in_process([verb, *words, "--emit-recipe"], folder)
        assert yaml.safe_load(recipe)["stages"]
    elif verb == "run":
        recipe, *flags = [word for word in words if word != "--dry-run"]
        path = recipe if recipe.endswith(".yaml") else f"recipes/{recipe}.yaml"
        assert "valid" in run_in_process(["validate", path, *flags], folder)
    else:
        flags = [word for word in words if word.startswith("--")]
        parameters = inspect.signature(COMMANDS[verb]).parameters
        known = {f"--{name.rstrip('_').replace('_', '-')}" for name in parameters}
        assert set(flags) <= known


COMMANDS: dict[str, Callable[..., None]] = {
    "init": init.init,
    "profile": tools.profile,
    "export": tools.export,
}
