"""Runs shrink: as a user does, or in children of a process that has TensorFlow imported.

The second saves the import for each of hundreds of workers; everything else is the same code in
the same order, each step in a process of its own. It leaves out the figures that no oracle can
recompute, memory of inference and latency.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    printed: str


def run_cli(arguments: Sequence[str], cwd: Path, store: Path) -> Done:
    """Run `python -m shrink` in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "shrink", *arguments],
        cwd=cwd,
        env=_environment(store),
        capture_output=True,
        text=True,
        check=False,
    )
    return Done(done.returncode, done.stdout + done.stderr)


def _environment(store: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TF_", "KERAS", "GITHUB_"))}
    path = f"{ROOT}{os.pathsep}{kept.get('PYTHONPATH', '')}".rstrip(os.pathsep)
    return {**kept, "SHRINK_CACHE_DIR": str(store), "NO_COLOR": "1", "PYTHONPATH": path}


class Fork:
    """A process that runs one command after the other, in children that share its imports."""

    def __init__(self, store: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.oracle.drive"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=ROOT,
            env=_environment(store),
        )

    def run(self, arguments: Sequence[str], cwd: Path) -> Done:
        """Run a command; its output goes to `printed.txt` in the folder."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        job = {"arguments": list(map(str, arguments)), "cwd": str(cwd)}
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        printed = (cwd / "printed.txt").read_text(encoding="utf-8", errors="replace")
        return Done(int(line), printed)

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


@contextlib.contextmanager
def forking(store: Path) -> Iterator[Fork]:
    """Yield a `Fork` and end it."""
    fork = Fork(store)
    try:
        yield fork
    finally:
        fork.close()


class _ForkedWorker:
    """Takes the place of `subprocess.Popen` where the parent starts a worker."""

    def __init__(self, command: Sequence[str], **options: Any) -> None:
        self.returncode: int | None = None
        log, kept = options["stdout"].fileno(), options["env"]
        self.pid = os.fork()
        if self.pid:
            return
        code = 70
        try:
            os.setsid()
            os.environ.clear()
            os.environ.update(kept)
            os.dup2(log, 1)
            os.dup2(log, 2)
            from shrink.run import worker

            code = worker.main(list(command[4:]))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def wait(self) -> int:
        """Wait for the end, as `Popen.wait` does."""
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode

    def kill(self) -> None:
        """End it."""
        os.kill(self.pid, signal.SIGKILL)


def _patch() -> None:
    """Import the heavy half, and let workers be forks."""
    from types import SimpleNamespace

    import shrink.run.execute as execute
    from shrink.run import process
    from shrink.stages import STAGES

    for kind in STAGES:
        __import__(f"shrink.stages.{kind}.run")
    held: Any = process
    held.subprocess = SimpleNamespace(Popen=_ForkedWorker, DEVNULL=subprocess.DEVNULL)
    slow: Any = execute
    slow.inference_peak_bytes = lambda *_, **__: (None, "not measured here")
    slow.latency = lambda *_, **__: {"p50_ms": None, "p90_ms": None, "threads": 1}


def _serve() -> None:
    _patch()
    for line in sys.stdin:
        code = _one(json.loads(line))
        sys.stdout.write(f"{code}\n")
        sys.stdout.flush()


def _one(job: Mapping[str, Any]) -> int:
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 70
    try:
        os.chdir(job["cwd"])
        with Path("printed.txt").open("wb") as out:
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
        sys.argv = ["shrink", *job["arguments"]]
        from shrink.cli import main

        code = _exit_code(main)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _exit_code(main: Any) -> int:
    try:
        returned = main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(bool(end.code))
    return int(returned or 0)


if __name__ == "__main__":
    _serve()
