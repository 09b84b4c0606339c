"""A source that an installed package adds: named in recipes, opened by the worker, part of keys."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from shrink.base.errors import DataError, RecipeError
from shrink.base.packages import find_extension
from shrink.data.config import DataConfig
from shrink.data.fingerprint import fingerprint
from shrink.data.opening import open_dataset
from shrink.recipe.data_reference import parse_data_reference
from tests.cli.shell import read_report, shrink
from tests.cli.test_light import heavy_modules_of
from tests.cli.toy import write_toy

ROWS = '''
"""Folders of text files: numbers, of which the last in each row is a label."""

from shrink.data.config import Source


class Rows(Source):
    endings = (".rows",)

    def open(self, config, seed):
        import numpy as np

        from shrink.data.sources.columns import open_columns

        path = self.path(config)
        table = np.concatenate([np.loadtxt(file) for file in sorted(path.glob("*.txt"))])
        arrays = {"x": table[:, :-1].astype(np.float32), "y": table[:, -1].astype(np.int64)}
        return open_columns(path, arrays, lambda names: arrays, config, seed)
'''
STREAM = """
from shrink.data.config import Source

said = "first"


class Stream(Source):
    needs_path = False

    def open(self, config, seed):
        raise KeyError("no such stream")

    def content(self, config):
        yield said
"""
RECIPE = """
name: rows
model: toy.py:build
data: {source: rows, path: numbers}
stages:
  - train: {epochs: 1}
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Return a folder with an installed package of sources."""
    package, about = tmp_path / "site" / "rowing", tmp_path / "site" / "rowing-1.2.dist-info"
    (package / "io").mkdir(parents=True)
    about.mkdir()
    (package / "__init__.py").touch()
    (package / "io" / "__init__.py").touch()
    (package / "io" / "rows.py").write_text(ROWS)
    (package / "stream.py").write_text(STREAM)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: rowing\nVersion: 1.2\n")
    (about / "entry_points.txt").write_text(
        "[shrink.sources]\nrows = rowing.io.rows:Rows\nstream = rowing.stream:Stream\n"
        "broken = rowing.gone:Rows\nempty = rowing.io\n"
    )
    return tmp_path / "site"


@pytest.fixture
def installed(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the folder of a package that this process finds, and will have forgotten."""

    def forget() -> None:
        find_extension.cache_clear()
        for name in [name for name in sys.modules if name.partition(".")[0] == "rowing"]:
            del sys.modules[name]

    monkeypatch.syspath_prepend(site)
    forget()
    yield site
    forget()


def _write_numbers(folder: Path) -> np.ndarray:
    folder.mkdir()
    random = np.random.default_rng(0)
    table = np.column_stack([random.integers(-9, 9, (60, 4)), np.arange(60) % 3])
    np.savetxt(folder / "a.txt", table[:20])
    np.savetxt(folder / "b.txt", table[20:])
    return table


def test_a_package_adds_a_source(tmp_path: Path, site: Path) -> None:
    write_toy(tmp_path, RECIPE)
    _write_numbers(tmp_path / "numbers")

    def run(*more: str) -> str:
        words = ("run", "toy.yaml", "--output", "out", *more)
        path = {"PYTHONPATH": str(site)}
        return shrink(*words, cwd=tmp_path, store=tmp_path / "store", env=path).stdout

    run()
    data = read_report(tmp_path / "out")["data"]
    assert (data["source"], data["path"]) == ("rows", "numbers")
    assert data["examples"] == {"train": 42, "validation": 6, "test": 12}
    assert run("--dry-run").count("in the cache") == 1
    (site / "rowing" / "__init__.py").write_text("# what its modules may import\n")
    changed = run("--dry-run")
    assert "in the cache" not in changed
    assert "data.sources changed" in changed


def test_data_takes_files_of_its_endings(tmp_path: Path, installed: Path) -> None:
    for name in ("a.rows", "a.other"):
        (tmp_path / name).touch()
    found = parse_data_reference("a.rows", tmp_path)
    assert found == {"source": "rows", "path": str(tmp_path / "a.rows")}
    with pytest.raises(DataError, match="not a kind of data that shrink knows"):
        parse_data_reference("a.other", tmp_path)


