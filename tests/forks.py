"""Runs shrink, or a function, in children of a process that has TensorFlow imported.

That saves two imports for each command, its own and its worker's; all else is the same code in the
same order, and each step still has a process of its own. Run as `python -m tests.forks`.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

from tests import counts, runtimes

ROOT = Path(__file__).resolve().parents[1]
_CRASHED = 70
_RESULT = "RESULT"
_AT_IMPORT = {"TF_USE_LEGACY_KERAS": "1", "TF_ENABLE_ONEDNN_OPTS": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}
"""What TensorFlow reads when it is imported, as workers have it."""
ARENA, INFERENCE = "arena_of", "measure_inference"
MEASURED = (ARENA, INFERENCE)
"""What takes processes to measure of an artifact. Tests that do not read it leave it out."""


def run(
    arguments: Sequence[str],
    cwd: Path,
    env: Mapping[str, str],
    measured: Collection[str] = (),
) -> subprocess.CompletedProcess[str]:
    """Run `shrink` with these arguments and exactly this environment.

    Args:
        arguments: the words after `shrink`.
        cwd: where to run it.
        env: the whole environment.
        measured: of `MEASURED`, what to measure of artifacts.
    """
    return run_together([arguments], cwd, env, measured=measured)[0]


def run_together(
    commands: Sequence[Sequence[str]],
    cwd: Path,
    env: Mapping[str, str],
    *,
    measured: Collection[str] = (),
    **more: int,
) -> list[subprocess.CompletedProcess[str]]:
    """Run several commands at the same time; see `run`.

    Args:
        commands: their words.
        cwd: where to run them.
        env: the whole environment.
        measured: of `MEASURED`, what to measure of artifacts.
        more: `file_bytes`, which no file may exceed; `interrupt`, a signal for each command once
            it has trained for an epoch.
    """
    words = [[*map(str, arguments)] for arguments in commands]
    told = {"measured": [*measured], **more}
    ended = _children([{"arguments": each, **told} for each in words], cwd, env)
    return [
        subprocess.CompletedProcess(arguments, *each)
        for arguments, each in zip(words, ended, strict=True)
    ]


def call(
    module: str,
    function: str,
    *,
    environment: Mapping[str, str] | None = None,
    measured: Collection[str] = (),
    **arguments: Any,
) -> Any:
    """Return what `module.function(**arguments)` returns as JSON in a process of its own.

    Args:
        module: imported there.
        function: of the module.
        environment: more of it; not what TensorFlow reads when it is imported.
        measured: of `MEASURED`, what to measure of artifacts.
        arguments: the function's.

    Raises:
        RuntimeError: it ended in another way; says what it printed.
    """
    job = {
        "module": module,
        "function": function,
        "arguments": arguments,
        "measured": [*measured],
    }
    ((code, out, err),) = _children([job], ROOT, {**os.environ, **(environment or {})})
    if code != 0:
        raise RuntimeError(f"exit {code}\n{out[-2000:]}\n{err[-6000:]}")
    return json.loads(out.rsplit(_RESULT, 1)[1])


def _children(
    jobs: Sequence[Mapping[str, Any]], cwd: Path, env: Mapping[str, str]
) -> list[tuple[int, str, str]]:
    """Return exit code, stdout and stderr of each job, which run at the same time."""
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    with tempfile.TemporaryDirectory() as folder:
        places = [Path(folder, str(number)) for number in range(len(jobs))]
        for place in places:
            place.mkdir()
        told = [
            {**job, "cwd": str(cwd), "env": dict(env), "printed": str(place)}
            for job, place in zip(jobs, places, strict=True)
        ]
        server.stdin.write(json.dumps(told) + "\n")
        server.stdin.flush()
        answer = server.stdout.readline()
        assert answer, "the process that forks has ended: run `python -m tests.forks`"
        return [
            (code, *((place / name).read_text("utf-8") for name in ("out", "err")))
            for code, place in zip(json.loads(answer), places, strict=True)
        ]


@functools.cache
def _server() -> subprocess.Popen[str]:
    """Start the process that forks; it ends with the one that asked for it."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TF_", "KERAS", "GITHUB_"))}
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.forks"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
        env={**kept, **_AT_IMPORT},
    )
    atexit.register(server.communicate)
    return server


_WORKER = "shrink.run.worker"


def _start(command: Sequence[str], **options: Any) -> Any:
    """Take the place of `subprocess.Popen` where shrink starts a child."""
    known = command[3] == _WORKER
    return _ForkedWorker(command, **options) if known else subprocess.Popen(command, **options)


