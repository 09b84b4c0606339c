"""The commands of README.md and SKILL.md, and the file tree of CONTRIBUTING.md, are true."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import itertools
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import typer
import yaml

from shrink.base import errors
from shrink.base.fields import named_fields
from shrink.base.files import sha256
from shrink.cli import data, recipes
from shrink.cli.app import COMMANDS, build
from shrink.cli.options import EXAMPLES
from shrink.cli.run import run as run_command
from shrink.recipe.search_config import NOT_FLAGS, SearchConfig
from tests.report.toys import report_naming

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
SKILL = (ROOT / "skills" / "shrink" / "SKILL.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def tracked() -> list[Path]:
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [Path(line) for line in done.stdout.splitlines()]


def tree() -> str:
    return CONTRIBUTING.partition("## Where things are")[2].split("```")[1]


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


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "AGENTS.md"])
def test_files_that_pages_for_contributors_name_are_there(page: str) -> None:
    named = set(
        re.findall(r"`((?:shrink|tests|docs|recipes)/[\w./-]+)`", (ROOT / page).read_text())
    )
    examples = ("smooth", "NAME", "sources/rows.py", "test_rows.py")
    missing = [one for one in named if not (ROOT / one).exists()]
    assert len(named) > 5
    assert [one for one in missing if not any(word in one for word in examples)] == []


def test_tables_that_contributing_names_are_where_it_says() -> None:
    pairs = re.findall(r"`(\w*[A-Z]\w*)`(?: or `\w+`)? (?:in|of) `([\w/]+\.py)`", CONTRIBUTING)
    assert len(pairs) > 10
    assert [
        (name, path)
        for name, path in pairs
        if (ROOT / path).exists() and name not in (ROOT / path).read_text(encoding="utf-8")
    ] == []


def blocks() -> list[str]:
    """Return all commands, of fenced blocks and between backticks; comments and pipes cut off."""
    fenced = re.findall(r"```\n(.*?)```", README + SKILL, flags=re.DOTALL)
    lines = [line.strip() for block in fenced for line in block.splitlines()]
    calls = [line.rpartition("&& ")[2] for line in lines]
    calls += re.findall(r"`(shrink [a-z-]+ [^`]+)`", README + SKILL)
    known = [re.split(r"\s[#>|]", call)[0].strip() for call in calls if call.startswith("shrink ")]
    known += [example for examples in EXAMPLES.values() for example in examples]
    return [call for call in dict.fromkeys(known) if not re.search(r"\b[A-Z][A-Z_]{2,}\b", call)]


def run_in_process(words: list[str], folder: Path) -> str:
    """Run a command without a process of its own, which would cost seconds; return its stdout."""
    app = build(words)
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
    for name in (
        "model.tflite",
        "model.h5",
        "model.keras",
        "big.keras",
        "student.py",
        "arrays.npz",
        "test.npz",
    ):
        (path / name).touch()
    (path / "pictures").mkdir()
    shutil.copy(ROOT / "recipes" / "digits-train.yaml", path / "recipe.yaml")
    for name, file in (("prune-model", "01-prune.keras"), ("quantize-prune-model", "01.tflite")):
        run = path / "runs" / name
        (run / "artifacts").mkdir(parents=True)
        (run / "artifacts" / file).touch()
        digest = sha256(run / "artifacts" / file)
        built = report_naming({"artifact": f"artifacts/{file}", "sha256": digest})
        (run / "report.json").write_text(json.dumps(built), encoding="utf-8")
        record = {"artifacts": [{"file": file, "sha256": digest, "labels": ["a", "b"]}]}
        (run / "artifacts" / "metadata.json").write_text(json.dumps(record), encoding="utf-8")
        data = "data: {source: images, path: ../../images}\n"
        (run / "recipe.resolved.yaml").write_text(data, encoding="utf-8")
    return path


@pytest.mark.parametrize("call", blocks())
def test_commands_of_the_readme_are_ones_that_shrink_takes(call: str, folder: Path) -> None:
    _, verb, *words = shlex.split(call)
    if COMMANDS[verb][0] == "verbs":
        recipe = run_in_process([verb, *words, "--emit-recipe"], folder)
        assert [list(stage) for stage in yaml.safe_load(recipe)["stages"]] == (
            [] if verb == "evaluate" else [[verb]]
        )
    elif verb in ("run", "validate"):
        recipe, *flags = words
        path = recipe if recipe.endswith(".yaml") else f"recipes/{recipe}.yaml"
        changes = [w for pair in itertools.pairwise(flags) if pair[0] == "--set" for w in pair]
        assert "valid" in run_in_process(["validate", path, *changes], folder)
        assert_known_flags(run_command if verb == "run" else recipes.validate, flags)
    elif verb == "data":
        assert_known_flags(getattr(data, words[0]), words[1:])
    else:
        more = flags_of_search() if verb == "search" else ()
        module = importlib.import_module(f"shrink.cli.{COMMANDS[verb][0]}")
        assert_known_flags(getattr(module, verb), words, more)


def flags_of_search() -> list[str]:
    return [name for name, _, _ in named_fields(SearchConfig, NOT_FLAGS)]


def assert_known_flags(
    command: Callable[..., None], words: list[str], more: Iterable[str] = ()
) -> None:
    names = [*inspect.signature(command).parameters, *more]
    known = {f"--{name.strip('_').replace('_', '-')}" for name in names}
    assert {word for word in words if word.startswith("--")} <= known


def test_the_skill_has_a_name_a_description_and_the_exit_codes() -> None:
    _, head, body = SKILL.split("---\n", 2)
    fields = yaml.safe_load(head)
    assert fields["name"] == "shrink"
    assert 100 < len(fields["description"]) <= 1024
    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", body, flags=re.MULTILINE)}
    kinds: list[type[errors.ShrinkError]] = [
        errors.ShrinkError,
        *errors.ShrinkError.__subclasses__(),
    ]
    assert {kind.exit_code for kind in kinds} - {130, 143} | {0, 1} == codes


def test_the_readmes_workflow_gives_the_action_inputs_that_it_has() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", README, flags=re.DOTALL)
    (step,) = [
        one for one in yaml.safe_load(block)["jobs"]["model"]["steps"] if "shrink@" in one["uses"]
    ]
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    assert step["with"].keys() <= action["inputs"].keys()


def test_the_readme_can_be_read_in_five_minutes() -> None:
    assert 800 <= len(README.split()) <= 1000


def test_help_shows_each_example_on_a_line_of_its_own() -> None:
    text = run_in_process(["evaluate", "--help"], ROOT)
    assert "Examples:\n" in text
    assert any(line.strip() == EXAMPLES["evaluate"][0] for line in text.splitlines())
