"""Flags of `shrink run` that say what is computed, on one finished run shared by all tests."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from shrink.base.files import TEMPORARY_PREFIX
from tests.cli.conftest import FinishedRun
from tests.cli.shell import read_report, shrink, stage
from tests.forks import ARENA

LOOSE = ("--set", "gates.tflite_bytes=1MB")


def run(
    finished: FinishedRun, folder: Path, *flags: str, expect: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run the finished run's recipe again, into another folder."""
    words = [*finished.into(folder), *LOOSE, *flags]
    store = finished.store
    if {"--from", "--no-cache"} & set(flags) and "--dry-run" not in flags:
        store = own_copy(store, folder.parent / "store")
    return shrink(*words, cwd=folder.parent, store=store, expect=expect, measured=[ARENA])


def own_copy(store: Path, target: Path) -> Path:
    """Copy what a store holds, so that computing it anew changes nothing for other tests."""
    passing = shutil.ignore_patterns("work", "locks", "checkpoints", f"{TEMPORARY_PREFIX}*")
    return Path(shutil.copytree(store, target, ignore=passing, dirs_exist_ok=True))


def rows(finished: FinishedRun, folder: Path, *flags: str) -> dict[str, str]:
    """Return what a dry run says of each stage."""
    found: list[dict[str, Any]] = json.loads(
        run(finished, folder, "--dry-run", "--json", *flags).stdout
    )
    return {row["name"]: row["status"] for row in found}


def statuses(folder: Path) -> dict[str, str]:
    return {entry["name"]: entry["status"] for entry in read_report(folder)["stages"]}


def test_until_reports_and_judges_what_ran(finished: FinishedRun, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    run(finished, folder, "--until", "distill")
    report = read_report(folder)
    assert statuses(folder) == {"train": "cached", "distill": "cached"}
    assert report["finals"] == ["distill"]
    assert report["passed"] is True
    gates = {gate["name"]: gate for gate in report["gates"]}
    peaks = [entry["memory"]["training_peak_bytes"] for entry in report["stages"]]
    assert gates["training_peak_bytes"]["value"] == max(peaks)
    assert (gates["tflite_bytes"]["stage"], gates["tflite_bytes"]["value"]) == ("quantize", None)
    assert (gates["tflite_bytes"]["judged"], gates["tflite_bytes"]["level"]) == (False, "warn")
    names = sorted(path.name for path in (folder / "artifacts").iterdir())
    assert names == ["00-train.keras", "01-distill.keras", "metadata.json"]


def test_until_removes_the_artifacts_that_its_report_does_not_list(
    finished: FinishedRun, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    run(finished, folder)
    (folder / "artifacts" / "notes.txt").write_text("mine", encoding="utf-8")
    run(finished, folder, "--until", "train")
    names = sorted(path.name for path in (folder / "artifacts").iterdir())
    assert names == ["00-train.keras", "metadata.json", "notes.txt"]


def test_until_only_warns_of_a_gate_on_a_later_stage(finished: FinishedRun, tmp_path: Path) -> None:
    gate = "gates.arena_bytes={limit: 64KB, stage: quantize}"
    run(finished, tmp_path / "out", "--until", "prune", "--set", gate)
    report = read_report(tmp_path / "out")
    found = next(gate for gate in report["gates"] if gate["name"] == "arena_bytes")
    assert (found["passed"], found["level"], found["stage"]) == (False, "warn", "quantize")
    assert found["reason"] == "stage quantize is not part of the run"
    assert report["passed"] is True


def test_until_exits_1_when_what_ran_misses_a_gate(finished: FinishedRun, tmp_path: Path) -> None:
    limit = ("--set", "gates.tflite_bytes={limit: 1KB, stage: train}")
    run(finished, tmp_path / "out", "--until", "train", *limit, expect=1)
    assert read_report(tmp_path / "out")["passed"] is False


def test_until_leaves_later_stages_unknown_to_the_next_preview(
    finished: FinishedRun, tmp_path: Path
) -> None:
    run(finished, tmp_path / "out", "--until", "train")
    plan = json.loads((tmp_path / "out" / "plan.json").read_text(encoding="utf-8"))
    assert list(plan) == ["train"]


def test_from_computes_that_stage_and_takes_those_before(
    finished: FinishedRun, tmp_path: Path
) -> None:
    run(finished, tmp_path / "out", "--from", "quantize")
    assert list(statuses(tmp_path / "out").values()) == ["cached", "cached", "cached", "done"]
    before, after = read_report(finished.folder), read_report(tmp_path / "out")
    for name in ("train", "distill", "prune"):
        assert stage(before, name)["sha256"] == stage(after, name)["sha256"]
    assert stage(before, "quantize")["metrics"] == stage(after, "quantize")["metrics"]


def test_from_and_no_cache_force_the_stages_they_name(
    finished: FinishedRun, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    every = ["train", "distill", "prune", "quantize"]
    assert rows(finished, folder) == dict.fromkeys(every, "cached")
    assert rows(finished, folder, "--no-cache") == dict.fromkeys(every, "compute")
    assert list(rows(finished, folder, "--from", "prune").values()) == [
        "cached", "cached", "compute", "compute",
    ]  # fmt: skip
    one = rows(finished, folder, "--from", "distill", "--until", "distill")
    assert one == {"train": "cached", "distill": "compute"}


def test_force_takes_a_folder_of_other_files_and_keeps_them(
    finished: FinishedRun, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "thesis.tex").write_text("mine", encoding="utf-8")
    refused = run(finished, folder, "--until", "train", expect=2)
    assert "--force" in refused.stderr
    assert [path.name for path in folder.iterdir()] == ["thesis.tex"]
    run(finished, folder, "--until", "train", "--force")
    assert (folder / "thesis.tex").read_text(encoding="utf-8") == "mine"
    assert statuses(folder) == {"train": "cached"}


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--from", "prun"), ("--from: no stage is called 'prun'", "prune")),
        (("--until", "trian"), ("--until: no stage is called 'trian'", "train")),
        (("--from", "quantize", "--until", "train"), ("--from quantize", "train -> distill")),
    ],
    ids=" ".join,
)
def test_run_refuses_stages_that_it_cannot_stop_at(
    finished: FinishedRun, tmp_path: Path, flags: tuple[str, ...], words: tuple[str, ...]
) -> None:
    for more in ((), ("--dry-run",)):
        done = run(finished, tmp_path / "out", *flags, *more, expect=2)
        assert all(word in done.stderr for word in words)
    assert not (tmp_path / "out").exists()
