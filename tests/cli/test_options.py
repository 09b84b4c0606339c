"""What people type: switches with and without a value, other tools' flags, the version."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from shrink import __version__
from shrink.cli.options import SHOWN
from tests.cli.shell import shrink


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--sparse"], "sparse: true"),
        (["--no-sparse"], "sparse: false"),
        ([], None),
    ],
)
def test_switches_take_no_value(tmp_path: Path, words: list[str], told: str | None) -> None:
    (tmp_path / "m.keras").touch()
    more = ("--scheme", "float16", "--emit-recipe")
    done = shrink("quantize", "m.keras", *words, *more, cwd=tmp_path, store=tmp_path / "store")
    found = [line.strip() for line in done.stdout.splitlines() if "sparse" in line]
    assert found == ([told] if told else [])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--lr", "0.1"], "did you mean --optimizer-learning-rate?"),
        (["--batch-size=8"], "did you mean --global-batch-size?"),
        (["--sparse", "perhaps"], "unexpected extra argument"),
        (["--sparse", "true"], "a switch takes no value: write --FLAG, or --no-FLAG"),
        (["--sparse=true"], "a switch takes no value: write --FLAG, or --no-FLAG"),
        (["--scheme", "int8", "--scheme", "float16"], "--scheme is given twice"),
        (["--image-size", "8,8", "--data-image-size=9,9"], "--data-image-size is given twice"),
        (["--sparse", "--no-sparse"], "--sparse is given twice"),
    ],
)
def test_flags_of_other_tools_are_told_what_is_meant(
    tmp_path: Path, words: list[str], told: str
) -> None:
    store = tmp_path / "store"
    done = shrink("quantize", "m.keras", *words, cwd=tmp_path, store=store, expect=2)
    assert told in done.stderr


def test_distill_takes_several_teachers(tmp_path: Path) -> None:
    for name in ("a.keras", "b.keras"):
        (tmp_path / name).touch()
    words = ["--teacher", "a.keras", "--teacher=b.keras", "--student", "width=0.5", "--quiet"]
    words += ["--quiet", "--data", "digits", "--emit-recipe", "--json"]
    done = shrink("distill", *words, cwd=tmp_path, store=tmp_path / "store")
    recipe = json.loads(done.stdout)
    assert recipe["model"] == "a.keras"
    (stage,) = recipe["stages"]
    assert stage["distill"]["teacher"] == ["a.keras", "b.keras"]


@pytest.mark.parametrize("verb", ["search", "prune"])
def test_help_lists_few_flags_and_help_all_every_one(verb: str, tmp_path: Path) -> None:
    told = [
        shrink(verb, flag, cwd=tmp_path, store=tmp_path).stdout for flag in ("--help", "--help-all")
    ]
    few, every = ({*re.findall(r"^ +(?:-\w, )?(--[a-z-]+)", text, re.MULTILINE)} for text in told)
    assert all(f"--{name.replace('_', '-')} " in told[0] for name in SHOWN[verb])
    assert len(few) <= 20 < len(every)
    assert few < every | {"--help-all"}  # the last line says that there are more


def test_version_is_printed(tmp_path: Path) -> None:
    for flag in ("--version", "-V"):
        done = shrink(flag, cwd=tmp_path, store=tmp_path)
        assert done.stdout == f"shrink {__version__}\n"
