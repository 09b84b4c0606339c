from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shrink.base import file_hashes as module
from shrink.base.cache import cache_root
from shrink.base.errors import DataError
from shrink.data.config import DataConfig
from shrink.data.fingerprint import fingerprint
from shrink.model.user_modules import function_of, imported

LONG_AGO_NS = 1_000_000_000_000_000_000


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHRINK_CACHE_DIR", str(tmp_path / "cache"))
    # Files of a test are always fresh: let them count as settled.
    monkeypatch.setattr(module, "_SETTLED_NS", -(10**15))
    return tmp_path / "cache" / "fingerprints"


def _images(root: Path) -> DataConfig:
    for name in ("cat/1.png", "cat/2.png", "dog/1.png"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    return DataConfig(source="images", path=str(root))


def _read_names(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that fills with the name of each file whose content is read."""
    read: list[str] = []
    original = module.hash_file

    def recorded(path: str) -> str:
        read.append(Path(path).name)
        return original(path)

    monkeypatch.setattr(module, "hash_file", recorded)
    return read


def test_fingerprint_of_npz_depends_on_content_alone(tmp_path: Path) -> None:
    configs = []
    for name, values in (("a", [1, 2]), ("b", [1, 2]), ("c", [1, 3])):
        np.savez(tmp_path / f"{name}.npz", x=values)
        configs.append(DataConfig(source="npz", path=str(tmp_path / f"{name}.npz")))
    one, same, other = map(fingerprint, configs)
    assert one == same
    assert one != other


@pytest.mark.parametrize("change", ["content", "name", "class", "removed", "added"])
def test_fingerprint_of_images_changes_with_them(tmp_path: Path, change: str) -> None:
    config = _images(tmp_path / "data")
    before = fingerprint(config)
    image = tmp_path / "data" / "cat" / "2.png"
    match change:
        case "content":
            image.write_text("cat/3.png")
        case "name":
            image.rename(image.with_name("3.png"))
        case "class":
            image.rename(tmp_path / "data" / "dog" / "2.png")
        case "removed":
            image.unlink()
        case "added":
            image.with_name("3.png").write_text("more")
    assert fingerprint(config) != before


@pytest.mark.parametrize("source", ["images", "audio", "text"])
@pytest.mark.parametrize("split", ["", "train/"])
def test_fingerprint_changes_with_an_empty_class(tmp_path: Path, source: str, split: str) -> None:
    ending = {"images": "png", "audio": "wav", "text": "txt"}[source]
    tmp_path /= "data"  # the cache lies beside it
    for name in ("cat", "dog"):
        (tmp_path / f"{split}{name}").mkdir(parents=True)
        (tmp_path / f"{split}{name}" / f"1.{ending}").write_text(name)
    config = DataConfig.model_validate(
        {"source": source, "path": str(tmp_path), **({"audio": {}} if source == "audio" else {})}
    )
    before = fingerprint(config)
    (tmp_path / f"{split}triangle").mkdir()
    empty = fingerprint(config)
    (tmp_path / f"{split}triangle").rename(tmp_path / f"{split}circle")
    assert len({before, empty, fingerprint(config)}) == 3
    (tmp_path / f"{split}circle").rmdir()
    assert fingerprint(config) == before


def test_fingerprint_notices_a_change_that_keeps_size_and_time(tmp_path: Path) -> None:
    config = _images(tmp_path / "data")
    image = tmp_path / "data" / "cat" / "1.png"
    os.utime(image, ns=(LONG_AGO_NS, LONG_AGO_NS))
    before = fingerprint(config)
    image.write_text("CAT/1.PNG")
    os.utime(image, ns=(LONG_AGO_NS, LONG_AGO_NS))
    assert fingerprint(config) != before


def test_fingerprint_does_not_trust_files_that_changed_a_moment_ago(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SETTLED_NS", 10**15)
    config, read = _images(tmp_path / "data"), _read_names(monkeypatch)
    fingerprint(config)
    fingerprint(config)
    assert len(read) == 6


@pytest.mark.parametrize("damage", [b"", b"no json", b"{}", b"null\n[]", b"\xff\x00\n{}"])
def test_fingerprint_ignores_a_damaged_cache(tmp_path: Path, cache: Path, damage: bytes) -> None:
    config = _images(tmp_path / "data")
    before = fingerprint(config)
    (memory,) = cache.iterdir()
    memory.write_bytes(damage)
    assert fingerprint(config) == before


def test_fingerprint_works_when_the_cache_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = _images(tmp_path / "data")
    before = fingerprint(config)
    (tmp_path / "file").touch()
    monkeypatch.setenv("SHRINK_CACHE_DIR", str(tmp_path / "file"))
    assert fingerprint(config) == before


def test_cache_root_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_root().name == "cache"
    monkeypatch.delenv("SHRINK_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/shared")
    assert cache_root() == Path("/shared/shrink")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_root() == Path.home() / ".cache" / "shrink"


def test_fingerprint_and_reference_are_light() -> None:
    code = (
        "import sys, shrink.data.fingerprint, shrink.data.folders, shrink.recipe.data_reference;"
        "print({'numpy', 'tensorflow', 'sklearn', 'PIL'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def _shards(root: Path, *names: str) -> DataConfig:
    root.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(names):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(b"%d" % number)
    return DataConfig(source="tfrecord", path=str(root))


@pytest.mark.parametrize("renamed", ["train-zzz.tfrecord", "test-1.tfrecord", "train-00.tfrecord"])
def test_fingerprint_of_shards_changes_with_names_that_decide_part_or_order(
    tmp_path: Path, renamed: str
) -> None:
    config = _shards(tmp_path / "a", "train-0.tfrecord", "train-1.tfrecord", "val-0.tfrecord")
    before = fingerprint(config)
    name = "train-1" if renamed == "train-00.tfrecord" else "val-0"
    (tmp_path / "a" / f"{name}.tfrecord").rename(tmp_path / "a" / renamed)
    changes = name == "val-0"  # train-0 and train-00 are read in the same order
    assert (fingerprint(config) != before) == changes


def test_fingerprint_of_shards_does_not_depend_on_the_place_or_on_names_that_decide_nothing(
    tmp_path: Path,
) -> None:
    one = _shards(tmp_path / "a", "train-0.tfrecord", "train-1.tfrecord", "test-0.tfrecord")
    moved = _shards(tmp_path / "b", "train-0.tfrecord", "train-1.tfrecord", "test-0.tfrecord")
    renamed = _shards(tmp_path / "c", "train.a.tfrecord", "train.b.tfrecord", "test/x.tfrecord")
    swapped = _shards(tmp_path / "d", "train-1.tfrecord", "train-0.tfrecord", "test-0.tfrecord")
    assert fingerprint(one) == fingerprint(moved) == fingerprint(renamed)
    assert fingerprint(swapped) != fingerprint(one)


def test_fingerprint_of_a_pattern_depends_on_the_split_that_names_decide(tmp_path: Path) -> None:
    config = _shards(tmp_path / "a", "train-0.tfrecord", "test-0.tfrecord")
    pattern = DataConfig(source="tfrecord", path=str(tmp_path / "a" / "t*.tfrecord"))
    assert fingerprint(pattern) == fingerprint(config)
    _shards(tmp_path / "b", "the-0.tfrecord", "two-0.tfrecord")
    other = DataConfig(source="tfrecord", path=str(tmp_path / "b" / "t*.tfrecord"))
    assert fingerprint(other) != fingerprint(pattern)


def _function(folder: Path, text: str = "def examples(): ...", **settings: Any) -> DataConfig:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "data.py").write_text(text)
    return DataConfig(source="python", path=f"{folder / 'data.py'}:examples", **settings)


def test_fingerprint_of_a_function_depends_on_its_place(tmp_path: Path) -> None:
    one, other = _function(tmp_path / "a"), _function(tmp_path / "b")
    assert fingerprint(one) != fingerprint(other)


@pytest.mark.parametrize("name", ["x.bin", "folder"])
def test_fingerprint_of_a_function_depends_on_what_the_recipe_declares(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "a" / "folder").mkdir(parents=True)
    for file in ("x.bin", "folder/y.bin"):
        (tmp_path / "a" / file).write_bytes(b"1")
    config = _function(tmp_path / "a", depends=(name,))
    before = fingerprint(config)
    assert fingerprint(_function(tmp_path / "a")) != before
    (tmp_path / "a" / ("x.bin" if name == "x.bin" else "folder/y.bin")).write_bytes(b"2")
    assert fingerprint(config) != before
    with pytest.raises(DataError, match=r"nothing\.bin: no such file or folder"):
        fingerprint(_function(tmp_path / "a", depends=("nothing.bin",)))


def test_fingerprint_of_a_function_depends_on_folders_that_a_declared_one_links_to(
    tmp_path: Path,
) -> None:
    folder, linked = tmp_path / "a" / "folder", tmp_path / "linked"
    folder.mkdir(parents=True)
    linked.mkdir()
    (folder / "link").symlink_to(linked)
    (folder / "loop").symlink_to(folder)
    config = _function(tmp_path / "a", depends=("folder",))
    before = fingerprint(config)
    (linked / "x.bin").write_bytes(b"1")
    assert fingerprint(config) != before


_READING = """
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
HERE = Path(__file__).parent
def examples():
    with open(HERE / "x.bin", "rb") as stream:
        stream.read()
    for name in os.listdir(HERE / "rows"):
        (HERE / "rows" / name).read_text()
    (HERE / "out.txt").write_text("written")
"""


@pytest.mark.parametrize("change", ["x.bin", "rows/1", "rows/2", "out.txt", "other", "gone"])
def test_fingerprint_of_a_function_depends_on_what_it_has_read(tmp_path: Path, change: str) -> None:
    config = _function(tmp_path / "a", _READING)
    (tmp_path / "a" / "rows").mkdir()
    for name in ("x.bin", "rows/1", "other"):
        (tmp_path / "a" / name).write_text("1")
    imported.cache_clear()
    function_of(tmp_path / "a" / "data.py", "examples")()
    before = fingerprint(config)
    assert fingerprint(config) == before
    if change == "gone":
        (tmp_path / "a" / "rows" / "1").unlink()
    else:
        (tmp_path / "a" / change).write_text("2")
    assert (fingerprint(config) != before) == (change not in ("out.txt", "other"))


NAMES = ["a.png", "b.png", "größe.png"]


@pytest.fixture
def hashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Write files, and return those that `hash_files` reads for a list of names."""
    read: list[str] = []

    def hash_file(path: str) -> str:
        read.append(Path(path).name)
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()

    monkeypatch.setattr(module, "hash_file", hash_file)
    for name in NAMES:
        (tmp_path / name).write_text(name)

    def run(names: list[str]) -> list[str]:
        read.clear()
        expected = b"".join(
            hashlib.sha256((tmp_path / name).read_bytes()).digest() for name in names
        )
        assert module.hash_files(tmp_path, names, tmp_path) == expected
        return sorted(read)

    return run


@pytest.mark.parametrize("order", [NAMES, NAMES[::-1], NAMES[1:], ["größe.png", "a.png"]])
def test_hash_files_reads_no_file_again(hashed: Callable[..., list[str]], order: list[str]) -> None:
    assert hashed(NAMES) == NAMES
    assert hashed(order) == []
    assert hashed(order) == []


def test_hash_files_reads_what_has_changed(
    hashed: Callable[..., list[str]], tmp_path: Path
) -> None:
    hashed(NAMES)
    (tmp_path / "b.png").write_text("other")
    assert hashed(NAMES) == ["b.png"]
    (tmp_path / "a.png").replace(tmp_path / "b.png")
    assert hashed(NAMES[1:]) == ["b.png"]


def test_hash_files_takes_nothing_from_a_damaged_file(
    hashed: Callable[..., list[str]], tmp_path: Path
) -> None:
    hashed(NAMES)
    (memory,) = (tmp_path / "cache" / "fingerprints").iterdir()
    content = memory.read_bytes()
    for damaged in (content[:-1], content[:-48], b"", content[:40] + b"\0" + content[41:]):
        memory.write_bytes(damaged)
        assert hashed(NAMES) == NAMES
