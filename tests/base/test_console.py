"""The progress line at the widths that terminals have, and a line per epoch without one."""

from __future__ import annotations

import io
import re
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from rich.console import Console as RichConsole

from shrink.base.console import Console
from shrink.base.progress import Phase, Progress, Share
from shrink.base.progress_line import ProgressLine

WIDTHS = (60, 80, 100, 160)


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


def drawn(line: ProgressLine, stream: io.StringIO) -> list[str]:
    """What is on the terminal, without what moves the cursor."""
    stream.truncate(0)
    line.console.print(line.get_renderable())
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
    return [text.strip("\x00") for text in plain.splitlines()]


@pytest.mark.parametrize("width", WIDTHS)
def test_a_line_has_stage_bar_part_metrics_and_time(width: int) -> None:
    stream, now = io.StringIO(), [100.0]
    console = RichConsole(file=stream, width=width, force_terminal=True, color_system=None)
    line = ProgressLine(console, "[2/4] distill")
    line.get_time = line.tasks[0]._get_time = lambda: now[0]
    line.show(Phase("loading"))
    now[0] += 3661.0
    (text,) = drawn(line, stream)
    assert text.startswith("[2/4] distill ")
    assert "loading" in text
    assert text.rstrip().endswith("1h01")
    for step in (0, 100, 200):
        line.show(epoch(1 + step // 10))
        now[0] += 10.0
    (text,) = drawn(line, stream)
    assert len(text) <= width
    if width > 60:
        assert "epoch 21/200 accuracy 0.9762" in text
        # 100 steps in 10 s, and 1,790 of 2,000 are left.
        assert "ETA 2:59" in text
    line.show(Share("measuring", 1000, 2000))
    assert "measuring 1,000/2,000" in drawn(line, stream)[0] or width == 60


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
    assert all(len(line) <= width for line in lines)
    assert lines[-1] == "[1/4] train: done in 3.0 s"
    assert all(line.startswith("[1/4] train ") for line in lines[:-1])


def test_console_says_a_line_per_epoch_without_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    console = Console()
    console.stage_started("train", 1, 1)
    console.show(replace(epoch(3, 4), continued=True))
    console.show(epoch(1, 5))
    console.show(epoch(1, epoch_end=True))
    console.show(Phase("measuring"))
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "[1/1] train"
    assert told[1] == "  [1/1] train: continues after update 24"
    assert len(told) == 3
    assert told[2].startswith("  [1/1] train: epoch 1/200  loss 1.5  accuracy 0.5")


def test_console_says_what_a_stage_does_after_a_silence_without_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("shrink.base.console.time", SimpleNamespace(monotonic=lambda: now[0]))
    console = Console()
    console.stage_started("prune", 2, 3)
    for seconds, done in ((5, 0), (16, 1), (20, 2), (40, 3)):
        now[0] = float(seconds)
        console.show(Share("measuring sensitivity, groups", done, 8))
    now[0] = 60.0
    console.show(Phase("measuring arena_bytes: model 2"))
    assert capsys.readouterr().err.splitlines() == [
        "[2/3] prune",
        "  [2/3] prune: measuring sensitivity, groups 1/8",
        "  [2/3] prune: measuring sensitivity, groups 3/8",
        "  [2/3] prune: measuring arena_bytes: model 2",
    ]
