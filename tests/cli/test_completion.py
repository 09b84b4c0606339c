"""What a shell is told when a user presses the tabulator."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.shell import shrink


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("shrink qu", ["quantize"]),
        ("shrink quantize --sch", ["--scheme"]),
        ("shrink quantize m.keras --scheme int", ["int8", "int16x8"]),
        ("shrink run digits-se", ["digits-segment"]),
        ("shrink inspect m", []),  # the shell completes names of files
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
    done = shrink(cwd=tmp_path, store=tmp_path / "store", env=asked)
    assert done.stdout.split() == expected


def test_zsh_and_fish_complete_flags_and_recipe_files(tmp_path: Path) -> None:
    (tmp_path / "digits-mine.yaml").touch()
    for typed, expected in (
        ("shrink quantize m.keras --sch", "--scheme"),
        ("shrink run digits-mi", "digits-mine.yaml"),
    ):
        asked = {"_SHRINK_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": typed}
        done = shrink(cwd=tmp_path, store=tmp_path / "store", env=asked)
        assert expected in done.stdout
