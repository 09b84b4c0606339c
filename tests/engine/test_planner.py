from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shrink.base.errors import ResourceError
from shrink.engine.planner import (
    MARGIN,
    Floor,
    cannot_fit,
    choose,
    largest_that_fits,
    predict,
    search,
    usable,
)
from tests.cli.shell import read_report, shrink
from tests.engine._run import run_in_fresh_process

M = 1_000_000


class Curve:
    """A model's peak, exactly max(update, held + example · m), and the sizes it was asked for."""

    def __init__(self, update: int, held: int, example: int) -> None:
        self.update, self.held, self.example = update, held, example
        self.floor = Floor(held * 0.9, held * 1.1, slack=max(0, update - held))
        self.asked: list[int] = []

    def true(self, size: int) -> int:
        return max(self.update, self.held + self.example * size)

    def peak(self, size: int) -> int:
        self.asked.append(size)
        return self.true(size)


class OutOfMemory(Curve):
    """Runs out of memory above a size."""

    def peak(self, size: int) -> int:
        if size > 4:
            raise ResourceError("out of memory in a probe")
        return super().peak(size)


@pytest.mark.parametrize("size", [4, 8, 64, 100])
def test_predict_is_exact_on_a_line(size: int) -> None:
    curve = Curve(update=0, held=10_000, example=300)
    probed = {m: curve.true(m) for m in (1, 2, 4, 8, 16, 32, 64) if 2 * m <= size}
    assert predict(probed, size, curve.floor) == curve.true(size)
    assert predict(probed, size) == curve.true(size)


def test_predict_is_exact_past_the_bend_and_on_the_flat() -> None:
    curve = Curve(update=20 * M, held=10 * M, example=M)
    probed = {m: curve.true(m) for m in (1, 2, 4, 8, 16, 32)}
    assert predict(probed, 64, curve.floor) == curve.true(64)
    assert predict(probed, 8, curve.floor) == curve.true(8) == 20 * M


def test_predict_uses_no_probe_above_half_of_the_size() -> None:
    probed = {1: 110, 2: 120, 4: 10**9}
    assert predict(probed, 7) == 170
    assert predict(probed, 1) is None


def test_predict_keeps_the_constant_above_what_is_held_when_probes_rise_too_steeply() -> None:
    # Through the last two: a constant of -100. Above 50 that are held: 25 each, then 62.5.
    assert predict({2: 100, 4: 300}, 8, Floor(low=50)) == 50 + 250 / 4 * 8


def test_predict_adds_the_largest_fall_from_one_probe_to_later_ones() -> None:
    assert predict({1: 100, 2: 110, 4: 120}, 8, Floor(low=50)) == 140
    assert predict({1: 130, 2: 110, 4: 120}, 8, Floor(low=50)) == 140 + 20
    assert predict({1: 130, 2: 110, 4: 120}, 8, Floor(low=15)) == 140 + 15
    assert predict({1: 100, 2: 110, 4: 120, 8: 90}, 8, Floor(low=50)) == 140


def test_predict_puts_the_bend_at_the_last_probe_behind_a_flat() -> None:
    # Held are at least 60: between 2 and 4 the line may have risen by 15 for each example.
    assert predict({1: 100, 2: 100, 4: 120}, 8, Floor(low=60)) == 60 + 15 * 8


BENT = Floor(low=9.7 * M, slack=10 * M)


@pytest.mark.parametrize(
    ("example_kb", "between"),
    [
        # The line is above the update's 20 MB from 125, 118, 111, 105, 67, 59, 50 and 34 on.
        (80, {96, 112}),
        (85, {96, 112}),
        (90, {96, 112}),
        (95, {96, 112}),
        (150, {96}),
        (170, {48, 56, 96}),
        (200, {48, 56, 96}),
        (290, {48, 96}),
    ],
)
def test_search_measures_sizes_behind_the_bend_that_tell_the_slope(
    example_kb: int, between: set[int]
) -> None:
    curve = Curve(update=20 * M, held=10 * M, example=1000 * example_kb)
    probed = search(curve, 128, None)
    assert set(curve.asked) - {1, 2, 4, 8, 16, 32, 64, 128} == between
    found = predict(probed, 256, BENT)
    # Where no size between is above the flat, the constant is the least that it may be.
    assert found == pytest.approx(curve.true(256), rel=0.003 if example_kb < 90 else 1e-9)
    assert choose(probed, BENT, None).micro_batch_size == 128  # type: ignore[union-attr]
    limit = round(1.25 * curve.true(128))
    fits = largest_that_fits(probed, BENT, limit)
    assert curve.true(fits) <= limit
    assert curve.true(fits + 10) > usable(limit)


