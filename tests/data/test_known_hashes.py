from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from shrink.data.fingerprint import KnownHashes, read_known_hashes

NAMES = ["a.png", "b.png", "größe.png"]


def _digest(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


def _known() -> KnownHashes:
    known = KnownHashes()
    for name in NAMES:
        known.add(name, f"stamp of {name}", _digest(name))
    return known


@pytest.mark.parametrize("order", [NAMES, NAMES[::-1], NAMES[1:], [*NAMES, *NAMES]])
def test_find_returns_what_was_added_when_read_again(tmp_path: Path, order: list[str]) -> None:
    (tmp_path / "memory").write_bytes(_known().content())
    known = read_known_hashes(tmp_path / "memory")
    assert [known.find(name, f"stamp of {name}") for name in order] == [_digest(n) for n in order]


@pytest.mark.parametrize(
    ("name", "stamp"), [("c.png", "stamp of a.png"), ("a.png", "other"), ("a.png", None)]
)
def test_find_returns_none_when_the_file_is_another(name: str, stamp: str | None) -> None:
    assert _known().find(name, stamp) is None


def test_find_returns_none_when_nothing_tells_the_version() -> None:
    known = KnownHashes()
    known.add("a.png", None, _digest("a.png"))
    assert known.find("a.png", "any") is None


def test_put_replaces_a_digest() -> None:
    known = _known()
    known.put(1, _digest("new"))
    assert known.digests == _digest("a.png") + _digest("new") + _digest("größe.png")


def test_read_known_hashes_takes_nothing_from_a_damaged_file(tmp_path: Path) -> None:
    content = _known().content()
    for damaged in (content[:-1], content[:-56], b"", content[:40] + b"\0" + content[41:]):
        (tmp_path / "memory").write_bytes(damaged)
        assert len(read_known_hashes(tmp_path / "memory")) == 0
