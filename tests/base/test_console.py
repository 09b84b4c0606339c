"""The progress line at the widths that terminals have, and a line per epoch without one."""

from __future__ import annotations

import io
import re
import sys
from dataclasses import replace

import pytest
from rich.console import Console as RichConsole

from shrink.base.console import Console, describe_progress
from shrink.base.progress import Phase, Progress, ProgressLine, Share, UnderLine

WIDTHS = (60, 80, 100, 160)


class Clock:
    """Seconds that a test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def epoch(number: int, step: int = 10, *, epoch_end: bool = False) -> Progress:
    metrics = {"loss": 1.5 / number, "accuracy": 1 - 0.5 / number}
    if epoch_end:
        metrics |= {"val_loss": 0.4, "val_accuracy": 0.8125}
    return Progress(number, 200, step, 10, 4000.0, metrics, epoch_end)


def bar(text: str) -> str:
    found = re.search("[━─]+", text)
    assert found is not None
    return found[0]


@pytest.mark.parametrize("width", WIDTHS)
def test_training_shows_stage_bar_epoch_metric_and_what_is_left(width: int) -> None:
    clock = Clock()
    line = ProgressLine("[2/4] distill", clock)
    line.show(epoch(1, 5))
    clock.now += 10
    line.show(epoch(9))
    text = line.text(width)
    assert len(text) <= width
    assert text.startswith("[2/4] distill ")
    assert len(bar(text)) >= 10
    # 5 of 2,000 steps when it was first heard of, 90 after 10 s: the rest takes 1,910 / 8.5 s.
    assert text.endswith(" ETA  3:44")
    assert re.search(r" epoch 9/200 +acc\S* 0\.9444 ", text)


@pytest.mark.parametrize("width", WIDTHS)
def test_training_keeps_every_column_in_its_place(width: int) -> None:
    clock = Clock()
    line = ProgressLine("[2/4] distill", clock)
    line.show(epoch(1, 10, epoch_end=True))
    places = set()
    for number in (2, 9, 10, 99, 150):
        for event in (epoch(number, 3), epoch(number, 10, epoch_end=True)):
            clock.now += 1
            line.show(event)
            text = line.text(width)
            values = [m.start() for m in re.finditer(r"0\.\d{4} ", text)]
            places.add((text.index(bar(text)), len(bar(text)), text.index("epoch"), *values))
    assert len(places) == 1


@pytest.mark.parametrize("later_s", [None, 200.0])
@pytest.mark.parametrize("width", [59, 79, 99, 159])
def test_the_first_validation_metric_moves_nothing(width: int, later_s: float | None) -> None:
    clock = Clock()
    line = ProgressLine("[1/4] train", clock, later_s)
    places = set()
    for event in (epoch(1, 2), epoch(1, 9), epoch(1, 10, epoch_end=True), epoch(2, 1)):
        clock.now += 10
        line.show(event)
        text = line.text(width)
        places.add((text.index(bar(text)), len(bar(text)), text.index("epoch"), len(text)))
    assert len(places) == 1


def test_wide_terminals_show_the_validation_metric_too() -> None:
    line = ProgressLine("[1/4] train", Clock())
    line.show(epoch(3, epoch_end=True))
    assert "val_accuracy 0.8125" in line.text(100)
    assert "val_accuracy" not in line.text(60)


@pytest.mark.parametrize("width", WIDTHS)
def test_parts_without_a_share_have_a_clock(width: int) -> None:
    clock = Clock()
    line = ProgressLine("[2/4] distill", clock)
    clock.now += 17
    assert "starting" in line.text(width)
    assert line.text(width).endswith(" 0:17")
    line.show(epoch(5))
    line.show(Phase("measuring"))
    clock.now += 62
    text = line.text(width)
    assert len(bar(text)) >= 10
    assert "accuracy" not in text
    assert text.endswith(" 1:02")


def test_hours_take_no_more_room_than_minutes() -> None:
    clock, shown = Clock(), []
    for seconds in (30.5, 2400.5, 34250, 900 * 3600 + 60):
        clock.now = 0.0
        line = ProgressLine("[1/4] train", clock)
        line.show(Share("images", 0, 100))
        clock.now = seconds / 99
        line.show(Share("images", 1, 100))
        shown.append(line.text(79))
    assert [text[-9:] for text in shown] == ["ETA  0:30", "ETA 40:00", "ETA  9h30", "ETA   37d"]
    assert len({len(text) for text in shown}) == 1


def test_a_new_training_counts_its_time_anew() -> None:
    clock = Clock()
    line = ProgressLine("[1/1] distill", clock)
    line.show(epoch(200))
    clock.now += 100
    line.show(epoch(1, 1))
    clock.now += 1
    line.show(epoch(1, 2))
    assert line.text(80).endswith(" ETA 33:18")


def test_long_names_leave_room_for_the_bar() -> None:
    line = ProgressLine("[10/12] a-very-long-name-of-a-stage-that-goes-on-and-on", Clock())
    metrics = {"loss": 1.0, "sparse_top_k_categorical_accuracy": 0.5}
    line.show(replace(epoch(120), metrics=metrics))
    for width in WIDTHS:
        assert len(line.text(width)) <= width
        assert len(bar(line.text(width))) >= 10


def test_line_without_unicode_is_ascii() -> None:
    line = ProgressLine("[1/1] a-very-long-name-of-a-stage-that-goes-on-and-on", Clock())
    line.show(Share("reading", 1_000, 20_000))
    text = line.text(60, drawn=False)
    assert text.isascii()
    assert "reading 1,000/20,000" in text
    assert "#" not in text.partition("reading")[0].partition("-" * 10)[0]


@pytest.mark.parametrize("width", WIDTHS)
def test_console_draws_one_line_and_takes_it_away(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    console = Console()
    console.stage_started("train", 1, 4)
    for number in (1, 2, 3):
        console.show(epoch(number, epoch_end=True))
    console.show(Phase("measuring"))
    console.stage_ended("train", 1, 4, "done in 3.0 s")
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
    lines = [line for line in re.split(r"[\r\n]+", plain) if line.strip()]
    assert all(len(line) < width for line in lines)
    assert lines[-1] == "[1/4] train: done in 3.0 s"
    assert all(line.startswith("[1/4] train ") for line in lines[:-1])


def test_console_says_a_line_per_epoch_without_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    console = Console()
    console.stage_started("train", 1, 1)
    console.show(epoch(1, 5))
    console.show(epoch(1, epoch_end=True))
    console.show(Phase("measuring"))
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "[1/1] train"
    assert len(told) == 2
    assert told[1].startswith("  [1/1] train: epoch 1/200  loss 1.5  accuracy 0.5")


def test_describe_progress_tells_a_loss_once() -> None:
    metrics = {"loss": 0.01464, "mean_squared_error": 0.01464, "accuracy": 0.01464}
    told = describe_progress(replace(epoch(1), metrics=metrics))
    assert told == "epoch 1/200  loss 0.01464  accuracy 0.01464  4,000 examples/s"
    metrics = {"loss": 0.5, "mean_squared_error": 0.4}
    assert "mean_squared_error 0.4" in describe_progress(replace(epoch(1), metrics=metrics))


@pytest.mark.parametrize("width", WIDTHS)
def test_what_is_left_of_the_run_is_there_where_there_is_room(width: int) -> None:
    clock = Clock()
    line = ProgressLine("[2/4] distill", clock, later_s=100.0)
    line.show(epoch(1, 5))
    before = line.text(width - 1)
    clock.now += 10
    line.show(epoch(9))
    text = line.text(width - 1)
    assert max(len(before), len(text)) < width
    # 5 of 2,000 steps when it began, 90 now: 10 s for 85 steps, 224 s for the other 1,910.
    assert ("ETA  3:44 run  5:24" in text) == (width > 60)
    assert text.index(bar(text)) == before.index(bar(before))
    assert len(bar(text)) == len(bar(before))


@pytest.mark.parametrize("width", [60, 80, 160])
def test_a_line_above_the_progress_fits_and_is_drawn_as_it_is_now(width: int) -> None:
    said = ["search, 0:59 left: best point 3, " + "tflite_bytes 12.7 KB, " * 5]
    stream = io.StringIO()
    console = RichConsole(file=stream, width=width, force_terminal=True, color_system=None)
    shown = UnderLine(lambda: said[-1], ProgressLine("[2/4] distill", lambda: 0.0))
    console.print(shown)
    console.print()
    said.append("search, 0:58 left: no point within the limits yet")
    console.print(shown)
    lines = stream.getvalue().splitlines()
    assert lines[0].startswith("search, 0:59 left: best point 3")
    assert lines[2].rstrip() == said[1]
    assert all(line.startswith("[2/4] distill") for line in lines[1::2])
    assert all(len(line.rstrip()) < width for line in lines)
