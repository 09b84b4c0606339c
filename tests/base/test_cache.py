"""What is kept between runs is found, counted once, and goes by age and size."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import pytest

from shrink.base import cache
from shrink.base.cache import FAILED_LOGS
from shrink.contract.result import StepResult
from shrink.run.store import Store
from shrink.run.supervisor import keep_log

DAY_S = 24 * 3600


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("SHRINK_CACHE_DIR", str(tmp_path))
    return Store(tmp_path, pytest.fail)


def add(store: Store, key: str, content: str, days: float) -> Path:
    """Add a finished step whose artifact has this content, unused for so long."""
    with store.work_folder() as work:
        (work / "model.keras").write_text(content, encoding="utf-8")
        found = store.add(key, StepResult(), {"artifact": work / "model.keras"}).files["artifact"]
    age(store.root / "steps" / key, days)
    return found


def age(path: Path, days: float) -> None:
    for one in (path, *path.rglob("*")):
        os.utime(one, (time.time() - days * DAY_S,) * 2)


def manifest_bytes(store: Store, key: str) -> int:
    return (store.root / "steps" / key / "manifest.json").stat().st_size


def test_entries_count_the_files_of_a_step_and_begin_with_the_longest_unused(store: Store) -> None:
    add(store, "new", "n" * 1000, 1)
    add(store, "old", "o" * 10, 5)
    found = cache.entries(store.root)
    assert [(one.kind, one.path.stem) for one in found] == [("steps", "old"), ("steps", "new")]
    assert [one.bytes for one in found] == [
        manifest_bytes(store, "old") + 10,
        manifest_bytes(store, "new") + 1000,
    ]
    assert found[0].unused_s == pytest.approx(5 * DAY_S, abs=60)


def test_a_file_of_two_steps_counts_once_and_stays_while_one_of_them_does(store: Store) -> None:
    shared = add(store, "one", "s" * 1000, 3)
    other = Path(tempfile.mkdtemp(dir=store.root)) / "linked.keras"
    other.hardlink_to(shared)
    twin = store.add("two", StepResult(), {"artifact": other}).files["artifact"]
    other.unlink()
    age(store.root / "steps" / "two", 2)
    one, two = sorted(cache.entries(store.root, ["steps"]), key=lambda entry: entry.path.name)
    both = manifest_bytes(store, "one") + manifest_bytes(store, "two") + 1000
    assert cache.bytes_of([one.path, two.path]) == cache.total_bytes(store.root) == both
    freed = manifest_bytes(store, "one")
    assert cache.remove(store.root, [one]) == freed
    assert store.find("one") is None
    assert store.find("two") is not None
    assert cache.remove(store.root, [two]) == both - freed
    assert not twin.exists()


def test_a_file_that_is_kept_for_later_runs_stays_when_its_step_goes(store: Store) -> None:
    file = add(store, "step", "scores", 1)
    store.keep(file)
    cache.remove(store.root, cache.entries(store.root, ["steps"]))
    assert store.kept(file.name).read_text() == "scores"


def test_outdated_goes_by_age_then_by_size_and_keeps_what_is_small(store: Store) -> None:
    for days, key in ((100, "expired"), (50, "oldest"), (20, "older"), (1, "new")):
        add(store, key, key * 100, days)
    lineage = store.root / "lineages" / "model.json"
    lineage.write_text("{}", encoding="utf-8")
    age(lineage, 300)
    within = manifest_bytes(store, "older") + manifest_bytes(store, "new") + 500 + 300 + 2

    def going(most_bytes: int, unused_s: float | None = None) -> list[str]:
        found = cache.outdated(store.root, unused_s=unused_s, most_bytes=most_bytes)
        return [one.path.stem for one in found]

    assert going(most_bytes=10**9) == ["expired"]
    assert going(most_bytes=within) == ["expired", "oldest"]
    assert going(most_bytes=within - 1) == ["expired", "oldest", "older"]
    assert going(unused_s=10 * DAY_S, most_bytes=10**9) == ["model", "expired", "oldest", "older"]


def test_entries_do_without_what_a_run_removes_meanwhile(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing of a checkpoint's files, one of which is gone when it is asked for its size."""
    folder = store.root / "checkpoints" / "key"
    folder.mkdir()
    (folder / "there").write_bytes(b"123")
    gone = folder / "gone"
    listing, walk = Path.iterdir, Path.rglob
    monkeypatch.setattr(
        Path, "iterdir", lambda path: [*listing(path), *([gone] if path == folder else [])]
    )
    monkeypatch.setattr(
        Path, "rglob", lambda path, name: [*walk(path, name), *([gone] if path == folder else [])]
    )
    (found,) = cache.entries(store.root)
    assert found.bytes == 3
    assert found.unused_s < DAY_S


def test_what_is_used_stays(store: Store) -> None:
    add(store, "used", "u", 100)
    labels = store.root / "labels" / "key.bin"
    labels.write_bytes(b"1")
    age(labels, 100)
    assert store.find("used") is not None
    assert cache.entry_path("labels", "key", ".bin") == labels
    assert cache.outdated(store.root, most_bytes=10**9) == []


def test_logs_of_stages_that_failed_are_known_and_go(store: Store, tmp_path: Path) -> None:
    (tmp_path / "worker.log").write_text("all of it")
    log = keep_log(tmp_path / "worker.log", store.root / FAILED_LOGS / "quantize-ab12.log")
    assert [(one.kind, one.path) for one in cache.entries(store.root)] == [("logs", log)]
    age(log, 31)
    store.sweep()
    assert not log.exists()


def test_sweep_removes_what_expired_once_a_day(store: Store) -> None:
    add(store, "expired", "e", 100)
    with store.in_use():
        store.sweep()
    assert store.contains("expired")
    store.sweep()
    assert not store.contains("expired")
    assert list((store.root / "steps").iterdir()) == []
    add(store, "again", "a", 100)
    store.sweep()
    assert store.contains("again")
    age(store.root / "swept", 2)
    store.sweep()
    assert not store.contains("again")