def test_search_measures_nothing_between_two_sizes_without_a_flat_or_a_rise() -> None:
    for held, update, example in ((10, 0, 300_000), (10, 20, 1_000), (550, 0, 40_000), (9, 0, 0)):
        curve = Curve(update * M, held * M, example)
        search(curve, 128, None)
        assert curve.asked == [1, 2, 4, 8, 16, 32, 64, 128]


@pytest.mark.parametrize("example", [5_000, 40_000, 100_000, 500_000])
def test_weights_that_outweigh_examples_are_no_flat(example: int) -> None:
    """1 GB is held: the peaks of the first sizes are nearly one, and yet on a line."""
    curve = Curve(update=0, held=1000 * M, example=example)
    floor = Floor(low=700 * M, slack=200 * M)
    for largest in (16, 64):
        probed = search(curve, largest, None)
        found = predict(probed, 2 * largest, floor)
        assert found == pytest.approx(curve.true(2 * largest), rel=1e-6)
        fits = largest_that_fits(probed, floor, 2000 * M)
        assert fits == pytest.approx((1900 - 1000) * M / example, rel=0.01)


def test_predict_takes_peaks_some_kilobytes_apart_as_one() -> None:
    """A flat with noise before the last: held are at least 60 MB, so 3.75 MB for each example."""
    flat = {1: 100 * M, 2: 100 * M + 5_000, 4: 100 * M - 3_000, 8: 100 * M + 2_000}
    assert predict({**flat, 16: 120 * M}, 32, Floor(low=60 * M)) == pytest.approx(
        180 * M, abs=9_000
    )
    assert predict({**flat, 16: 100 * M + 4_000}, 32, Floor(low=60 * M)) < 100.1 * M  # type: ignore[operator]


def test_predict_takes_the_last_slope_when_probes_rise() -> None:
    # Through the last two: a constant of -20. Above none: 30 each, then 35.
    assert predict({2: 60, 4: 140}, 8, Floor(low=0)) == 35 * 8


def test_predict_takes_the_mean_slope_when_probes_flatten_out() -> None:
    # Through the last two: a constant of 80. Above 20 that are held: 40 each, then 25.
    assert predict({2: 100, 4: 120}, 8, Floor(high=20)) == 20 + (40 + 25) / 2 * 8


@pytest.mark.parametrize("limit", range(12_000, 400_000, 9_777))
def test_search_finds_the_largest_power_of_two_and_never_exceeds_the_limit(limit: int) -> None:
    curve = Curve(update=0, held=10_000, example=700)
    probed = search(curve, 256, limit)
    plan = choose(probed, curve.floor, limit)
    fitting = [m for m in (2**i for i in range(9)) if curve.true(m) <= limit]
    assert plan is not None
    assert plan.micro_batch_size == max(fitting)
    assert max(map(curve.true, curve.asked)) <= limit


def test_search_measures_what_is_expected_a_little_above_the_limit_when_in_doubt() -> None:
    curve = Curve(update=0, held=10_000, example=1000)
    assert list(search(curve, 256, 40_000, doubt=0.25)) == [1, 2, 4, 8, 16, 32]
    assert list(search(curve, 256, 40_000)) == [1, 2, 4, 8, 16]


def test_search_ends_at_the_largest_size_without_a_limit() -> None:
    curve = Curve(update=0, held=1000, example=10)
    assert list(search(curve, 100, None)) == [1, 2, 4, 8, 16, 32, 64, 100]


def test_search_keeps_what_it_has_when_a_probe_runs_out_of_memory() -> None:
    curve = OutOfMemory(update=0, held=1000, example=10)
    assert list(search(curve, 64, 10**6)) == [1, 2, 4]


def test_choose_predicts_from_half_and_reports_what_was_verified() -> None:
    curve = Curve(update=0, held=1000, example=10)
    plan = choose(search(curve, 64, 2000), curve.floor, 2000)
    assert plan is not None
    assert (plan.micro_batch_size, plan.predicted_bytes, plan.verified_bytes) == (64, 1640, 1640)


def test_choose_is_none_when_nothing_fits() -> None:
    curve = Curve(update=0, held=1000, example=10)
    assert choose(search(curve, 64, 1000), curve.floor, 1000) is None


@pytest.mark.parametrize("limit", [1300, 2000, 5000, 54_321])
def test_largest_that_fits_solves_the_line(limit: int) -> None:
    curve = Curve(update=0, held=1000, example=10)
    probed = search(curve, 16, None)
    assert largest_that_fits(probed, curve.floor, limit) == (usable(limit) - 1000) // 10