def test_its_examples_are_those_of_its_files(tmp_path: Path, installed: Path) -> None:
    table = _write_numbers(tmp_path / "numbers")
    config = DataConfig(source="rows", path=str(tmp_path / "numbers"))
    dataset = open_dataset(config, seed=0)
    parts = (dataset.train, dataset.validation, dataset.test)
    read = [part.arrays(np.arange(len(part))) for part in parts]
    rows = np.concatenate([np.column_stack(pair) for pair in read])
    np.testing.assert_array_equal(np.unique(rows, axis=0), np.unique(table, axis=0))


def test_its_fingerprint_is_that_of_files_version_and_sources(
    tmp_path: Path, installed: Path
) -> None:
    numbers, moved = tmp_path / "numbers", tmp_path / "moved"
    _write_numbers(numbers)
    seen = {_fingerprint(numbers)}
    numbers.rename(moved)
    assert _fingerprint(moved) in seen

    def is_new() -> bool:
        before = len(seen)
        seen.add(_fingerprint(moved))
        return len(seen) > before

    assert not is_new()
    (moved / "a.txt").rename(moved / "c.txt")
    assert is_new()
    (moved / "b.txt").write_text("1 2 3 4 0\n")
    assert is_new()
    (tmp_path / "elsewhere").mkdir()
    (moved / "link").symlink_to(tmp_path / "elsewhere")
    (moved / "loop").symlink_to(moved)
    assert not is_new()
    (tmp_path / "elsewhere" / "d.txt").touch()
    assert is_new()
    (installed / "rowing" / "io" / "rows.py").write_text(ROWS + "\n")
    assert is_new()
    about = installed / "rowing-1.2.dist-info" / "METADATA"
    about.write_text(about.read_text().replace("1.2", "1.3"))
    find_extension.cache_clear()
    assert is_new()
    assert _fingerprint(moved / "b.txt") not in seen
    with pytest.raises(DataError, match="no such file or folder"):
        _fingerprint(numbers)


def _fingerprint(path: Path) -> str:
    return fingerprint(DataConfig(source="rows", path=str(path)))


def test_a_source_may_have_a_fingerprint_of_its_own(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = DataConfig(source="stream")
    before = fingerprint(config)
    sys.modules["rowing.stream"].said = "second"  # type: ignore[attr-defined]
    assert fingerprint(config) != before
    sys.modules["rowing.stream"].said = 2  # type: ignore[attr-defined]
    with pytest.raises(DataError, match=r"rowing 1\.2 adds .* content yielded no str: 2"):
        fingerprint(config)
    with pytest.raises(DataError, match=r"rowing 1\.2 .* open raised KeyError"):
        open_dataset(config, seed=0)
    stream = sys.modules["rowing.stream"].Stream
    monkeypatch.setattr(stream, "open", lambda *_: None)
    with pytest.raises(DataError, match=r"open raised TypeError: a NoneType in place of a Dataset"):
        open_dataset(config, seed=0)
    monkeypatch.setattr(stream, "content", lambda *_: None)
    with pytest.raises(DataError, match=r"rowing 1\.2 .* content raised TypeError"):
        fingerprint(config)
    with pytest.raises(ValidationError, match="source: rows needs a path"):
        DataConfig(source="rows")


def test_what_is_no_source_is_refused(installed: Path) -> None:
    with pytest.raises(RecipeError, match=r"rowing 1\.2 .* rowing\.io is no class of"):
        DataConfig(source="empty", path=".")


def test_a_package_that_fails_is_named(tmp_path: Path, site: Path) -> None:
    recipe = write_toy(tmp_path, RECIPE.replace("rows,", "broken,"))
    path = {"PYTHONPATH": str(site)}
    done = shrink("validate", recipe, cwd=tmp_path, store=tmp_path, env=path, expect=2)
    assert "rowing 1.2 adds the source broken, and fails: ModuleNotFoundError" in done.stderr


def test_recipes_with_it_are_checked_without_heavy_modules(
    tmp_path: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write_numbers(tmp_path / "numbers")
    recipe = str(write_toy(tmp_path, RECIPE))
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.setenv("SHRINK_CACHE_DIR", str(tmp_path / "store"))
    assert heavy_modules_of("run", recipe, "--dry-run", cwd=tmp_path) == "HEAVY []"


def test_packages_are_not_asked_for_shrinks_own_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: str) -> None:
        raise AssertionError("entry points were read")

    monkeypatch.setattr(importlib.metadata, "entry_points", refuse)
    fingerprint(DataConfig(source="digits"))
    DataConfig(source="npz", path="a.npz")
