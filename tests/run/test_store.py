"""The store gives back exactly what was put in, or nothing."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shrink.base import files
from shrink.contract.result import StepResult
from shrink.run.store import Store


@pytest.fixture
def warnings() -> list[str]:
    return []


@pytest.fixture
def store(tmp_path: Path, warnings: list[str]) -> Store:
    return Store(tmp_path / "store", warnings.append)


def add(store: Store, key: str = "k1", content: str = "model") -> Path:
    with store.work_folder() as work:
        (work / "model.keras").write_text(content, encoding="utf-8")
        (work / "scores.json").write_text("{}", encoding="utf-8")
        produced = {"artifact": work / "model.keras", "scores": work / "scores.json"}
        return store.add(key, StepResult(examples=15), produced).files["artifact"]


def test_find_returns_what_add_took(store: Store, warnings: list[str]) -> None:
    add(store)
    found = store.find("k1")
    assert found is not None
    assert found.result == StepResult(examples=15)
    assert found.files["artifact"].read_text(encoding="utf-8") == "model"
    assert found.files["artifact"].suffix == ".keras"
    assert store.find("other") is None
    assert warnings == []


def test_find_warns_and_misses_when_a_file_was_tampered_with(
    store: Store, warnings: list[str]
) -> None:
    add(store).write_text("MODEL", encoding="utf-8")
    assert store.find("k1") is None
    assert "corrupt" in warnings[0]
    add(store)
    found = store.find("k1")
    assert found is not None
    assert found.files["artifact"].read_text(encoding="utf-8") == "model"


@pytest.mark.parametrize("damage", ["gone", "truncated", "not json", "figure", "list"])
def test_find_warns_and_misses_when_the_manifest_is_damaged(
    store: Store, warnings: list[str], damage: str
) -> None:
    artifact = add(store)
    manifest = store.root / "steps" / "k1.json"
    text = manifest.read_text(encoding="utf-8")
    damaged = {
        "truncated": text[:40],
        "not json": "\x00\xff",
        "figure": text.replace('"examples": 15', '"examples": 95'),
        "list": "[]",
    }
    if damage == "gone":
        artifact.unlink()
    else:
        manifest.write_text(damaged[damage], encoding="utf-8")
    assert store.find("k1") is None
    assert len(warnings) == 1


def test_add_shares_equal_files(store: Store) -> None:
    assert add(store, "k1") == add(store, "k2")


def test_sweep_removes_dead_work_and_keeps_live_work(store: Store) -> None:
    dead = store.root / "work" / "dead"
    dead.mkdir()
    (dead / ".lock").touch()
    torn = store.root / "steps" / f"{files.TEMPORARY_PREFIX}x"
    torn.mkdir()
    with store.work_folder() as live:
        store.sweep()
        assert live.is_dir()
    assert not dead.exists()
    assert not torn.exists()
    assert list((store.root / "work").iterdir()) == []


def _count_up(root: Path, rounds: int) -> None:
    store = Store(root, lambda text: None)
    counter = root / "counter"
    for _ in range(rounds):
        with store.lock("counter"):
            value = int(counter.read_text(encoding="utf-8"))
            counter.write_text(str(value + 1), encoding="utf-8")


def test_lock_serialises_eight_processes(store: Store) -> None:
    (store.root / "counter").write_text("0", encoding="utf-8")
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_count_up, args=(store.root, 25)) for _ in range(8)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert (store.root / "counter").read_text(encoding="utf-8") == "200"


_ADD_FOREVER = """
import sys
from pathlib import Path
from shrink.contract.result import StepResult
from shrink.run.store import Store
store = Store(Path(sys.argv[1]), print)
for n in range(10**6):
    with store.work_folder() as work:
        (work / "a.bin").write_bytes(bytes([n % 256]) * 20000)
        store.add(f"k{n}", StepResult(examples=n), {"artifact": work / "a.bin"})
"""


def test_add_leaves_only_whole_entries_when_killed(store: Store, warnings: list[str]) -> None:
    for round_ in range(8):
        process = subprocess.Popen([sys.executable, "-c", _ADD_FOREVER, str(store.root)])
        deadline = time.monotonic() + 20
        while not list((store.root / "steps").glob("*.json")) and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.013 * round_)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        store.sweep()
        manifests = list((store.root / "steps").iterdir())
        assert manifests
        for manifest in manifests:
            entry = json.loads(manifest.read_text(encoding="utf-8"))
            found = store.find(manifest.stem)
            assert found is not None
            content = found.files["artifact"].read_bytes()
            assert content == bytes([entry["result"]["examples"] % 256]) * 20000
    assert warnings == []
    assert list((store.root / "work").iterdir()) == []
