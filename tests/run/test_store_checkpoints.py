"""Checkpoints in the store: kept while they may be of use, swept afterwards."""

from __future__ import annotations

import os
import time
from pathlib import Path

from shrink.contract.result import StepResult
from shrink.run.store import Store

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
