"""Every figure of reports over a zoo of models, data and chains, recomputed from outside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.oracle import zoo, zoo_tables
from tests.oracle.audit import audit
from tests.oracle.drive import Done, Fork, run_cli
from tests.oracle.records import summary
from tests.oracle.truth import Truth

ROWS = zoo.rows()
SAMPLE = zoo.sample()


@pytest.fixture(scope="module")
def fork(tmp_path_factory: pytest.TempPathFactory) -> Fork:
    return Fork(tmp_path_factory.mktemp("store"))


def test_rows_are_as_many_as_they_should_be_and_the_sample_has_every_level() -> None:
    assert len(ROWS) >= 60
    assert len(SAMPLE) == 6
    assert all(zoo.allowed(row) for row in SAMPLE)
    for factor, levels in zoo.FACTORS.items():
        # Endings are told apart in tests/model/test_output_kind.py.
        assert factor == "ending" or {row[factor] for row in SAMPLE} == set(levels), factor


@pytest.mark.parametrize("row", SAMPLE, ids=zoo.name_of)
def test_report_agrees_with_the_oracle(row: zoo.Row, fork: Fork, tmp_path: Path) -> None:
    made = zoo.make(row, tmp_path)
    _assert_right(fork.run(made.arguments, tmp_path), tmp_path / "out", made.truth)


@pytest.mark.parametrize("name", ["texts", "series"])  # the sample has a table
def test_report_of_texts_and_series_agrees_with_the_oracle(
    name: str, fork: Fork, tmp_path: Path
) -> None:
    truth = zoo_tables.MAKERS[name](tmp_path)
    done = fork.run(["run", "recipe.yaml", "--output", "out"], tmp_path)
    _assert_right(done, tmp_path / "out", truth)


@pytest.mark.slow
@pytest.mark.parametrize("row", [*SAMPLE, *ROWS], ids=zoo.name_of)
def test_report_of_the_command_line_agrees_with_the_oracle(row: zoo.Row, tmp_path: Path) -> None:
    made = zoo.make(row, tmp_path)
    done = run_cli(made.arguments, tmp_path, tmp_path / "store")
    _assert_right(done, tmp_path / "out", made.truth)


@pytest.mark.slow
@pytest.mark.parametrize("name", zoo_tables.MAKERS)
def test_report_of_texts_tables_and_series_by_the_command_line_does(
    name: str, tmp_path: Path
) -> None:
    truth = zoo_tables.MAKERS[name](tmp_path)
    done = run_cli(["run", "recipe.yaml", "--output", "out"], tmp_path, tmp_path / "store")
    _assert_right(done, tmp_path / "out", truth)


def _assert_right(done: Done, folder: Path, truth: Truth) -> None:
    """Compare every figure, and the exit code with the gates: one epoch may well miss one."""
    assert done.code in (0, 1), done.printed
    records = audit(folder, truth)
    assert not [r for r in records if not r.agrees], summary(records)
    passed = json.loads((folder / "report.json").read_text(encoding="utf-8"))["passed"]
    assert done.code == int(not passed), done.printed
