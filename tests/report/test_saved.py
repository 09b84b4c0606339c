"""Reports of earlier runs: read, written again, shown, and as the schema says."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from docs.report_schema import report_schema, report_schema_text
from shrink.base.files import json_text
from shrink.contract.codec import to_plain
from shrink.contract.report_file import read_report, report_of
from shrink.report.run_files import RENDERED
from tests.report.plain import gate_lines, render, render_html, shape_problem
from tests.report.saved import NAMES, saved
from tests.report.toys import outcomes, report, with_result

SCHEMA = Path(__file__).parents[2] / "docs" / "report.schema.json"


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_report_is_written_again_byte_by_byte(name: str, tmp_path: Path) -> None:
    text = json_text(saved(name))
    (tmp_path / "report.json").write_text(text, encoding="utf-8")
    assert json_text(to_plain(read_report(tmp_path))) == text


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_report_is_shown(name: str) -> None:
    assert set(render(saved(name))) == set(RENDERED)


def later() -> dict[str, Any]:
    """A report of a later version, with keys that are not known yet, everywhere."""
    built = saved("taught")
    for known in (built, built["environment"], built["recipe"], *built["stages"]):
        known["later"] = {"a": [1, None]}
    for stage in built["stages"]:
        stage["size"]["flash_bytes"] = stage["details"]["later"] = 7
    return {"first": 1, **built}


def earlier() -> dict[str, Any]:
    """A report of an earlier version, without what came since."""
    built = saved("missed")
    for key in ("outcome", "warnings", "finals", "chain", "data", "source", "trust_model"):
        del built[key]
    for stage in built["stages"]:
        del stage["intervals"], stage["guess"], stage["details"]
    for gate in built["gates"]:
        del gate["level"]
    return built


@pytest.mark.parametrize("make", [later, earlier])
def test_a_report_of_another_version_is_read_and_shown(make: Any) -> None:
    built = make()
    read = to_plain(report_of(copy.deepcopy(built)))
    assert read["stages"][0]["metrics"] == built["stages"][0]["metrics"]
    assert set(render(built)) == set(RENDERED)
    jsonschema.validate(built, report_schema())


def test_what_removed_keys_decided_is_called_what_it_was() -> None:
    stages = outcomes()
    stages[1] = with_result(
        stages[1],
        details={
            "sensitivity": [
                {"layers": "conv", "ratios": [0.5], "losses": [0.91], "metric": "accuracy"}
            ],
            "compact": {"changed": True, "target": "litert", "arena_before": 9, "arena_after": 4},
        },
    )
    built = report(stages, finals=("prune",))
    # A gate on slices against a saved report.
    built["gates"] = [
        {
            **{"name": "worst_slice_drop", "limit": 0.02, "value": 0.05, "passed": False},
            **{"by": "place", "slice": "barn", "metric": "accuracy", "stage": "prune"},
            **{"against": "main.json", "current": 0.9, "saved": 0.95},
        }
    ]
    page = render_html(built)
    assert "Accuracy on validation examples when one group" in page
    assert "Loss on validation examples" not in page
    assert "Compacted, its activations take 4 B instead of 9 B." in page
    (gate,) = gate_lines(built)
    words = "95.00 % in main.json, now 90.00 %: worse by 5.00 points > 2 points"
    assert gate.comparison == f"place = barn: {words}"
    assert shape_problem(built) is None


def test_schema_file_is_current() -> None:
    written = SCHEMA.read_text(encoding="utf-8")
    assert written == report_schema_text(), "run `python -m docs.refresh schema`"


def test_schema_is_valid_and_accepts_what_runs_wrote() -> None:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    for document in (*map(saved, NAMES), report(), report([], finals=())):
        jsonschema.validate(document, schema)


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        (("passed",), "yes"),
        (("stages", 0, "size"), []),
        (("stages", 1, "status"), "lost"),
        (("stages", 1, "delta", "accuracy"), {"low": 0}),
        (("stages", 0, "metrics", "accuracy"), "high"),
        (("gates",), [{"name": "macs", "limit": 3}]),
        (("warnings",), ["boo"]),
    ],
)
def test_schema_and_reader_refuse_the_same(path: tuple[Any, ...], wrong: Any) -> None:
    built = report()
    target: Any = built
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = wrong
    assert shape_problem(built) is not None
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(built, report_schema())
