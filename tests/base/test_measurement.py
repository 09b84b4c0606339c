"""Notes say which figures they explain, and are read from text as they were made."""

from __future__ import annotations

import pytest

from shrink.base.measurement import Measured, Note, reasons


def test_reasons_tells_figures_in_a_row_once_where_their_reason_is_one() -> None:
    why = "latency not measured: the process died"
    figures = {
        "p50_ms": Measured[float](None, why),
        "p90_ms": Measured[float](None, why),
        "macs": Measured(5),
        "arena_bytes": Measured(64, "it allocates, but cannot run"),
    }
    assert reasons(figures) == [
        f"p50_ms, p90_ms: {why}",
        "arena_bytes: it allocates, but cannot run",
    ]


@pytest.mark.parametrize(
    ("text", "figures", "why"),
    [
        ("macs: not counted: a loop", ("macs",), "not counted: a loop"),
        ("p50_ms, p90_ms: made up", ("p50_ms", "p90_ms"), "made up"),
        ("accuracy: the interval is wide", ("accuracy",), "the interval is wide"),
        ("task: loss mean_squared_error", (), "task: loss mean_squared_error"),
        ("macs, flash_bytes: unknown", ("macs",), "unknown"),
        ("flash_bytes, ram_bytes: unknown", (), "flash_bytes, ram_bytes: unknown"),
        ("loss, and what goes with it: unknown", (), "loss, and what goes with it: unknown"),
        ("macs: not counted: a loop, macs: 3", ("macs",), "not counted: a loop, macs: 3"),
        ("macs", (), "macs"),
        ("", (), ""),
    ],
)
def test_note_read_finds_the_figures_of_a_written_note(
    text: str, figures: tuple[str, ...], why: str
) -> None:
    note = Note.read(text)
    assert (note, note.figures, note.why) == (text, figures, why)
    assert Note.read(str(note)).figures == note.figures


@pytest.mark.parametrize(
    ("note", "expected"),
    [
        ("macs: does not apply, this stage trains nothing", True),
        ("training_peak_predicted_bytes: not planned: there is no limit", True),
        ("training_peak_predicted_bytes: not planned: the stage does not train", False),
        ("macs: not counted", False),
        ("does not apply", False),
    ],
)
def test_note_is_expected_where_no_such_stage_has_the_figure(note: str, expected: bool) -> None:
    assert Note.read(note).is_expected == expected
