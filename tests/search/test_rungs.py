"""Points are trained for a part of their epochs first, and only those that promise go on."""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shrink.base.errors import StageError
from shrink.contract.details import Training
from shrink.contract.job import StepJob
from shrink.contract.report import DataSet
from shrink.contract.searched import Rung, Trial
from shrink.search import searching
from shrink.search.asking import Asking
from shrink.search.goal import Goal
from shrink.search.rungs import SHARES, Ladder, Reached, most_gained, pays, training_share
from tests.search.fake import EXAMPLES, FakeAttempt, search

GOAL = Goal("accuracy")
WHOLE = 9


def reached(number: int, accuracy: float, size: float = 1000.0) -> Reached:
    return Reached(number, {"accuracy": accuracy, "tflite_bytes": size})


def done(before: float, after: float, rung_s: float = 1.0, whole_s: float = 9.0) -> Trial:
    rung = Rung(share=1 / 9, figures={"accuracy": before}, duration_s=rung_s, run="r")
    return Trial(
        number=0,
        settings={},
        figures={"accuracy": after},
        feasible=True,
        status="done",
        duration_s=whole_s,
        rungs=(rung,),
    )


def test_with_one_figure_a_point_goes_on_if_it_is_in_the_best_third() -> None:
    ladder = Ladder(GOAL, {"accuracy": 0.9})
    drawn = random.Random(0)
    for count in range(12):
        accuracies = [drawn.random() for _ in range(count)]
        others = [reached(n, one) for n, one in enumerate(accuracies)]
        own = drawn.random()
        mine, better = reached(99, own), sum(one > own for one in accuracies)
        expected = better < math.ceil((count + 1) / 3)
        assert ladder.goes_on(mine, others, None) == expected


def test_with_a_drop_allowed_smaller_files_go_on_and_those_that_cannot_reach_it_do_not() -> None:
    ladder = Ladder(Goal("accuracy", max_drop=0.02), {"accuracy": 0.9})
    others = [reached(n, 0.8 - 0.01 * n, 1000 + 100 * n) for n in range(5)]
    assert ladder.goes_on(reached(9, 0.7, 500), others, None)
    assert not ladder.goes_on(reached(9, 0.7, 1500), others, None)
    assert ladder.goes_on(reached(9, 0.7, 500), others, gain=0.18)
    assert not ladder.goes_on(reached(9, 0.7, 500), others, gain=0.17)


def test_of_a_front_the_points_that_are_far_apart_go_on() -> None:
    goal = Goal("accuracy", objectives=("accuracy", "tflite_bytes"), traded=True)
    front = [reached(n, 0.9 - 0.1 * n, 900.0 - 100 * n) for n in range(8)]
    going = [
        one.number
        for one in front
        if Ladder(goal, {}).goes_on(one, [other for other in front if other != one], None)
    ]
    assert {0, 7} <= set(going)
    assert len(going) == math.ceil(len(front) / 3)


def test_a_rung_pays_where_it_is_clearly_shorter_than_a_point() -> None:
    assert pays(1 / 9, 0.9, [])
    assert not pays(1 / 9, 0.5, [])
    assert not pays(1 / 9, 0.9, [done(0.5, 0.9, rung_s=6.0)])
    assert pays(1 / 9, 0.9, [done(0.5, 0.9, rung_s=3.0)])
    trials = [done(0.5, 0.9), done(0.6, 0.8)]
    assert most_gained(1 / 9, "accuracy", trials) == pytest.approx(0.4)
    assert most_gained(1 / 3, "accuracy", trials) is None


def test_the_share_of_training_is_of_points_that_were_made_whole() -> None:
    def stage(status: str, seconds: float, examples_per_s: float | None) -> Any:
        training = Training(epochs=2, examples_per_s=examples_per_s)
        return SimpleNamespace(status=status, duration_s=seconds, training=training)

    first = stage("cached", 50.0, 64.0)
    made = [first, stage("done", 12.0, 64.0), stage("done", 8.0, None)]
    data = DataSet(examples={"train": 320})
    report: Any = SimpleNamespace(stages=made, data=data)
    assert training_share(report) == pytest.approx(10 / 20)
    report = SimpleNamespace(stages=[*made, stage("cached", 1.0, None)], data=data)
    assert training_share(report) is None


class Learning(FakeAttempt):
    """Gets more examples right the longer it prunes, up to what `FakeAttempt` says.

    Attributes:
        epochs: of each pruning.
    """

    def __init__(self) -> None:
        super().__init__()
        self.epochs: list[tuple[float, int]] = []

    def __call__(self, job: StepJob, work: Path, on_event: Callable[..., None]) -> dict[str, Any]:
        answer = super().__call__(job, work, on_event)
        settings = json.loads((work / answer["files"]["artifact"]).read_text())
        pruned = settings.get("prune", {})
        if job.kind == "prune" and job.made is None:
            self.epochs.append((pruned["parameters"], pruned["epochs"]))
        if "metrics" in answer["result"] and job.kind == "quantize":
            lost = 10 * (WHOLE - pruned["epochs"])
            right = round(answer["result"]["metrics"]["accuracy"] * EXAMPLES) - lost
            answer["result"]["metrics"]["accuracy"] = right / EXAMPLES
            scores = [1.0] * right + [0.0] * (EXAMPLES - right)
            (work / "scores.json").write_text(json.dumps({"accuracy": scores}))
        return answer


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHRINK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("TF_CONFIG", raising=False)


