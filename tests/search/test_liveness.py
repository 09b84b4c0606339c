"""A worker is dead when its process has gone, or where that cannot be seen, when it is silent."""

from __future__ import annotations

import subprocess
import sys
import time

from shrink.search import liveness
from shrink.search.liveness import is_dead, name_of_this_worker


def name_of(process: subprocess.Popen[str]) -> str:
    """Return the name that a process gives itself, once it has."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def start() -> subprocess.Popen[str]:
    code = (
        "from shrink.search.liveness import name_of_this_worker\n"
        "print(name_of_this_worker(), flush=True)\n"
        "input()"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_a_process_of_this_machine_lives_until_it_ends_however_long_it_is_silent() -> None:
    with start() as process:
        name = name_of(process)
        assert not is_dead(name, 0.0)
        process.communicate("\n")
        assert is_dead(name, time.time())


def test_a_process_that_got_the_number_of_another_is_another() -> None:
    place, pid, started, rest = name_of_this_worker().rsplit(":", 3)
    assert not is_dead(f"{place}:{pid}:{started}:{rest}", 0.0)
    assert is_dead(f"{place}:{pid}:{int(started) - 1}:{rest}", time.time())


def test_process_ids_of_another_namespace_or_an_earlier_start_say_nothing() -> None:
    place, _, started, rest = name_of_this_worker().rsplit(":", 3)
    boot, namespace = place.split("/")
    for other in (f"{boot}/{int(namespace) + 1}", f"another/{namespace}"):
        name = f"{other}:999999999:{started}:{rest}"
        assert not is_dead(name, time.time())
        assert is_dead(name, time.time() - 1.1 * liveness._DEAD_AFTER_S)


def test_two_workers_of_one_process_have_names_of_their_own() -> None:
    assert name_of_this_worker() != name_of_this_worker()


def test_a_worker_of_an_earlier_version_is_judged_by_its_silence() -> None:
    for name in ("host:1:0123abcd", "host", ""):
        assert not is_dead(name, time.time())
        assert is_dead(name, 0.0)
