"""Points that are pruned further go on from the nearest one that was trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shrink.base import yaml
from shrink.contract.searched import Trial, TrialStatus
from shrink.search.asking import Asking
from shrink.search.warm import WARM, warmed, with_start
from tests.search.fake import FakeAttempt, search

LEFT, SCHEME = "prune.parameters", "quantize.scheme"


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHRINK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("TF_CONFIG", raising=False)


def trial(settings: dict[str, Any], status: TrialStatus = "done") -> Trial:
    return Trial(number=0, settings=settings, figures={}, feasible=True, status=status)


def test_a_point_goes_on_from_that_with_the_least_left_of_those_with_more() -> None:
    known = [
        trial({LEFT: 0.9, SCHEME: "a"}),
        trial({LEFT: 0.5, SCHEME: "b"}),
        trial({LEFT: 0.4}, status="halted"),
        trial({LEFT: 0.2}),
        trial({LEFT: 0.35, "distill.student.width": 0.5}),
        trial({LEFT: 0.36, WARM: 0.9}),
    ]
    assert warmed({LEFT: 0.3}, known) == {LEFT: 0.3, WARM: 0.5}
    assert warmed({LEFT: 0.6, SCHEME: "b"}, known) == {LEFT: 0.6, SCHEME: "b", WARM: 0.9}
    assert warmed({LEFT: 0.95}, known) == {LEFT: 0.95}
    assert warmed({LEFT: 0.36}, known) == {LEFT: 0.36, WARM: 0.9}
    assert warmed({LEFT: 0.2}, known) == {LEFT: 0.2}
    assert warmed({"distill.student.width": 0.5}, known) == {"distill.student.width": 0.5}


def test_a_warm_recipe_has_the_pruning_of_the_other_point_whole_and_then_its_own() -> None:
    def stages(epochs: int) -> list[Any]:
        return [{"train": {"epochs": 1}}, {"prune": {"parameters": 0.3, "epochs": epochs}}]

    found = with_start(stages(3), stages(9), {WARM: 0.7})
    assert found == [
        {"train": {"epochs": 1}},
        {"prune": {"parameters": 0.7, "epochs": 9}},
        {"prune": {"parameters": 0.4285, "epochs": 3}},
    ]
    assert with_start(stages(0), stages(0), {WARM: 0.7}) == stages(0)
    assert with_start(stages(3), stages(9), {}) == stages(3)


def test_a_search_with_warm_starts_trains_what_points_begin_with_once(tmp_path: Path) -> None:
    attempt = FakeAttempt()
    assert search(tmp_path, Asking(trials=8, warm_starts=True), attempt).run() == 0
    found = json.loads((tmp_path / "out" / "search.json").read_text())
    warm = [one for one in found["trials"] if one["run"] and WARM in one["settings"]]
    assert warm
    for one in warm:
        written = (tmp_path / "out" / one["run"] / "recipe.resolved.yaml").read_text()
        value: Any = yaml.loads(written, "r").value
        before, own = (dict(stage["prune"]) for stage in value["stages"][1:3])
        assert before["parameters"] == one["settings"][WARM] > one["settings"][LEFT]
        product = before["parameters"] * own["parameters"]
        assert one["settings"][LEFT] - 1e-4 < product <= one["settings"][LEFT] + 1e-12
    made = [json.dumps([job.kind, job.config, str(job.inputs["model"].path)], sort_keys=True,
                       default=dict) for job in attempt.jobs if job.kind == "prune"]  # fmt: skip
    assert len(made) == len(set(made))
