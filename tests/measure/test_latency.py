from __future__ import annotations

from pathlib import Path

from shrink.measure.inference_child import time_invokes
from shrink.measure.latency import latency
from shrink.measure.one_op import one_op_model


class Counting:
    """An interpreter that counts how often it is invoked."""

    def __init__(self) -> None:
        self.invokes = 0

    def invoke(self) -> None:
        self.invokes += 1


def test_latency_orders_its_percentiles(tmp_path: Path) -> None:
    path = tmp_path / "one.tflite"
    path.write_bytes(one_op_model())
    figures = latency(path, threads=2)
    assert set(figures) == {"p50_ms", "p90_ms", "threads"}
    assert 0 < figures["p50_ms"] <= figures["p90_ms"]
    assert figures["threads"] == 2


def test_latency_is_none_with_a_note_when_the_process_fails(tmp_path: Path) -> None:
    path = tmp_path / "broken.tflite"
    path.write_bytes(b"no model at all")
    figures = latency(path)
    assert figures["p50_ms"] is None
    assert figures["p90_ms"] is None
    assert "ended with code 1" in figures["note"]


def test_time_invokes_times_at_least_fifty_after_a_warm_up() -> None:
    interpreter = Counting()
    times = time_invokes(interpreter)
    assert len(times) >= 50
    assert interpreter.invokes > len(times)
