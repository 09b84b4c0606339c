"""What the last run of a folder tells the next one."""

from __future__ import annotations

from pathlib import Path

from shrink.base.files import write_json
from shrink.run.steps import seconds_before
from tests.report.toys import report


def test_seconds_are_those_of_the_last_run_and_unknown_where_one_is(tmp_path: Path) -> None:
    assert seconds_before(tmp_path, ["prune"]) is None
    known = report()
    write_json(tmp_path / "report.json", known)
    names = [stage["name"] for stage in known["stages"]]
    expected = sum(stage["duration_s"] for stage in known["stages"][1:])
    assert seconds_before(tmp_path, names[1:]) == expected
    assert seconds_before(tmp_path, []) == 0
    assert seconds_before(tmp_path, [*names, "nothing"]) is None
