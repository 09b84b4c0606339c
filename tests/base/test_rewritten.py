"""A line that is written over again, in notebooks."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import pytest

from shrink.base.console import Console
from shrink.base.progress import Phase, Progress
from shrink.base.rewritten import RewrittenLine, in_notebook


class ZMQInteractiveShell:
    """Stands for the shell of a notebook's kernel."""


def test_a_line_is_written_over_and_taken_away() -> None:
    stream, times = io.StringIO(), iter([0.0, 0.1, 0.3])
    line = RewrittenLine(stream, lambda: next(times))
    for text in ("epoch 1 of 10", "too early", "epoch 2"):
        line.write(lambda width, text=text: text[:width])  # type: ignore[misc]
    line.clear()
    line.clear()
    assert stream.getvalue() == "\repoch 1 of 10\repoch 2      \r" + " " * 7 + "\r"


@pytest.mark.parametrize(
    ("shell", "expected"), [(None, False), (object(), False), (ZMQInteractiveShell(), True)]
)
def test_a_notebook_is_known_by_its_shell(
    shell: object, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert in_notebook() is expected


def test_a_console_in_a_notebook_moves_on_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = SimpleNamespace(get_ipython=ZMQInteractiveShell)
    monkeypatch.setitem(sys.modules, "IPython", shell)
    console = Console()
    console.stage_started("train", 1, 2)
    console.show(Phase("loading"))
    console.show(Progress(1, 3, 10, 10, epoch_end=True))
    console.say("a word")
    console.stage_ended("train", 1, 2, "done in 1.0 s")
    printed = capsys.readouterr()
    assert printed.out == ""
    first, *rest = printed.err.split("\r")
    assert first == ""
    assert rest[0].startswith("[1/2] train")
    assert "loading" in rest[0]
    assert printed.err.endswith("\ra word\n[1/2] train: done in 1.0 s\n")
    quiet = Console(quiet=True)
    quiet.stage_started("train", 1, 2)
    quiet.show(Phase("loading"))
    assert capsys.readouterr().err == ""
