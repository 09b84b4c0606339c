from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shrink.base.errors import ResourceError
from shrink.engine.config import OptimizerConfig, TrainingConfig
from shrink.engine.planner import (
    MARGIN,
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
    """A model's peak, exactly max(update, held + example · m), and the sizes that were measured."""

    def __init__(self, update: int, held: int, example: int) -> None:
        self.update, self.held, self.example = update, held, example
        self.measured: list[int] = []

    def true(self, size: int) -> int:
        return max(self.update, self.held + self.example * size)

    def peak(self, size: int) -> int:
        self.measured.append(size)
        return self.true(size)


class OutOfMemory(Curve):
    """Runs out of memory above a size."""

    def peak(self, size: int) -> int:
        if size > 4:
            raise ResourceError("out of memory in a probe")
        return super().peak(size)


@pytest.mark.parametrize("size", [4, 8, 64, 100])
@pytest.mark.parametrize(("held", "example"), [(10_000, 300), (10**9, 5_000), (10, 40_000)])
def test_predict_is_exact_on_a_line(held: int, example: int, size: int) -> None:
    curve = Curve(update=0, held=held, example=example)
    probed = {m: curve.true(m) for m in (1, 2, 4, 8, 16, 32, 64) if 2 * m <= size}
    assert predict(probed, size) == curve.true(size)


def test_predict_is_exact_past_the_bend_and_before_it() -> None:
    curve = Curve(update=20 * M, held=10 * M, example=M)
    probed = {m: curve.true(m) for m in (1, 2, 4, 8, 16, 32)}
    assert predict(probed, 64) == curve.true(64)
    assert predict(probed, 8) == curve.true(8) == 20 * M


def test_predict_uses_no_probe_above_half_of_the_size_and_needs_two() -> None:
    probed = {1: 110, 2: 120, 4: 10**9}
    assert predict(probed, 7) == 170
    assert predict(probed, 3) is predict(probed, 1) is None


def test_predict_never_falls() -> None:
    assert predict({1: 130, 2: 110, 4: 100}, 8) == 100


@pytest.mark.parametrize("limit", range(12_000, 400_000, 9_777))
def test_search_finds_the_largest_power_of_two_and_never_exceeds_the_limit(limit: int) -> None:
    curve = Curve(update=0, held=10_000, example=700)
    probed = search(curve.peak, 256, limit)
    plan = choose(probed, limit)
    fitting = [m for m in (2**i for i in range(9)) if curve.true(m) <= limit]
    assert plan is not None
    assert plan.micro_batch_size == max(fitting)
    assert max(map(curve.true, curve.measured)) <= limit or curve.measured == [1, 2]


@pytest.mark.parametrize("example_kb", [80, 95, 150, 290])
def test_search_measures_what_it_chooses_behind_a_bend(example_kb: int) -> None:
    """Two peaks of the update do not predict the bend: the size behind it is measured."""
    curve = Curve(update=20 * M, held=10 * M, example=1000 * example_kb)
    limit = round(1.25 * curve.true(64))
    plan = choose(search(curve.peak, 256, limit), limit)
    assert plan is not None
    fitting = [m for m in (2**i for i in range(9)) if curve.true(m) <= limit]
    assert (plan.micro_batch_size, plan.verified_bytes) == (max(fitting), curve.true(max(fitting)))


def test_search_measures_sizes_predicted_within_the_tolerance() -> None:
    curve = Curve(update=0, held=10_000, example=1000)
    assert list(search(curve.peak, 256, 40_000, tolerance=0.25)) == [1, 2, 4, 8, 16, 32]
    assert list(search(curve.peak, 256, 40_000)) == [1, 2, 4, 8, 16]


def test_search_ends_at_the_largest_size_without_a_limit() -> None:
    curve = Curve(update=0, held=1000, example=10)
    assert list(search(curve.peak, 100, None)) == [1, 2, 4, 8, 16, 32, 64, 100]


def test_search_keeps_its_probes_when_one_runs_out_of_memory() -> None:
    curve = OutOfMemory(update=0, held=1000, example=10)
    assert list(search(curve.peak, 64, 10**6)) == [1, 2, 4]


def test_choose_predicts_from_half_and_reports_what_was_verified() -> None:
    curve = Curve(update=0, held=1000, example=10)
    plan = choose(search(curve.peak, 64, 2000), 2000)
    assert plan is not None
    assert (plan.micro_batch_size, plan.predicted_bytes, plan.verified_bytes) == (64, 1640, 1640)


def test_choose_is_none_when_nothing_fits() -> None:
    curve = Curve(update=0, held=1000, example=10)
    assert choose(search(curve.peak, 64, 1000), 1000) is None


@pytest.mark.parametrize("limit", [1300, 2000, 5000, 54_321])
def test_largest_that_fits_solves_the_line(limit: int) -> None:
    curve = Curve(update=0, held=1000, example=10)
    probed = search(curve.peak, 16, None)
    assert largest_that_fits(probed, limit) == (usable(limit) - 1000) // 10


def test_largest_that_fits_is_a_measured_size_where_a_larger_one_did_not_fit() -> None:
    probed = {1: 110, 2: 120, 4: 140, 8: 180}
    assert largest_that_fits(probed, 150) == 4
    assert largest_that_fits(probed, 100) == 0
    assert largest_that_fits({1: 110}, 150) == 1


def test_cannot_fit_says_how_much_would_be_enough() -> None:
    error = cannot_fit(10_000_000, 19_000_000, TrainingConfig())
    assert error.exit_code == 5
    assert error.hint is not None
    enough = float(error.hint.removeprefix("set training.memory_limit to ").partition("MB")[0])
    assert enough * 1e6 * (1 - MARGIN) >= 19_000_000


def test_cannot_fit_suggests_only_settings_that_are_not_set() -> None:
    suggested = ("training.recompute to auto", "mixed_bfloat16", "sgd")
    hint = cannot_fit(10, 19, TrainingConfig()).hint or ""
    assert all(setting in hint for setting in suggested)
    thrifty = TrainingConfig(
        recompute="auto", precision="mixed_bfloat16", optimizer=OptimizerConfig(name="sgd")
    )
    hint = cannot_fit(10, 19, thrifty).hint or ""
    assert not any(setting in hint for setting in suggested)
    assert "set a smaller training.global_batch_size" in hint


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
    # On so small a network one rounded tensor is a sixth of the peak.
    memory = planned[1]["memory"]
    ratio = memory["training_peak_predicted_bytes"] / memory["training_peak_bytes"]
    assert 0.5 < ratio < 2


def test_run_ends_with_hints_when_not_even_one_example_fits(recipe: Path) -> None:
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
        )
        for _ in range(5)
    ]
    assert len(set(peaks)) == 1, peaks
