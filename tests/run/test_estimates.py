"""Time and memory of stages before they run: against lines known beforehand, and through a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from shrink.contract.codec import to_plain
from shrink.contract.details import Training as TrainingRecord
from shrink.contract.estimates import Estimate, PreviewRow
from shrink.contract.result import Counts, StepResult, Timing
from shrink.contract.training import Training
from shrink.recipe.plan import Step
from shrink.run.estimates import Estimator, keep_timing, timing_of
from shrink.run.host_plan import MODEL_COPIES
from shrink.run.previewed import preview_lines, total_line
from shrink.run.store import Store, StoredStep
from shrink.stages.prune.config import PruneConfig

MB = 1_000_000


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path, warn=lambda text: pytest.fail(text))


def step(method: str = "magnitude", epochs: int = 2) -> Step:
    how_much = {"sparsity": 0.5} if method == "magnitude" else {"ratio": 0.5}
    config = PruneConfig.model_validate({"method": method, "epochs": epochs, **how_much})
    return Step(1, "prune", "prune", config, Training(), {}, "baseline", "keras")


def baseline(macs: int, parameters: int = 1000, train: int = 1000) -> StepResult:
    return StepResult(
        size={"macs": macs, "parameters": parameters},
        data=Counts(examples={"train": train, "test": 100}),
        duration_s=3.0,
    )


def keep(
    store: Store, key: str, seconds: float, macs: int, parameters: int = 1000, peak: int = 800 * MB
) -> None:
    """Remember a pruning that took so long, of a model of this size."""
    took = StepResult(
        duration_s=seconds,
        timing=Timing(stage_s=seconds - 2, measure_s=1.0),
        memory={"stage_host_peak_bytes": peak},
    )
    first = StoredStep("b", baseline(macs, parameters), {})
    keep_timing(step(), StoredStep(key, took, {}), key, first, store)


def sizes(store: Store, macs: int, parameters: int = 1000) -> None:
    plain = replace(step(), kind="baseline", config=None)
    kept = StoredStep("base", baseline(macs, parameters), {})
    keep_timing(plain, kept, "base", kept, store)


def test_nothing_is_known_where_no_such_stage_was_computed(store: Store) -> None:
    found = Estimator(store, "base").estimate(step(), "new")
    assert (found.duration_s, found.host_peak_bytes, found.basis) == (None, None, "none")
    assert found.why == "no stage of the kind prune was computed before"


def test_the_same_step_takes_what_it_took(store: Store) -> None:
    keep(store, "known", 12.0, 5 * MB)
    found = Estimator(store, "base").estimate(step(), "known")
    assert (found.duration_s, found.host_peak_bytes) == (12.0, 800 * MB)
    assert found.basis == "same_step"


def test_others_are_scaled_by_a_line_through_their_times(store: Store) -> None:
    work = {macs: macs * (3.0 * 2 * 1000 + 100) for macs in (1, 4, 10, 20)}
    for macs in (1, 4, 20):
        keep(store, f"p{macs}", 5 + 2e-3 * work[macs], macs)
    sizes(store, 10)
    found = Estimator(store, "base").estimate(step(), "new")
    assert found.duration_s == pytest.approx(5 + 2e-3 * work[10])
    assert (found.basis, found.records) == ("scaled", 3)
    assert "3 earlier runs of prune (magnitude), scaled" in found.why


def test_one_record_is_scaled_but_for_the_start_and_says_how_far_it_is_away(store: Store) -> None:
    keep(store, "one", 11.0, 10)
    sizes(store, 40)
    found = Estimator(store, "base").estimate(step(), "new")
    assert found.duration_s == pytest.approx(1 + 10 * 4)
    assert found.high_s == pytest.approx(4 * 41.0)
    assert found.low_s == pytest.approx(41.0 / 4)


def test_passes_that_are_left_out_take_their_part_of_the_time_and_no_more(store: Store) -> None:
    trained = TrainingRecord(epochs=2, examples_per_s=500.0)  # 4 s
    took = StepResult(duration_s=15.0, timing=Timing(stage_s=12.0, measure_s=1.0), training=trained)
    first = StoredStep("b", baseline(10), {})
    keep_timing(step(epochs=2), StoredStep("one", took, {}), "one", first, store)
    sizes(store, 10)
    found = Estimator(store, "base")
    assert found.estimate(step(epochs=0), "none").duration_s == pytest.approx(11.0)
    assert found.estimate(step(epochs=6), "more").duration_s == pytest.approx(11.0 + 3 * 4.0)


@pytest.mark.parametrize(("epochs", "passes"), [(2, 2), (20, 2)])
def test_what_was_not_trained_in_one_go_is_scaled_as_one(
    store: Store, epochs: int, passes: int
) -> None:
    """Of 20 epochs at 500 examples a second the last attempt can have trained a part alone."""
    trained = TrainingRecord(epochs=epochs, examples_per_s=500.0)
    took = StepResult(duration_s=15.0, timing=Timing(stage_s=12.0, measure_s=1.0), training=trained)
    kept = timing_of(step(epochs=passes), took, baseline(10))
    assert kept is not None
    assert kept.train_s == (4.0 if epochs == passes else None)


def test_a_step_that_only_trains_is_estimated_without_its_passes_all_the_same(store: Store) -> None:
    trained = TrainingRecord(epochs=2, examples_per_s=500.0)
    took = StepResult(duration_s=4.0, timing=Timing(stage_s=4.0, measure_s=0.0), training=trained)
    first = StoredStep("b", baseline(10), {})
    for number in range(3):
        keep_timing(step(), StoredStep(f"{number}", took, {}), f"{number}", first, store)
    sizes(store, 10)
    found = Estimator(store, "base").estimate(step(epochs=0), "none")
    assert 0 < (found.duration_s or 0) < 0.1


def test_a_larger_model_takes_longer_in_both_parts(store: Store) -> None:
    trained = TrainingRecord(epochs=2, examples_per_s=500.0)
    took = StepResult(duration_s=15.0, timing=Timing(stage_s=12.0, measure_s=1.0), training=trained)
    first = StoredStep("b", baseline(10), {})
    keep_timing(step(epochs=2), StoredStep("one", took, {}), "one", first, store)
    sizes(store, 30)
    found = Estimator(store, "base").estimate(step(epochs=2), "larger")
    assert found.duration_s == pytest.approx(2.0 + 3 * 9.0 + 3 * 4.0)


def test_memory_grows_with_copies_of_the_weights(store: Store) -> None:
    keep(store, "small", 11.0, 10, parameters=1 * MB)
    keep(store, "large", 11.0, 10, parameters=50 * MB, peak=3000 * MB)
    sizes(store, 10, parameters=2 * MB)
    found = Estimator(store, "base").estimate(step(), "new")
    assert found.host_peak_bytes == 800 * MB + MODEL_COPIES * 4 * MB


def test_without_the_baseline_nothing_is_scaled_and_it_says_so(store: Store) -> None:
    keep(store, "a", 11.0, 10)
    keep(store, "b", 30.0, 90, peak=900 * MB)
    found = Estimator(store, "base").estimate(step(), "new")
    assert found.basis == "same_kind"
    assert found.host_peak_bytes == 900 * MB
    assert found.low_s == pytest.approx(11 / 1.25)
    assert found.high_s == pytest.approx(30 * 1.25)
    assert "not scaled" in found.why


def test_another_method_stands_in_and_is_named(store: Store) -> None:
    keep(store, "a", 11.0, 10)
    found = Estimator(store, "base").estimate(step("channels"), "new")
    assert "of prune, but of no channels" in found.why


def test_damaged_records_are_passed_over(store: Store) -> None:
    keep(store, "a", 11.0, 10)
    for name, text in (("b", "{"), ("c", '{"kind": 3}'), ("d", "[]")):
        (store.root / "timings" / f"{name}.json").write_text(text)
    assert Estimator(store, "base").estimate(step(), "new").records == 1


def test_no_record_is_made_of_a_stage_without_a_time() -> None:
    assert timing_of(step(), StepResult(), baseline(1)) is None


def test_the_preview_names_what_is_not_known_and_sums_the_rest() -> None:
    known = Estimate(
        duration_s=10.0, low_s=8.0, high_s=20.0, host_peak_bytes=900 * MB, basis="scaled", why="so"
    )
    rows = [
        PreviewRow(name="train", status="cached", why="in the store", estimate=known),
        PreviewRow(name="prune", status="compute", why="new", estimate=known),
        PreviewRow(name="q", status="compute", why="new", estimate=Estimate(why="nobody did")),
    ]
    assert list(preview_lines(rows)) == [
        "train  cached   in the store",
        "prune  compute  new",
        "                about 10.0 s (8.0 s to 20.0 s), 900 MB of host memory: so",
        "q      compute  new",
        "                time and memory are not known: nobody did",
    ]
    assert total_line(rows) == (
        "to compute: 2 stages, about 10.0 s (8.0 s to 20.0 s), at most 900 MB of host memory;"
        " 1 of them not known"
    )
    assert to_plain(rows[2])["estimate"]["duration_s"] is None
    assert total_line(rows[:1]) == "nothing to compute"