def test_a_search_with_rungs_trains_few_to_the_end_and_mixes_no_figures(tmp_path: Path) -> None:
    attempt = Learning()
    made = search(tmp_path, Asking(trials=5, rungs=SHARES), attempt)
    made.candidates.raw.value["stages"][1]["prune"]["epochs"] = WHOLE
    assert made.run() == 0
    found = json.loads((tmp_path / "out" / "search.json").read_text())
    ended = [one for one in found["trials"] if one["status"] == "done"]
    halted = [one for one in found["trials"] if one["status"] == "halted"]
    assert ended
    assert halted
    for one in halted:
        assert "accuracy" not in one["figures"]
        assert one["run"] is None
        assert not one["feasible"]
        assert one["number"] not in found["front"]
    for one in [*ended, *halted]:
        shares = [rung["share"] for rung in one["rungs"]]
        assert shares == [*SHARES][: len(shares)]
        for rung in one["rungs"]:
            folder = tmp_path / "out" / rung["run"]
            resolved = (folder / "recipe.resolved.yaml").read_text(encoding="utf-8")
            assert f"epochs: {round(WHOLE * rung['share'])}\n" in resolved
    assert all(len(one["rungs"]) == len(SHARES) for one in ended)
    assert all(rung["figures"]["accuracy"] < 0.8 for one in ended for rung in one["rungs"])
    assert all(one["figures"]["accuracy"] > 0.85 for one in ended)
    assert {epochs for _, epochs in attempt.epochs} == {1, 3, WHOLE}
    whole = [left for left, epochs in attempt.epochs if epochs == WHOLE]
    assert len(whole) == len({one["settings"].get("prune.parameters", 0.5) for one in ended})
    accuracies = [one["figures"]["accuracy"] for one in ended]
    assert found["best"]["figures"]["accuracy"] == max(accuracies)


def test_a_search_that_goes_on_knows_whether_rungs_paid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "pays", lambda share, training, known: training == 1.0)

    def found_by(trials: int, rungs: tuple[float, ...] | None) -> list[dict[str, Any]]:
        made = search(tmp_path, Asking(trials=trials, rungs=rungs), Learning())
        made.candidates.raw.value["stages"][1]["prune"]["epochs"] = WHOLE
        made.find()
        found = json.loads((tmp_path / "out" / "search.json").read_text())
        return list(found["trials"])

    first = found_by(1, (1 / 9,))
    assert [len(one["rungs"]) for one in first if one["status"] == "done"] == [1]
    later = found_by(3, None)[len(first) :]
    shares = {rung["share"] for one in later for rung in one.get("rungs", [])}
    assert 1 / 9 in shares


def test_points_whose_training_cannot_be_shorter_have_no_rungs(tmp_path: Path) -> None:
    assert search(tmp_path, Asking(trials=2, rungs=SHARES), FakeAttempt()).run() == 0
    found = json.loads((tmp_path / "out" / "search.json").read_text())
    assert [one for one in found["trials"] if one["status"] == "done"]
    assert not any("rungs" in one for one in found["trials"])


def test_a_point_that_fails_on_its_first_rung_takes_no_more_than_that_of_the_trials(
    tmp_path: Path,
) -> None:
    class Failing(Learning):
        def __call__(
            self, job: StepJob, work: Path, on_event: Callable[..., None]
        ) -> dict[str, Any]:
            if job.kind == "prune" and dict(job.config or {})["epochs"] < WHOLE:
                time.sleep(0.2)
                raise StageError("it cannot be pruned in so few epochs")
            return super().__call__(job, work, on_event)

    asking = Asking(trials=1, rungs=(1 / 3,), sampler="random")
    made = search(tmp_path, asking, Failing())
    made.candidates.raw.value["stages"][1]["prune"]["epochs"] = WHOLE
    with pytest.raises(StageError, match="no point"):
        made.find()
    found = json.loads((tmp_path / "out" / "search.json").read_text())
    failed = [one for one in found["trials"] if one["status"] == "failed"]
    assert len(failed) == 3
    assert all(one["run"] == one["rungs"][-1]["run"] for one in failed)
    assert all(one["rungs"][-1]["figures"] == {} for one in failed)
    assert all(0.2 <= one["rungs"][-1]["duration_s"] <= one["duration_s"] for one in failed)


def test_a_search_leaves_what_stages_took_for_later_estimates(tmp_path: Path) -> None:
    class Timed(FakeAttempt):
        def __call__(self, *given: Any) -> dict[str, Any]:
            answer = super().__call__(*given)
            answer["result"] |= {"memory": {"stage_host_peak_bytes": 7_000_000}}
            return answer

    made = search(tmp_path, Asking(trials=2), Timed())
    made.find()
    kept = [json.loads(one.read_text()) for one in made.runs.store.root.glob("timings/*.json")]
    assert {one["kind"] for one in kept} == {"train", "prune", "quantize"}
    assert all(one["host_peak_bytes"] == 7_000_000 for one in kept)
