"""No flag is taken and then does nothing: it changes what is handed on, or is refused.

Every command is called with each of its flags in turn. What computes is replaced by something that
keeps what it was handed: the plan and the options of a run, the job of a tool, the console.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest
import typer

from shrink.base.console import Console
from shrink.base.errors import ShrinkError
from shrink.cli import tools
from shrink.cli.app import COMMANDS, build
from shrink.run import export, session, verb
from tests.cli.toy import write_toy

WORDS = {
    "run": "run toy.yaml",
    "train": "train toy.py:build --data toy.npz",
    "quantize": "quantize big.keras --data toy.npz",
    "compact": "compact some.tflite",
    "compact to a file": "compact some.tflite --output new.tflite",
    "evaluate": "evaluate big.keras --data toy.npz",
    "profile": "profile big.keras --batch-size 8",
    "inspect": "inspect big.keras",
    "export": "export big.keras --format keras3",
    "export an artifact": "export some.tflite --format cc-array",
    "bench": "bench some.tflite",
}
VALUES = {
    "--batch-size": "9",
    "--custom-objects": "other.py",
    "--data": "other.npz",
    "--format": "savedmodel",
    "--from": "train",
    "--memory-limit": "1GB",
    "--mlflow": "http://host:5000",
    "--name": "array",
    "--output": "elsewhere",
    "--set": "training.seed=3",
    "--student": "big.keras",
    "--teacher": "small.keras",
    "--tensorboard": "logs",
    "--threads": "3",
    "--trace": "traces",
    "--until": "train",
}
_OF_KIND = {"N": "0.3", "SIZE": "1MB", "VALUE": "x"}
FREE = [
    # Where nothing is in the way there is nothing to force.
    ("compact to a file", "--force"),
]
"""What a flag may leave as it is: it says what to do in a case that is not this one."""


class _Handed(Exception):
    """What the heavy half would have been given."""


@pytest.fixture(autouse=True)
def _replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    def kept(*given: object, **named: object) -> NoReturn:
        raise _Handed("; ".join(_text(one) for one in (*given, *named.items())))

    def whole(function: Callable[..., object]) -> Callable[..., None]:
        """Return what keeps its own arguments beside what it hands on."""

        def called(*given: object, **named: object) -> None:
            try:
                function(*given, **named)
            except _Handed as handed:
                kept(handed, *given, **named)

        return called

    monkeypatch.setattr(session, "guard_source", lambda *_: None)
    monkeypatch.setattr(session, "Runner", kept)
    monkeypatch.setattr(session, "run_plan", whole(session.run_plan))
    monkeypatch.setattr(tools, "export_model", whole(export.export_model))
    monkeypatch.setattr("shrink.run.tool.run_tool", kept)
    monkeypatch.setattr(tools, "run_tool", kept)
    monkeypatch.setattr(verb, "run_tool", kept)
    monkeypatch.setattr(export, "run_tool", kept)


def _text(value: object) -> str:
    return repr(vars(value)) if isinstance(value, Console) else repr(value)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_toy(tmp_path)
    for name in ("big.keras", "small.keras", "some.tflite", "float.tflite", "there.tflite"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "other.py").write_text("")
    (tmp_path / "other.npz").write_bytes((tmp_path / "toy.npz").read_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def app() -> typer.Typer:
    """The commands, with the flags of every verb."""
    return build([*COMMANDS])


@pytest.fixture
def outcome(
    app: typer.Typer, folder: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[[Sequence[str]], str]:
    """Return what a command hands on, prints, or says in the typed error that it ends with."""

    def of(words: Sequence[str]) -> str:
        try:
            app(list(words), standalone_mode=False)
        except _Handed as handed:
            return str(handed)
        except ShrinkError as error:
            return f"{type(error).__name__}: {error}"
        return capsys.readouterr().out

    return of


def flags_of(command: Any, sections: bool) -> Iterator[tuple[str, ...]]:
    """Yield the words of each flag of a command; those of a recipe's sections where asked for."""
    for parameter in command.params:
        name = next((one for one in parameter.opts if one.startswith("--")), "--help")
        if name == "--help":
            continue
        own = name in VALUES
        if parameter.is_flag and (sections or not parameter.secondary_opts):
            yield (name,)
        elif own or (sections and not parameter.is_flag):
            kind = parameter.metavar or ""
            yield (name, VALUES[name] if own else _OF_KIND.get(kind, kind.rpartition("|")[2]))


