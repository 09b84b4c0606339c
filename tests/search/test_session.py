"""A search keeps to its limits, looks at no test example before it has chosen, and goes on."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shrink.base import yaml
from shrink.base.console import Console
from shrink.base.errors import Interrupted, RecipeError, ResourceError, StageError
from shrink.contract.job import Outline, StepJob
from shrink.recipe.load import load_recipe
from shrink.recipe.plan import Plan
from shrink.run.options import RunOptions
from shrink.search import looked
from shrink.search.asking import Asking
from shrink.search.candidates import Candidates
from shrink.search.searching import Budget
from shrink.search.session import Search
from shrink.search.space import Chain, Space
from shrink.search.study import Asked, Study
from tests.search.fake import FakeAttempt, FakeOutliner, right_of, search, size_of

SCHEMES = ("static_wi8_ai8", "float16")
AS_IT_IS = {"prune.parameters": 0.5, "quantize.scheme": "static_wi8_ai8"}
ALL = [(round(0.1 * n, 1), scheme) for n in range(1, 10) for scheme in SCHEMES]


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHRINK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("TF_CONFIG", raising=False)


def found_in(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((root / "out" / "search.json").read_text())
    return found


def test_search_finds_the_smallest_file_within_the_drop_and_trains_no_point_beyond_the_size(
    tmp_path: Path,
) -> None:
    attempt = FakeAttempt()
    asking = Asking(limits={"tflite_bytes": 70_000}, max_drop=0.02, trials=40)
    assert search(tmp_path, asking, attempt).run() == 0
    found = found_in(tmp_path)
    able = [
        size_of(*point)
        for point in ALL
        if size_of(*point) <= 70_000 and 198 - right_of(*point) <= 0.02 * 200
    ]
    assert found["best"]["figures"]["tflite_bytes"] == min(able)
    assert [one["number"] for one in found["trials"]] == [*range(len(found["trials"]))]
    assert {one["status"] for one in found["trials"]} == {
        *("done", "infeasible", "duplicate", "pruned")
    }
    for one in found["trials"]:
        assert one["feasible"] == (one["status"] == "done" and not one["broken"])
        if one["status"] == "duplicate":
            earlier = found["trials"][: one["number"]]
            assert {**AS_IT_IS, **one["settings"]} in [AS_IT_IS | o["settings"] for o in earlier]
            continue
        assert (one["status"] == "infeasible") == (one["figures"]["tflite_bytes"] > 70_000)
        if one["status"] == "pruned":
            assert one["figures"]["tflite_bytes"] >= min(able)
    trained = [job.config for job in attempt.jobs if job.kind == "quantize"]
    assert len(trained) == sum(one["status"] == "done" for one in found["trials"])
    assert found["best"]["drop"] == pytest.approx(
        (198 - round(200 * found["best"]["figures"]["accuracy"])) / 200
    )
    luck = found["best"]["luck"]
    assert luck["metric"] == "accuracy"
    assert 0 <= luck["chosen_again"] <= 1


def test_search_measures_test_examples_of_the_best_point_alone_and_trains_it_once(
    tmp_path: Path,
) -> None:
    attempt = FakeAttempt()
    search(tmp_path, Asking(max_drop=0.1, trials=3), attempt).run()
    on_test = [kind for kind, split in attempt.measured if split == "test"]
    assert on_test == ["train", "prune", "quantize"]
    first = attempt.measured.index(("train", "test"))
    assert all(split == "test" for _, split in attempt.measured[first:])
    made = [json.dumps([job.kind, dict(job.config or {})], sort_keys=True) for job in attempt.jobs]
    assert sum(one.startswith('["train"') for one in made) == 1
    best = tmp_path / "out" / "best"
    assert {"report.json", "recipe.resolved.yaml"} <= {one.name for one in best.iterdir()}
    found = found_in(tmp_path)["best"]
    assert (tmp_path / "out" / found["artifact"]).is_file()
    recipe = load_recipe(tmp_path / "out" / found["recipe"])
    assert [stage.kind for stage in recipe.recipe.stages] == ["train", "prune", "quantize"]
    assert "search" not in yaml.load(tmp_path / "out" / found["recipe"]).value


def test_search_without_a_drop_finds_the_most_accurate_within_the_size(tmp_path: Path) -> None:
    asking = Asking(limits={"tflite_bytes": 50_000}, trials=40)
    search(tmp_path, asking, FakeAttempt()).run()
    able = [point for point in ALL if size_of(*point) <= 50_000]
    best = max(able, key=lambda one: (right_of(*one), -size_of(*one)))
    figures = found_in(tmp_path)["best"]["figures"]
    assert figures["accuracy"] == right_of(*best) / 200
    assert figures["tflite_bytes"] == size_of(*best)


def test_search_for_several_objectives_leaves_their_front(tmp_path: Path) -> None:
    asking = Asking(objectives=("accuracy", "tflite_bytes"), trials=40)
    search(tmp_path, asking, FakeAttempt()).run()
    found = found_in(tmp_path)
    done = {one["number"]: one["figures"] for one in found["trials"] if one["status"] == "done"}
    points = {n: (-f["accuracy"], f["tflite_bytes"]) for n, f in done.items()}
    front = [
        n
        for n, mine in points.items()
        if not any(o != mine and o[0] <= mine[0] and o[1] <= mine[1] for o in points.values())
    ]
    assert sorted(found["front"]) == sorted(front)


def test_search_says_what_is_possible_where_nothing_keeps_to_the_limits(tmp_path: Path) -> None:
    asking = Asking(limits={"tflite_bytes": 30_000}, max_drop=0.0, trials=40)
    with pytest.raises(StageError, match="no point keeps to the limits") as raised:
        search(tmp_path, asking, FakeAttempt()).run()
    assert "within the sizes" in raised.value.message
    found = found_in(tmp_path)
    assert found["best"] is None
    assert found["front"] == []
    assert not (tmp_path / "out" / "best").exists()


def test_search_goes_on_after_an_interruption_and_trains_nothing_twice(tmp_path: Path) -> None:
    asking, attempt = Asking(max_drop=0.1, trials=40), FakeAttempt()
    attempt.raises[0.5] = Interrupted("interrupted")
    assert search(tmp_path, asking, attempt).run() == Interrupted.exit_code
    before = found_in(tmp_path)
    assert before["best"] is None
    again = FakeAttempt()
    assert search(tmp_path, asking, again).run() == 0
    found = found_in(tmp_path)
    assert [one["status"] for one in found["trials"]].count("stopped") == 1
    assert [one["number"] for one in found["trials"]] == [*range(len(found["trials"]))]
    trained = [json.dumps(one["settings"], sort_keys=True) for one in found["trials"] if one["run"]]
    assert len(trained) == len(set(trained))
    assert not [job for job in again.jobs if job.kind == "train"]


def test_search_says_once_why_a_size_is_not_known_before_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Gone(FakeOutliner):
        def outline(self, plan: Plan) -> Outline:
            return Outline(figures={}, error="the process that says it has ended")

    mine = search(tmp_path, Asking(limits={"tflite_bytes": 70_000}, trials=3), FakeAttempt())
    mine.make_outliner = Gone
    mine.console.quiet = False
    mine.run()
    said = capsys.readouterr().err
    assert said.count("a point is trained before its size is known: the process that says") == 1
    beyond = [
        o for o in found_in(tmp_path)["trials"] if o["figures"].get("tflite_bytes", 0) > 70_000
    ]
    assert all(one["status"] == "done" and not one["feasible"] for one in beyond)


@pytest.mark.parametrize(
    ("asking", "jobs", "ahead"),
    [
        (Asking(limits={"tflite_bytes": 70_000}, trials=3), 1, True),
        (Asking(limits={"tflite_bytes": 70_000, "p50_ms": 5.0}, trials=3), 1, False),
        (Asking(trials=3), 1, False),
        (Asking(limits={"tflite_bytes": 70_000}, trials=3), 2, False),
    ],
)
def test_what_says_sizes_starts_before_the_baseline_is_trained_where_that_disturbs_nothing(
    asking: Asking, jobs: int, ahead: bool, tmp_path: Path
) -> None:
    told = list[str]()

    class Ahead(FakeOutliner):
        def start(self) -> None:
            told.append("started")

    class Attempt(FakeAttempt):
        def __call__(self, job: StepJob, *given: Any) -> dict[str, Any]:
            told.append(job.kind)
            return super().__call__(job, *given)

    mine = search(tmp_path, asking, Attempt())
    mine.make_outliner, mine.jobs = Ahead, jobs
    with contextlib.suppress(StageError):  # what others of several workers do is not told here
        mine.run()
    assert told[0] == ("started" if ahead else "train")
    assert told.count("started") == ahead


def test_points_are_kept_where_the_best_cannot_be_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise ResourceError("the disk is full")

    monkeypatch.setattr(looked.Runs, "show", full)
    with pytest.raises(ResourceError, match="the disk is full"):
        search(tmp_path, Asking(trials=2), FakeAttempt()).run()
    found = found_in(tmp_path)
    assert [one["status"] for one in found["trials"]].count("done") == 2
    assert found["best"] is None


def test_search_says_above_the_progress_what_is_best_so_far(tmp_path: Path) -> None:
    class Watched(FakeAttempt):
        def __call__(self, *arguments: Any) -> dict[str, Any]:
            if mine.console.above is not None:
                said.append(mine.console.above())
            return super().__call__(*arguments)

    said: list[str] = []
    asking = Asking(limits={"tflite_bytes": 100_000}, trials=8, time_s=3600, sampler="tpe")
    mine = search(tmp_path, asking, Watched())
    mine.run()
    assert re.fullmatch(r"search, 59:\d\d left: no point within the limits yet", said[0])
    best = found_in(tmp_path)["best"]
    before = rf"search, 59:\d\d left: best point {best['number']}, accuracy [\d.]+ %, .*front of \d"
    assert any(re.fullmatch(before, one) for one in said)
    assert mine.console.above is None


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_search_ends_before_its_time_only_when_every_point_was_looked_at(
    tmp_path: Path, sampler: str
) -> None:
    asking = Asking(limits={"tflite_bytes": 200_000}, trials=1000, sampler=sampler)
    mine = search(tmp_path, asking, FakeAttempt())
    mine.run()
    done = [AS_IT_IS | one["settings"] for one in found_in(tmp_path)["trials"] if one["run"]]
    points = sorted((one["prune.parameters"], one["quantize.scheme"]) for one in done)
    assert points == sorted(ALL)


def test_search_keeps_a_point_that_failed_and_goes_on(tmp_path: Path) -> None:
    attempt = FakeAttempt()
    attempt.raises[0.5] = StageError("it cannot be pruned so")
    assert search(tmp_path, Asking(trials=40), attempt).run() == 0
    failed = [one for one in found_in(tmp_path)["trials"] if one["status"] == "failed"]
    assert failed
    assert all("it cannot be pruned so" in one["error"] for one in failed)


def test_a_point_without_memory_has_failed_and_the_search_goes_on(tmp_path: Path) -> None:
    attempt = FakeAttempt()
    attempt.raises[0.5] = ResourceError("out of memory")
    assert search(tmp_path, Asking(trials=40), attempt).run() == 0
    trials = found_in(tmp_path)["trials"]
    failed = [one["error"] for one in trials if one["status"] == "failed"]
    assert failed
    assert all("out of memory" in error for error in failed)
    assert len([one for one in trials if one["status"] == "done"]) > 3


def test_a_search_ends_with_what_it_found_where_nothing_has_memory(tmp_path: Path) -> None:
    attempt = FakeAttempt()
    attempt.raises = {round(0.1 * n, 1): ResourceError("out of memory") for n in range(1, 10)}
    for jobs in (1, 2):
        (tmp_path / str(jobs)).mkdir()
        made = search(tmp_path / str(jobs), Asking(trials=40), attempt)
        made.jobs = jobs
        assert made.run() == ResourceError.exit_code
        assert str(made.stop) == "out of memory"
        assert found_in(tmp_path / str(jobs))["best"] is None


def test_gates_of_the_best_point_are_checked_but_on_stages_that_it_lacks(tmp_path: Path) -> None:
    made = search(tmp_path, Asking(trials=3), FakeAttempt())
    gates: dict[str, Any] = {"accuracy": 0.9999}
    made.candidates.raw.value["gates"] = gates
    assert made.run() == 1
    settings = {"prune.parameters": 0.5, "quantize.scheme": "float16"}
    gates["loss"] = {"limit": 9.0, "stage": "distill"}
    assert made.candidates.gates_without_stage(settings) == ("loss",)
    assert set(made.candidates.plan(settings, gated=True).recipe.gates) == {"accuracy"}
    with pytest.raises(RecipeError, match="no stage is called 'distill'"):
        made.candidates.check_gates()


def test_a_search_of_another_baseline_is_another(tmp_path: Path) -> None:
    assert search(tmp_path, Asking(trials=1), FakeAttempt()).run() == 0
    made = search(tmp_path, Asking(trials=1), FakeAttempt())
    (tmp_path / "model.py").write_text("def build():\n    return 2\n", encoding="utf-8")
    with pytest.raises(RecipeError, match="another recipe, space, or limits"):
        made.run()


def test_latency_of_this_host_is_not_measured_while_others_train(tmp_path: Path) -> None:
    found = search(tmp_path, Asking(limits={"p50_ms": 5.0}, trials=1), FakeAttempt())
    found.jobs = 2
    with pytest.raises(RecipeError, match="while other workers train"):
        found.run()


def test_a_command_measures_latency_and_no_figure_of_the_host_stands_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_host = {"p50_ms": 1.0, "p90_ms": 2.0, "tflite_bytes": 100}
    monkeypatch.setattr(looked, "stage_figures", lambda _: {**of_host})
    report: Any = SimpleNamespace(ends=[SimpleNamespace(artifact="m.tflite")])
    runs = looked.Runs(RunOptions(tmp_path), True, "echo 3.5", Console(quiet=True))
    assert runs.figures(report, tmp_path) == {"p50_ms": 3.5, "tflite_bytes": 100}
    runs = looked.Runs(RunOptions(tmp_path), True, None, Console(quiet=True))
    assert runs.figures(report, tmp_path) == of_host


def test_search_refuses_the_folder_of_another_search_and_other_files(tmp_path: Path) -> None:
    search(tmp_path, Asking(trials=1), FakeAttempt()).run()
    with pytest.raises(RecipeError, match="another recipe, space, or limits"):
        search(tmp_path, Asking(max_drop=0.5, trials=1), FakeAttempt()).run()
    assert search(tmp_path, Asking(max_drop=0.5, trials=1), FakeAttempt(), force=True).run() == 0
    other = tmp_path / "other"
    (other / "out").mkdir(parents=True)
    (other / "out" / "letter.txt").touch()
    with pytest.raises(RecipeError, match="no search of this recipe left"):
        search(other, Asking(trials=1), FakeAttempt()).run()


def test_what_a_search_needs_is_imported_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = FakeAttempt()
    with monkeypatch.context() as missing:
        missing.setitem(sys.modules, "optuna", None)
        with pytest.raises(ResourceError, match="Optuna cannot be imported"):
            search(tmp_path, Asking(trials=1), attempt).run()
    assert attempt.jobs == []
    (tmp_path / "out" / "trials" / "baseline").mkdir(parents=True)  # as earlier versions left it
    (tmp_path / "out" / "search.journal").unlink(missing_ok=True)
    assert search(tmp_path, Asking(trials=1), attempt).run() == 0


def test_search_with_two_jobs_trains_no_point_twice(tmp_path: Path) -> None:
    # Of two objectives no point is left out by its size, whichever worker is first.
    asking = Asking(objectives=("accuracy", "tflite_bytes"), trials=6)
    found = search(tmp_path, asking, FakeAttempt())
    found.jobs = 2
    assert found.run() == 0
    trials = found_in(tmp_path)["trials"]
    settings = [json.dumps(one["settings"], sort_keys=True) for one in trials if one["run"]]
    assert len(settings) == len(set(settings))
    assert sum(one["status"] == "done" for one in trials) == 6
    assert not any(one["status"] == "stopped" for one in trials)


def test_a_worker_that_asks_at_the_same_moment_trains_no_point_beyond_those_asked_for(
    tmp_path: Path,
) -> None:
    made = search(tmp_path, Asking(trials=1), FakeAttempt())
    study, other = (made._study(made.asking.goal("accuracy")) for _ in range(2))
    study.begin([AS_IT_IS])
    first = list[Asked]()

    def ask() -> Asked:
        if not first:
            first.append(other.ask())  # by another worker, after this one saw none running
        return Study.ask(study)

    study.ask = ask  # type: ignore[method-assign]
    with FakeOutliner(made.runs.store, False) as outliner:
        made._work(study, {"accuracy": 0.99}, outliner, Budget(1, None))
    assert study.trials() == []
    assert study.left() == []
    assert first[0].settings == AS_IT_IS


def test_search_with_two_jobs_ends_when_all_points_were_looked_at(tmp_path: Path) -> None:
    found = search(tmp_path, Asking(max_drop=0.02, trials=19), FakeAttempt())
    found.jobs = 2
    assert found.run() == 0
    trials = found_in(tmp_path)["trials"]
    known = [AS_IT_IS | o["settings"] for o in trials if o["status"] in ("done", "pruned")]
    looked_at = {(one["prune.parameters"], one["quantize.scheme"]) for one in known}
    assert looked_at == set(ALL)
    able = [size_of(*point) for point in ALL if 198 - right_of(*point) <= 0.02 * 200]
    assert found_in(tmp_path)["best"]["figures"]["tflite_bytes"] == min(able)


def test_a_time_that_is_over_before_the_baseline_is_told(tmp_path: Path) -> None:
    class Slow(FakeAttempt):
        def __call__(self, *given: Any) -> dict[str, Any]:
            time.sleep(5)
            return super().__call__(*given)

    with pytest.raises(StageError, match="before the baseline was measured"):
        search(tmp_path, Asking(time_s=0.3), Slow()).run()


@pytest.mark.parametrize(
    ("model", "stages", "steps"),
    [
        ("model.py:build", None, 3),  # train, prune and quantize, as the recipe has them
        ("model.keras", [{"quantize": {}}], 2),  # the baseline is measured, too
        ("model.py:build", [{"train": {"epochs": 1}}, {"quantize": {}}], 2),
    ],
)
def test_what_the_last_measurement_takes_is_set_aside_for_the_longest_chain(
    model: str, stages: Any, steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.keras").touch()
    made = search(tmp_path, Asking(time_s=1000.0), FakeAttempt())
    raw = made.candidates.raw
    raw.value["model"] = str(tmp_path / model)
    if model.endswith("keras"):
        raw.value["stages"] = stages
    chains = () if stages is None else (Chain("own", stages, {}, ({},)),)
    space = Space(chains) if chains else made.candidates.space
    made.candidates = Candidates(raw, Path("r"), space)
    made.plan = made.candidates.baseline()
    monkeypatch.setattr(Search, "_measuring_s", lambda _: 10.0)
    budget = made._budget(made._study(made.asking.goal("accuracy")))
    assert budget.deadline == pytest.approx(made._started + 1000.0 - 10.0 * steps)
