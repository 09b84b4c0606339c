from __future__ import annotations

from pathlib import Path

import pytest

from shrink.base.child import run_child


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of the name `toy_child` that runs its second argument as code."""
    (tmp_path / "toy_child.py").write_text("import os, sys, time\nexec(sys.argv[2])\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "toy_child"


def test_run_child_returns_what_was_printed(module: str) -> None:
    run = run_child(module, "print('out'); os.write(2, b'err')", timeout_s=30)
    assert sorted(run.output.split()) == ["err", "out"]
    assert run.failure is None


@pytest.mark.parametrize(
    ("code", "failure"),
    [
        ("os.kill(os.getpid(), 11)", "died by SIGSEGV"),
        ("sys.exit(3)", "ended with code 3 ()"),
        ("raise ValueError('bad shape')", "ended with code 1 (ValueError: bad shape)"),
    ],
)
def test_run_child_tells_how_the_child_ended(module: str, code: str, failure: str) -> None:
    assert run_child(module, code, timeout_s=30).failure == failure


def test_run_child_keeps_the_output_when_the_time_is_up(module: str) -> None:
    run = run_child(module, "print('early', flush=True); time.sleep(60)", timeout_s=1)
    assert run.timed_out
    assert run.output == "early\n"
    assert run.failure == "took longer than 1 s"


def test_run_child_gives_its_process_id_first(module: str) -> None:
    run = run_child(module, "print(int(sys.argv[1]) == os.getppid())", timeout_s=30)
    assert run.output == "True\n"
