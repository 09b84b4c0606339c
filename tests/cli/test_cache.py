"""`shrink cache` shows, prunes and clears what is kept between runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shrink.run.store import Store
from tests.cli.shell import shrink


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return a cache with the labels of two files, 8 and 80 bytes."""
    store = Store(tmp_path, pytest.fail)
    for number in (1, 10):
        (store.root / "labels" / f"{number}.bin").write_bytes(bytes(8 * number))
    return tmp_path


def test_cache_shows_what_there_is(store: Path) -> None:
    shown = shrink("cache", cwd=store, store=store).stdout
    assert "labels of record files" in shown
    assert "88 B" in shown
    document = json.loads(shrink("cache", "--json", cwd=store, store=store).stdout)
    (kind,) = document["kinds"]
    assert (kind["kind"], kind["entries"], kind["bytes"]) == ("labels", 2, 88)
    assert document["bytes"] == 88
    listed = json.loads(shrink("cache", "list", "labels", "--json", cwd=store, store=store).stdout)
    assert sorted(entry["bytes"] for entry in listed["entries"]) == [8, 80]


@pytest.mark.parametrize("words", [[], ["list"], ["prune"], ["clear"]])
def test_cache_of_a_machine_where_nothing_ran_is_empty(tmp_path: Path, words: list[str]) -> None:
    done = shrink("cache", *words, "--json", cwd=tmp_path, store=tmp_path / "none" / "yet")
    found = json.loads(done.stdout)
    assert found.get("kinds", found.get("entries")) == []


def test_cache_removes_only_what_it_was_told_to(store: Path) -> None:
    labels = store / "labels"
    shrink("cache", "prune", "--older-than", "1h", cwd=store, store=store)
    said = shrink("cache", "clear", "--dry-run", cwd=store, store=store).stdout
    assert "2 entries would be removed, 88 B" in said
    shrink("cache", "clear", "teachers", cwd=store, store=store)
    assert len(list(labels.iterdir())) == 2
    done = shrink("cache", "prune", "--older-than", "0h", "--json", cwd=store, store=store)
    assert json.loads(done.stdout)["freed_bytes"] == 88
    assert list(labels.iterdir()) == []


def test_a_dry_run_counts_no_file_that_another_entry_shares(store: Path) -> None:
    (store / "teachers" / "shared.bin").hardlink_to(store / "labels" / "1.bin")
    done = shrink("cache", "clear", "labels", "--dry-run", "--json", cwd=store, store=store)
    assert json.loads(done.stdout)["freed_bytes"] == 80


def test_cache_leaves_all_to_a_run_that_uses_it(store: Path) -> None:
    with Store(store, pytest.fail).in_use():
        done = shrink("cache", "clear", cwd=store, store=store, expect=5)
    assert "a run uses the cache" in done.stderr
    assert len(list((store / "labels").iterdir())) == 2


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["clear", "lables"], "did you mean labels?"),
        (["prune", "--older-than", "3x"], "such as 12h, 30d, 4w"),
        (["prune", "--max-size", "many"], "such as 5GB"),
    ],
)
def test_cache_says_what_is_wrong(store: Path, arguments: list[str], hint: str) -> None:
    assert hint in shrink("cache", *arguments, cwd=store, store=store, expect=2).stderr
