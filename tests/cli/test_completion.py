"""What a shell is told when a user presses the tabulator."""

from __future__ import annotations

from pathlib import Path

import pytest

from shrink.cli import completion
from tests.cli.shell import shrink


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("shrink qu", ["quantize"]),
        ("shrink quantize --sch", ["--scheme"]),
        ("shrink quantize m.keras --scheme int", ["int8", "int16x8"]),
    ],
)
def test_shrink_completes_commands_and_flags(
    tmp_path: Path, typed: str, expected: list[str]
) -> None:
    asked = {
        "_SHRINK_COMPLETE": "complete_bash",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(typed.count(" ")),
    }
    done = shrink(cwd=tmp_path, store=tmp_path / "store", env=asked, fresh=True)
    assert done.stdout.split() == expected


def test_values_names_and_folders_are_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("runs/one", "runs/two/deeper"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("runs/one/report.json", "digits-own.yaml", "model.keras", "notes.txt"):
        (tmp_path / name).touch()
    assert completion.one_of(("int8", "fp16"))("i") == ["int8"]
    assert completion.recipe_names("digits-o") == ["digits-own.yaml"]
    assert "digits" in completion.recipe_names("dig")
    assert completion.models("m") == ["model.keras"]
    assert completion.models("runs/o") == ["runs/one"]
    assert completion.run_folders("") == ["runs/one", "runs/two/"]
    assert completion.run_folders(f"{tmp_path}/runs/o") == [f"{tmp_path}/runs/one"]
    assert completion.run_folders("nowhere/") == []
