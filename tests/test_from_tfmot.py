"""The page for people who come from tfmot: its figures are those that were measured, and hold."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks import bench_from_tfmot

DOCS = Path(__file__).parents[1] / "docs"
PAGE, FIGURES = DOCS / "from-tfmot.md", DOCS / "from-tfmot.jsonl"


def test_the_page_shows_the_figures_and_commands_that_were_measured() -> None:
    lines = FIGURES.read_text("utf-8")
    assert bench_from_tfmot.table(lines) in PAGE.read_text("utf-8")
    measured = {row["row"]: row.get("command") for row in map(json.loads, lines.splitlines())}
    wanted = {row: f"shrink {command}" for row, (_, command) in bench_from_tfmot.ROWS.items()}
    assert measured == {"base": None, **wanted}


@pytest.mark.slow
def test_the_figures_are_had_again() -> None:
    command = [sys.executable, "-m", bench_from_tfmot.__name__]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=DOCS.parent)
    before = [json.loads(line) for line in FIGURES.read_text("utf-8").splitlines()]
    now = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["row"] for row in now] == [row["row"] for row in before]
    for old, new in zip(before, now, strict=True):
        for side in {"tfmot", "shrink"} & old.keys():
            assert new[side]["accuracy"] == pytest.approx(old[side]["accuracy"], abs=0.1)
            for size in ("bytes", "gzip_bytes"):
                assert new[side][size] == pytest.approx(old[side][size], rel=0.1)
