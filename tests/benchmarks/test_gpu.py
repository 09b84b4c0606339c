"""The checks of a GPU: on one with `-m gpu`, and what of them needs no card everywhere.

Run on a machine with a GPU: python -m pytest -m gpu -p no:xdist -o addopts=""
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.benchmarks import gpu
from tests.benchmarks.gpu import Bench, Row

NO_CARD = {"tensorflow": "2.21.0", "cuda": "12.5.1", "cudnn": "9", "gpus": []}
T4 = {"name": "Tesla T4", "compute_capability": "7.5"}


@pytest.fixture(scope="module")
def bench() -> Bench:
    found = Bench(seconds=1800)
    if not found.call("devices")["gpus"]:
        pytest.skip("TensorFlow sees no GPU")
    return found


@pytest.mark.gpu
@pytest.mark.parametrize("check", gpu.CHECKS, ids=lambda check: check.__name__)
def test_checks_are_met_on_a_gpu(check: Callable[[Bench], list[Row]], bench: Bench) -> None:
    rows = check(bench)
    assert rows
    assert [row for row in rows if row.is_met is False] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "check",
    [
        *(gpu.exactness, gpu.logical_gpus, gpu.two_gpus, gpu.out_of_memory, gpu.fragmentation),
        gpu.overhead,
    ],
    ids=lambda check: check.__name__,
)
def test_checks_are_rehearsed_on_a_cpu(check: Callable[[Bench], list[Row]]) -> None:
    rows = check(Bench(seconds=1800, cpu=True))
    assert [row for row in rows if row.is_met is False] == []


def test_without_a_card_there_are_no_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Bench, "call", lambda self, function, **more: NO_CARD)
    assert gpu.main(["--output", str(tmp_path / "gpu.md")]) == 5
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "sees no GPU" in shown.err
    assert "[gpu]" in shown.err
    assert not (tmp_path / "gpu.md").exists()


def test_with_a_card_the_table_names_it_and_the_exit_code_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Bench, "call", lambda self, function, **more: {**NO_CARD, "gpus": [T4]})
    monkeypatch.setattr(gpu, "card", lambda: ["driver: 550.54.15"])
    for rows, code in (([Row("a", "b", "c")], 0), ([Row("a|b", "", "c", False)], 1)):
        monkeypatch.setattr(gpu, "rows_of", lambda bench, rows=rows: rows)
        assert gpu.main(["--output", str(tmp_path / "gpu.md")]) == code
        assert (tmp_path / "gpu.md").read_text("utf-8") in capsys.readouterr().out
    text = (tmp_path / "gpu.md").read_text("utf-8")
    assert "Tesla T4 (compute capability 7.5)" in text
    assert "driver: 550.54.15" in text
    assert "| a\\|b |  | c | **missed** |" in text
    assert "0 of 1 checks are met" in text


def test_checks_that_fail_or_have_no_time_are_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(bench: Bench) -> list[Row]:
        """Lost."""
        raise RuntimeError("exit 1\nlong\nCUDA_ERROR_UNKNOWN")

    def late(bench: Bench) -> list[Row]:
        """Late."""
        return list(bench.call("devices"))

    monkeypatch.setattr(gpu, "CHECKS", (lost, late))
    rows = gpu.rows_of(Bench(seconds=0))
    assert [(row.check, row.is_met) for row in rows] == [("Lost.", False), ("Late.", False)]
    assert rows[0].measured == "failed: CUDA_ERROR_UNKNOWN"
    assert "time was up" in rows[1].measured


def scripted(*answers: Any) -> Any:
    """Return a `call` that gives these in turn, and writes weights that are all the same."""
    left = list(answers)

    def call(self: Bench, function: str, **more: Any) -> Any:
        if more.get("weights"):
            np.savez(more["weights"], np.ones(3))
        return left.pop(0)

    return call


TOLD = {"peak": 1000, "events": [], "micro_batch_size": 256, "examples_per_s": 100.0, "loss": 1.0}


@pytest.mark.parametrize(
    ("events", "is_met"), [([], False), ([[0, 256]], True), ([[0, 256], [0, 128]], True)]
)
def test_recovery_is_met_only_where_a_step_ran_out_of_memory(
    events: list[list[int]], is_met: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = {**TOLD, "events": events, "micro_batch_size": 64}
    monkeypatch.setattr(Bench, "call", scripted(TOLD, again))
    (row,) = gpu.out_of_memory(Bench())
    assert row.is_met is is_met


@pytest.mark.parametrize(("peak", "is_met"), [(400, True), (470, False), (510, False)])
def test_a_peak_is_met_near_its_prediction_and_below_the_limit(
    peak: int, is_met: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [TOLD, [32, 410], {**TOLD, "peak": peak}] * 4
    monkeypatch.setattr(Bench, "call", scripted(*answers))
    assert [row.is_met for row in gpu.predicted_peaks(Bench())] == [is_met] * 4


@pytest.mark.parametrize(("off", "is_met"), [(0.0, True), (1e-4, False)])
def test_two_gpus_are_held_to_the_weights_of_one(
    off: float, is_met: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = [(TOLD, [np.ones(3)]), ({**TOLD, "examples_per_s": 190.0}, [np.ones(3) + off])]
    monkeypatch.setattr(Bench, "call", lambda self, function: {"gpus": [T4, T4]})
    monkeypatch.setattr(Bench, "weights", lambda self, **given: ends.pop(0))
    (row,) = gpu.two_gpus(Bench())
    assert row.is_met is is_met
    assert "1.90 of one" in row.measured


def test_one_gpu_is_no_check_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bench, "call", lambda self, function: {"gpus": [T4]})
    (row,) = gpu.two_gpus(Bench())
    assert row.is_met is None
    assert "not run" in row.measured


@pytest.mark.parametrize(("ours", "is_met"), [(89.0, False), (91.0, True)])
def test_throughput_is_held_to_keras(
    ours: float, is_met: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [TOLD, {**TOLD, "examples_per_s": ours}] * 2
    monkeypatch.setattr(Bench, "call", scripted(*answers))
    assert [row.is_met for row in gpu.throughput(Bench())] == [is_met] * 2


class Nvml:
    """The part of pynvml that is used, with readings of a T4 under driver 550."""

    class NVMLError(Exception):
        """As pynvml's."""

    def __init__(self, *, answers: bool = True) -> None:
        self.answers, self.open = answers, 0

    def nvmlInit(self) -> None:
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlSystemGetDriverVersion(self) -> bytes:
        if not self.answers:
            raise self.NVMLError("Driver/library version mismatch")
        return b"550.54.15"

    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetName(self, device: int) -> str:
        return "Tesla T4"

    def nvmlDeviceGetMemoryInfo(self, device: int) -> SimpleNamespace:
        return SimpleNamespace(total=16_106_127_360, used=3_145_728)


def test_card_names_driver_card_and_memory() -> None:
    nvml = Nvml()
    held = "16.1 GB, 3.15 MB of it in use before the checks"
    assert gpu.card(nvml) == ["driver: 550.54.15", f"card 0: Tesla T4, {held}"]
    assert gpu.card(Nvml(answers=False)) == ["driver: not known (Driver/library version mismatch)"]
    assert nvml.open == 0
