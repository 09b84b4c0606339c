"""The store gives back exactly what was put in, or nothing; checkpoints stay while of use."""

from __future__ import annotations

import json
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
    manifest = artifact.with_name("manifest.json")
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


def test_entries_with_the_same_file_share_it(store: Store) -> None:
    first = store.add("k1", StepResult(), {"artifact": add(store, "k0")})
    again = store.add("k2", StepResult(), first.files)
    assert again.files["artifact"].samefile(first.files["artifact"])


def test_a_file_that_later_runs_use_does_not_keep_its_step(store: Store) -> None:
    file = add(store)
    store.keep(file)
    old = time.time() - 100 * 24 * 3600
    for path in (*store.root.rglob("k1/*"), store.root / "steps" / "k1", store.kept(file.name)):
        os.utime(path, (old, old))
    store.kept(file.name)
    store.sweep()
    assert not file.exists()
    assert store.kept(file.name).read_text(encoding="utf-8") == "model"


def test_sweep_removes_a_step_that_was_never_finished(store: Store) -> None:
    whole, torn = add(store), store.root / "steps" / "torn" / "ab.keras"
    torn.parent.mkdir()
    torn.touch()
    store.sweep()
    assert (whole.exists(), torn.exists()) == (True, False)


def test_sweep_removes_dead_work_and_keeps_live_work(store: Store) -> None:
    dead = store.root / "work" / f"{files.TEMPORARY_PREFIX}dead"
    dead.mkdir()
    torn = [
        folder / f"{files.TEMPORARY_PREFIX}x"
        for folder in (add(store).parent, store.root / "inputs" / "abc", store.root / "timings")
    ]
    for one in torn:
        one.mkdir(parents=True)
    with store.work_folder() as live:
        store.sweep()
        assert live.is_dir()
    assert not any(one.exists() for one in (dead, *torn))
    assert list((store.root / "work").iterdir()) == []


def test_sweep_leaves_work_alone_while_another_machine_writes(store: Store) -> None:
    # A lock of a folder is not seen by other machines: those hold the lock of writers.
    theirs = store.root / "work" / f"{files.TEMPORARY_PREFIX}theirs"
    theirs.mkdir()
    with store.in_use():
        store.sweep()
        assert theirs.is_dir()
    store.sweep()
    assert not theirs.exists()


_COUNT_UP = """
import sys
from pathlib import Path
from shrink.run.store import Store
store = Store(Path(sys.argv[1]), print)
counter = store.root / "counter"
for _ in range(25):
    with store.lock("counter"):
        counter.write_text(str(int(counter.read_text()) + 1))
"""


def test_lock_serialises_eight_processes(store: Store) -> None:
    (store.root / "counter").write_text("0", encoding="utf-8")
    command = [sys.executable, "-c", _COUNT_UP, str(store.root)]
    processes = [subprocess.Popen(command) for _ in range(8)]
    assert [process.wait() for process in processes] == [0] * 8
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
        while (
            not list((store.root / "steps").glob("*/manifest.json")) and time.monotonic() < deadline
        ):
            time.sleep(0.01)
        time.sleep(0.013 * round_)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        store.sweep()
        manifests = list((store.root / "steps").iterdir())
        assert manifests
        for manifest in manifests:
            entry = json.loads((manifest / "manifest.json").read_text(encoding="utf-8"))
            found = store.find(manifest.name)
            assert found is not None
            content = found.files["artifact"].read_bytes()
            assert content == bytes([entry["result"]["examples"] % 256]) * 20000
    assert warnings == []
    assert list((store.root / "work").iterdir()) == []


EIGHT_DAYS_S = 8 * 24 * 3600


def write_checkpoint(store: Store, key: str) -> Path:
    file = store.checkpoints(key) / "1" / "checkpoint.json"
    file.parent.mkdir(parents=True)
    file.write_text("{}", encoding="utf-8")
    return file


def age(file: Path, root: Path) -> None:
    long_ago = time.time() - EIGHT_DAYS_S
    for path in (file, *(p for p in file.parents if p.is_relative_to(root))):
        os.utime(path, (long_ago, long_ago))


def test_sweep_keeps_the_checkpoints_of_a_run_that_died(tmp_path: Path) -> None:
    store = Store(tmp_path, lambda text: None)
    file = write_checkpoint(store, "a" * 64)
    store.sweep()
    assert file.exists()


def test_sweep_removes_checkpoints_of_finished_and_of_forgotten_steps(tmp_path: Path) -> None:
    store = Store(tmp_path, lambda text: None)
    finished, forgotten = write_checkpoint(store, "b" * 64), write_checkpoint(store, "c" * 64)
    artifact = tmp_path / "artifact.bin"
    artifact.write_bytes(b"1")
    store.add("b" * 64, StepResult(), {"artifact": artifact})
    age(forgotten, store.checkpoints("c" * 64))
    store.sweep()
    assert not finished.parent.parent.exists()
    assert not forgotten.parent.parent.exists()


def test_sweep_leaves_checkpoints_alone_while_a_run_may_write(tmp_path: Path) -> None:
    store = Store(tmp_path, lambda text: None)
    forgotten = write_checkpoint(store, "d" * 64)
    age(forgotten, store.checkpoints("d" * 64))
    with store.in_use():
        store.sweep()
    assert forgotten.exists()


def test_remove_checkpoints_forgets_one_step_only(tmp_path: Path) -> None:
    store = Store(tmp_path, lambda text: None)
    one, other = write_checkpoint(store, "e" * 64), write_checkpoint(store, "f" * 64)
    store.remove_checkpoints("e" * 64)
    assert (one.exists(), other.exists()) == (False, True)


def test_sweep_forgets_sensitivities_and_teachers_that_were_not_used_for_long(
    tmp_path: Path,
) -> None:
    store = Store(tmp_path, lambda text: None)
    used, forgotten = store.sensitivities / "a.json", store.sensitivities / "b.json"
    teacher = store.teachers / "c" / "rows.bin"
    teacher.parent.mkdir()
    for file in (used, forgotten, teacher):
        file.write_text("{}", encoding="utf-8")
    age(forgotten, store.sensitivities)
    age(teacher, store.teachers)
    store.sweep()
    assert used.exists()
    assert not forgotten.exists()
    assert not teacher.parent.exists()


def test_alias_checkpoints_lets_a_step_go_on_under_the_key_that_it_has_by_now(
    tmp_path: Path,
) -> None:
    store = Store(tmp_path, lambda text: None)
    begun = write_checkpoint(store, "e" * 64)
    store.alias_checkpoints("f" * 64, "e" * 64)
    store.sweep()
    assert (store.checkpoints("f" * 64) / "1" / begun.name).exists()
    store.remove_checkpoints("f" * 64)
    assert list((tmp_path / "checkpoints").iterdir()) == []


def test_sweep_removes_the_name_of_checkpoints_that_are_gone(tmp_path: Path) -> None:
    store = Store(tmp_path, lambda text: None)
    write_checkpoint(store, "e" * 64)
    store.alias_checkpoints("f" * 64, "e" * 64)
    store.remove_checkpoints("e" * 64)
    store.sweep()
    assert list((tmp_path / "checkpoints").iterdir()) == []