@pytest.mark.parametrize("situation", WORDS)
def test_every_flag_of_a_command_does_something(
    situation: str, app: typer.Typer, outcome: Callable[[Sequence[str]], str]
) -> None:
    words = WORDS[situation].split()
    plain = outcome(words)
    command = typer.main.get_command(app).commands[words[0]]  # type: ignore[attr-defined]
    # What a flag of the training, or of another stage, sets goes the same way as these.
    found = list(flags_of(command, sections=situation in ("compact to a file", "evaluate")))
    assert len(found) > 1
    idle = [flag[0] for flag in found if outcome([*words, *flag]) == plain]
    assert [name for name in idle if (situation, name) not in FREE] == []


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        ("compact some.tflite --output new.tflite --no-cache", "--no-cache"),
        ("compact some.tflite --output new.tflite --seed 3", "--seed"),
        ("compact some.tflite --output new.tflite --task-loss mean_squared_error", "--task-loss"),
        ("compact some.tflite --output new.tflite --trust-model", "--trust-model"),
        ("compact some.tflite --output new.tflite --custom-objects other.py", "--custom-objects"),
        ("compact some.tflite --trust-model", "--trust-model"),
        ("compact some.tflite --custom-objects other.py", "--custom-objects"),
        ("evaluate some.tflite --data toy.npz --trust-model", "--trust-model"),
        ("quantize float.tflite --data toy.npz --custom-objects other.py", "--custom-objects"),
        ("inspect some.tflite --trust-model", "--trust-model"),
        ("export some.tflite --format cc-array --custom-objects other.py", "--custom-objects"),
    ],
)
def test_a_flag_that_would_do_nothing_is_refused_by_its_name(
    words: str, flag: str, outcome: Callable[[Sequence[str]], str]
) -> None:
    assert outcome(words.split()).startswith(f"RecipeError: {flag}: has no effect")


def test_what_is_about_examples_needs_some(outcome: Callable[[Sequence[str]], str]) -> None:
    for flag, key in (("--seed", "seed"), ("--task-loss", "loss"), ("--data-test-split", "test_")):
        found = outcome(["compact", "some.tflite", flag, "3"])
        assert "no data was named" in found
        assert key in found


def test_a_file_that_is_there_is_overwritten_by_force_alone(
    outcome: Callable[[Sequence[str]], str],
) -> None:
    words = ["compact", "some.tflite", "--output", "there.tflite"]
    assert "the file exists" in outcome(words)
    assert "CompactJob" in outcome([*words, "--force"])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("cache --json list", "shrink cache list --json"),
        ("cache --quiet clear", "shrink cache clear --quiet"),
        ("diff a b --json --markdown", "--markdown: cannot be combined with --json"),
        ("compare a b --json --markdown", "--markdown: cannot be combined with --json"),
    ],
)
def test_flags_that_others_would_hide_are_refused(
    words: str, told: str, outcome: Callable[[Sequence[str]], str]
) -> None:
    found = outcome(words.split())
    assert found.startswith("RecipeError: --")
    assert told in found


def test_a_recipe_is_printed_as_json_where_that_is_asked_for(
    outcome: Callable[[Sequence[str]], str],
) -> None:
    words = "quantize big.keras --data toy.npz --emit-recipe --json"
    assert json.loads(outcome(words.split()))["stages"] == [{"quantize": {}}]
