"""Two searches share the trials of one journal, and those of one that was killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.api.test_verbs import call
from tests.search.fake import lost_settings

SCHEMES = ("static_wi8_ai8", "float16")
SAMPLES = (10, 20)
RECIPE = f"""
name: shared
model: toy.keras
data: {{source: npz, path: toy.npz}}
stages: [quantize: {{calibration_samples: 15}}]
search:
  space: {{quantize.scheme: [{", ".join(SCHEMES)}], quantize.calibration_samples: [10, 20]}}
"""


def worker(folder: Path, output: str, trials: int) -> subprocess.Popen[str]:
    command = ["search", "shared.yaml", "--storage", "shared.journal", "--trials", str(trials)]
    return subprocess.Popen(
        [sys.executable, "-m", "shrink", *command, "--output", output],
        cwd=folder,
        env={**os.environ, "SHRINK_CACHE_DIR": str(folder / "store"), "NO_COLOR": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def trials_of(folder: Path) -> list[dict[str, Any]]:
    found: dict[str, Any] = json.loads((folder / "search.json").read_text(encoding="utf-8"))
    return list(found["trials"])


@pytest.mark.slow
def test_a_killed_search_loses_no_trial_and_none_is_trained_twice(tmp_path: Path) -> None:
    call("save_toy", tmp_path, tmp_path / "store")
    (tmp_path / "shared.yaml").write_text(RECIPE, encoding="utf-8")
    doomed = worker(tmp_path, "doomed", 100)
    assert doomed.stderr is not None
    seen = ""
    while "[2/2] quantize" not in seen:  # of the second point, in the middle of it
        line = doomed.stderr.readline()
        assert line, seen
        seen = line if line.startswith("trial 1: ") else seen + line if seen else ""
    os.killpg(doomed.pid, signal.SIGKILL)
    doomed.communicate()
    resumed = [worker(tmp_path, name, 100) for name in ("doomed", "b")]
    said = [one.communicate(timeout=300)[1] for one in resumed]
    assert [one.returncode for one in resumed] == [0, 0], said
    trials = max((trials_of(tmp_path / name) for name in ("doomed", "b")), key=len)
    run = [json.dumps(one["settings"], sort_keys=True) for one in trials if one["status"] == "done"]
    assert len(run) == len(set(run))
    stopped = [one for one in trials if one["status"] == "stopped"]
    assert len(stopped) == 1
    assert json.dumps(stopped[0]["settings"], sort_keys=True) in run
    assert lost_settings(tmp_path / "shared.journal") == []
    # At most all settings, and the recipe as it stands, whose 15 examples are none of the space's.
    assert 2 <= len(run) <= len(SCHEMES) * len(SAMPLES) + 1