def test_cannot_fit_names_levers_with_their_savings_largest_first() -> None:
    error = cannot_fit(10_000_000, 19_000_000, {"a": 1_000_000, "b": 5_000_000, "none": 0})
    assert error.exit_code == 5
    assert error.hint is not None
    assert error.hint.startswith("b (saves about 5.0 MB); a (saves about 1.0 MB); training.memory")
    assert "none" not in error.hint
    enough = float(error.hint.rpartition(": ")[2].removesuffix("MB"))
    assert enough * 1e6 * (1 - MARGIN) >= 19_000_000


LIMIT = 24_000_000
_MODEL = """
import tf_keras as keras

def build():
    layers = keras.layers
    inputs = x = layers.Input((8, 8, 1))
    for _ in range(4):
        x = layers.Conv2D(64, 3, padding="same", activation="relu")(x)
    return keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))

def build_heavy():
    inputs = keras.layers.Input((8, 8, 1))
    hidden = keras.layers.Dense(1024)(keras.layers.Flatten()(inputs))
    return keras.Model(inputs, keras.layers.Dense(10)(keras.layers.Dense(1024)(hidden)))
"""
_RECIPE = """
name: planned
model: net.py:build
data: {source: digits}
training: {global_batch_size: 512, optimizer: {name: sgd}}
stages:
  - train: {epochs: 1}
"""


def _write(folder: Path) -> None:
    (folder / "net.py").write_text(_MODEL, encoding="utf-8")
    (folder / "recipe.yaml").write_text(_RECIPE, encoding="utf-8")


def _run(folder: Path, *settings: str, expect: int = 0) -> dict[str, Any]:
    """Run the recipe and return its stage."""
    flags = [word for setting in settings for word in ("--set", f"training.{setting}")]
    arguments = ("run", "recipe.yaml", "--output", "out", "--force", "--quiet", *flags)
    shrink(*arguments, cwd=folder, store=folder / "store", expect=expect)
    found: dict[str, Any] = read_report(folder / "out")["stages"][0]
    return found


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    _write(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A run under a limit that forces accumulation: its folder and its stage."""
    folder = tmp_path_factory.mktemp("planned")
    _write(folder)
    return folder, _run(folder, f"memory_limit={LIMIT}")


def test_run_trains_in_the_largest_micro_batch_that_fits(
    planned: tuple[Path, dict[str, Any]],
) -> None:
    folder, stage = planned
    training = stage["training"]
    size = training["micro_batch_size"]
    assert training["accumulation_steps"] == 512 // size > 1
    assert training["memory_limit_bytes"] == LIMIT
    assert training["oom_events"] == []
    assert stage["memory"]["training_peak_bytes"] <= LIMIT
    # A limit, however large, makes every step's operations run in the same order.
    twice = _run(folder, f"micro_batch_size={2 * size}", "memory_limit=1GB")
    assert twice["memory"]["training_peak_bytes"] > LIMIT
    assert twice["memory"]["training_peak_predicted_bytes"] is None
    assert any("micro_batch_size is given" in note for note in twice["notes"])


def test_run_predicts_a_peak_of_the_right_size(planned: tuple[Path, dict[str, Any]]) -> None:
    # How near it comes is measured by tests/benchmarks/bench_planner.py; on so small a network one
    # rounded tensor is a sixth of the peak.
    memory = planned[1]["memory"]
    ratio = memory["training_peak_predicted_bytes"] / memory["training_peak_bytes"]
    assert 0.5 < ratio < 2


def test_run_ends_with_levers_when_not_even_one_example_fits(recipe: Path) -> None:
    heavy = _RECIPE.replace("net.py:build", "net.py:build_heavy")
    (recipe / "recipe.yaml").write_text(heavy, encoding="utf-8")
    failed = _run(recipe, "memory_limit=3MB", expect=5)
    assert failed["error"]["type"] == "ResourceError"
    assert "training.memory_limit" in failed["error"]["hint"]


@pytest.mark.slow
def test_training_with_max_pooling_has_the_same_peak_in_every_process() -> None:
    step: dict[str, Any] = {
        "architecture": "conv",
        "optimizer": "sgd",
        "batch_size": 512,
        "micro_batch_size": 32,
    }
    peaks = [
        run_in_fresh_process(
            "tests.benchmarks.planning",
            "train",
            environment={"TF_USE_LEGACY_KERAS": "1"},
            memory_limit=2_000_000_000,
            **step,
        )[0]
        for _ in range(5)
    ]
    assert len(set(peaks)) == 1, peaks
