"""Runs shrink in children of a process that has TensorFlow imported.

That saves two imports for each command, its own and its worker's; all else is the same code in the
same order, and each step still has a process of its own. Run as `python -m tests.cli.forks`.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parents[2]
_CRASHED = 70
_AT_IMPORT = {"TF_USE_LEGACY_KERAS": "1", "TF_ENABLE_ONEDNN_OPTS": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}
"""What TensorFlow reads when it is imported, as workers have it."""


def run(
    arguments: Sequence[str],
    cwd: Path,
    env: Mapping[str, str],
    *,
    prepare: str = "",
) -> subprocess.CompletedProcess[str]:
    """Run `shrink` with these arguments and exactly this environment.

    Args:
        arguments: the words after `shrink`.
        cwd: where to run it.
        env: the whole environment.
        prepare: a function, `module:name`, that the child calls before it begins.
    """
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    with tempfile.TemporaryDirectory() as folder:
        job = {"arguments": [*map(str, arguments)], "cwd": str(cwd), "env": dict(env)}
        server.stdin.write(json.dumps({**job, "prepare": prepare, "printed": folder}) + "\n")
        server.stdin.flush()
        answer = server.stdout.readline()
        assert answer, "the process that forks has ended: run `python -m tests.cli.forks`"
        code = int(answer)
        out, err = (Path(folder, name).read_text("utf-8") for name in ("out", "err"))
    return subprocess.CompletedProcess(arguments, code, out, err)


@functools.cache
def _server() -> subprocess.Popen[str]:
    """Start the process that forks; it ends with the one that asked for it."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TF_", "KERAS", "GITHUB_"))}
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.cli.forks"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
        env={**kept, **_AT_IMPORT},
    )
    atexit.register(server.communicate)
    return server


class _ForkedWorker:
    """Takes the place of `subprocess.Popen` where the parent starts a worker."""

    def __init__(self, command: Sequence[str], **options: Any) -> None:
        self.returncode: int | None = None
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid:
            return
        log = options["stdout"].fileno()
        try:
            os.setsid()
            _become(options["env"], log, log)
            warnings.simplefilter("ignore")
            from shrink.run import worker

            code = worker.main(list(command[4:]))
        except BaseException:
            _crash()
        os._exit(code)

    def wait(self) -> int:
        """Wait for the end, as `Popen.wait` does."""
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode


def _become(env: Mapping[str, str], out: int, err: int) -> None:
    """Take what a fresh process would have got: environment, streams, signals."""
    os.environ.clear()
    os.environ.update(env)
    tempfile.tempdir = None
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(out, 1)
    os.dup2(err, 2)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def _crash() -> NoReturn:
    traceback.print_exc()
    sys.stderr.flush()
    os._exit(_CRASHED)


def _serve() -> None:
    gc.disable()
    from shrink.run import process, worker
    from shrink.stages import STAGES

    trackers = ("shrink.tools.tensorboard", "shrink.tools.mlflow_runs")
    heavy = {place.partition(":")[0] for _, place in worker.ACTIONS.values()}
    for name in (*heavy.difference(trackers), *(f"shrink.stages.{kind}.run" for kind in STAGES)):
        importlib.import_module(name)
    held: Any = process
    held.subprocess = SimpleNamespace(Popen=_ForkedWorker, DEVNULL=subprocess.DEVNULL)
    gc.freeze()
    gc.enable()
    for line in sys.stdin:
        child = os.fork()
        if not child:
            _command(json.loads(line))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        sys.stdout.write(f"{code}\n")
        sys.stdout.flush()


def _command(job: Mapping[str, Any]) -> NoReturn:
    """Run one command, as `python -m shrink` does, and end this process."""
    try:
        os.chdir(job["cwd"])
        printed = Path(job["printed"])
        with (printed / "out").open("wb") as out, (printed / "err").open("wb") as err:
            _become(job["env"], out.fileno(), err.fileno())
        if job["prepare"]:
            module, _, name = job["prepare"].partition(":")
            getattr(importlib.import_module(module), name)()
        sys.argv = ["shrink", *job["arguments"]]
        from shrink.cli import main

        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(bool(end.code))
    except BaseException:
        _crash()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _serve()