class _ForkedWorker:
    """Takes the place of a worker's process."""

    def __init__(self, command: Sequence[str], **options: Any) -> None:
        self.returncode: int | None = None
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid:
            return
        code = _CRASHED
        try:
            os.setsid()
            _become(options["env"], options["stdout"], options["stderr"])
            os.dup2(options["stdin"], 0)
            sys.argv = list(command[3:])
            warnings.simplefilter("ignore")
            from shrink.run import worker

            worker.main()
        except SystemExit as end:
            code = int(end.code or 0)
        except BaseException:
            _crash()
        os._exit(code)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, as `Popen.wait` does."""
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode

    def poll(self) -> int | None:
        """Say whether it has ended, as `Popen.poll` does."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
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
    from shrink import cli
    from shrink.base import child as children
    from shrink.cli import app
    from shrink.contract.report_file import read_report
    from shrink.measure import inference
    from shrink.recipe import schema
    from shrink.report.run_files import render
    from shrink.run import process, worker
    from shrink.stages import STAGES

    heavy = {place.partition(":")[0] for _, place in worker.ACTIONS.values()}
    families = {f"shrink.cli.{family}" for family, _ in app.COMMANDS.values()}
    stages = {f"shrink.stages.{kind}.run" for kind in STAGES}
    lazy = ("shrink.run.session", "yaml")
    for name in (*heavy.difference({"shrink.tools.trackers"}), *stages, *families, *lazy):
        importlib.import_module(name)
    # Made for the words of one command: the next import makes it anew.
    del sys.modules[app.__name__], vars(cli)["app"]
    schema.describe_fields()
    render(read_report(ROOT / "tests/report/saved/chain.json"), {})
    # Tests kill processes, not machines, and compare no latencies.
    os.fsync = lambda fd: None
    vars(inference)["LEAST_S"] = 0.0
    counts.install()
    runtimes.install()
    runtimes.server()  # for all forks
    # Workers are forks already: of the command that asks for them.
    commands: Any = process
    commands.preload = lambda: None
    held: Any = children
    held.subprocess = SimpleNamespace(Popen=_start, TimeoutExpired=subprocess.TimeoutExpired)
    gc.freeze()
    gc.enable()
    gc.set_threshold(50_000, 20, 50)
    for line in sys.stdin:
        codes = [os.waitpid(child, 0)[1] for child in [_child(job) for job in json.loads(line)]]
        sys.stdout.write(json.dumps([os.waitstatus_to_exitcode(code) for code in codes]) + "\n")
        sys.stdout.flush()


def _child(job: Mapping[str, Any]) -> int:
    """Start a job, and interrupt it where it says so; return its process id."""
    child = os.fork()
    if not child:
        _work(job)
    if (number := job.get("interrupt")) is not None:
        printed, deadline = Path(job["printed"]) / "err", time.monotonic() + 120
        while not printed.exists() or b"epoch " not in printed.read_bytes():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        os.kill(child, number)
    return child


def _work(job: Mapping[str, Any]) -> NoReturn:
    """Call a function, or run one command as `python -m shrink` does, and end this process."""
    try:
        os.chdir(job["cwd"])
        printed = Path(job["printed"])
        with (printed / "out").open("wb") as out, (printed / "err").open("wb") as err:
            _become(job["env"], out.fileno(), err.fileno())
        places = [place for place in job["env"].get("PYTHONPATH", "").split(os.pathsep) if place]
        sys.path[:0] = [place for place in places if place not in sys.path]
        if (most := job.get("file_bytes")) is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        _leave_out(set(MEASURED).difference(job["measured"]))
        if "function" in job:
            function = getattr(importlib.import_module(job["module"]), job["function"])
            sys.stdout.write(_RESULT + json.dumps(function(**job["arguments"])))
        else:
            _command(job["arguments"])
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(bool(end.code))
    except BaseException:
        _crash()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _leave_out(figures: Collection[str]) -> None:
    """Have some figures of artifacts not measured in this process and its forks."""
    from shrink.base.measurement import Measured
    from shrink.measure.inference import Inference
    from shrink.run import measurement as measured
    from shrink.tflite.arena import ArenaFigure
    from shrink.tflite.memory import planned_bytes
    from shrink.tflite.model import read_file

    reason = "not measured in this test"
    unknown = Measured[float](None, reason)
    answers: dict[str, Any] = {
        ARENA: lambda path: ArenaFigure(None, reason, planned_bytes(read_file(path)[0])),
        INFERENCE: lambda *_, **__: Inference(unknown, unknown, Measured(None, reason)),
    }
    for name in figures:
        assert name in vars(measured)
        vars(measured)[name] = answers[name]


def _command(arguments: Sequence[str]) -> None:
    sys.argv = ["shrink", *arguments]
    from shrink.cli import main

    main()


if __name__ == "__main__":
    _serve()
