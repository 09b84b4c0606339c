"""The environment that every test shares, and the order of the files."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

from tests import counts

# Before any import of TensorFlow: tf-keras is the training substrate, and banners say nothing.
os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
# As workers have it: without, TensorFlow's CPU allocator counts only where there is AVX-512.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "16")

# Tests kill processes, not machines: none waits for the disk.
os.fsync = lambda fd: None

gc.disable()  # until all is imported: see `pytest_collection_finish`

LONGEST_FIRST = (
    "cli/test_run.py",
    "oracle/test_zoo.py",
    "cli/test_bad_environment.py",
    "oracle/test_metamorphic.py",
    "model/keras3/test_convert.py",
    "stages/quantize/test_run.py",
    "engine/test_resume.py",
    "stages/prune/test_channels.py",
    "run/test_kill.py",
    "engine/test_microbatch.py",
    "engine/test_cross_replica.py",
    "cli/test_record.py",
    "cli/test_without_tensorflow.py",
    "api/test_verbs.py",
    "search/test_session.py",
    "compact/test_mutants.py",
    "cli/test_verbs.py",  # waits for the run that test_run makes, too
    "stages/test_settings_in_pairs.py",
    "engine/test_planner.py",
    "run/test_recovery.py",
    "stages/distill/test_run.py",
    "cli/test_flags.py",
    "graph/test_macs.py",
    "test_wheel.py",
    "tflite/test_convert.py",
    "engine/test_fit.py",
    "task/test_detection_recipe.py",
    "report/test_shape.py",
)
"""Files that take seven seconds or more: started last, one would run alone at the end."""


def pytest_configure() -> None:
    """Begin to count; processes of xdist inherit the file."""
    counts.begin()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many trainings, conversions and child processes all tests started."""
    terminalreporter.write_line(f"started: {counts.totals()}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first; a process takes whole files."""
    places = {name: place for place, name in enumerate(LONGEST_FIRST)}
    root = Path(__file__).parent
    items.sort(key=lambda item: places.get(os.path.relpath(item.path, root), len(places)))


def pytest_collection_finish() -> None:
    """Leave what is imported out of every later collection: it was a quarter of the time."""
    from tests import runtimes

    counts.install()
    runtimes.install()
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Exclude what outlives a file's tests from later collections: each conversion has one."""
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()
        gc.freeze()
