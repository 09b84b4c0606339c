"""The light commands load nothing heavy."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from shrink.base.files import write_json
from shrink.recipe.bundle import bundled_root
from tests.cli.shell import shrink
from tests.report.toys import report

HEAVY = ("tensorflow", "tf_keras", "keras", "ai_edge_litert", "sklearn", "numpy", "tflite_micro")
RECIPE = str(bundled_root() / "recipes" / "digits.yaml")

_PROBE = """
import sys
sys.argv = ["shrink", *sys.argv[1:]]
from shrink.cli import main
try:
    main()
finally:
    loaded = [name for name in {heavy!r} if name in sys.modules]
    print("HEAVY", loaded, file=sys.stderr)
"""


def heavy_modules_of(*arguments: str, cwd: Path, heavy: tuple[str, ...] = HEAVY) -> str:
    done = subprocess.run(
        [sys.executable, "-c", _PROBE.format(heavy=heavy), *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["prune", "--help"],
        ["validate", RECIPE],
        ["run", RECIPE, "--dry-run"],
    ],
    ids=" ".join,
)
def test_light_commands_load_nothing_heavy(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHRINK_CACHE_DIR", str(tmp_path / "store"))
    assert heavy_modules_of(*arguments, cwd=tmp_path) == "HEAVY []"


@pytest.mark.parametrize(
    "arguments",
    [
        ["recipes"],
        ["diff", "out", "out"],
        ["compare", "out", "--output", "page"],
        ["report", "out"],
    ],
    ids=lambda words: words[0],
)
def test_commands_that_check_no_recipe_load_no_pydantic(
    arguments: list[str], tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    write_json(tmp_path / "out" / "report.json", report())
    heavy = (*HEAVY, "pydantic")
    assert heavy_modules_of(*arguments, cwd=tmp_path, heavy=heavy) == "HEAVY []"


@pytest.mark.parametrize("command", ["schema", "validate", "report"])
def test_commands_take_quiet_and_json(command: str, tmp_path: Path) -> None:
    write_json(tmp_path / "report.json", report())
    of = {"validate": [RECIPE], "report": ["."]}.get(command, [])
    as_json, quiet = (
        shrink(command, *of, flag, cwd=tmp_path, store=tmp_path / "store")
        for flag in ("--json", "--quiet")
    )
    json.loads(as_json.stdout)
    assert as_json.stderr == quiet.stderr == ""
