"""Slices of examples: what divides them, and that it stays with the examples whatever is done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from shrink.base.errors import DataError
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.membership import membership_of
from shrink.data.opening import open_dataset
from shrink.data.slices import Slicing, divided, slicings_of
from tests.data.images import write_bad_images, write_image

SPLITS = ("train", "validation", "test")
ROWS = 60


def opened(path: Path, source: str, *slices: Any, **more: Any) -> tuple[Dataset, DataConfig]:
    settings = {"source": source, "path": str(path), "slices": list(slices), **more}
    config = DataConfig.model_validate(settings)
    return open_dataset(config, seed=3), config


def first_values(dataset: Dataset, split: str) -> np.ndarray:
    """Return the first number of each example's input, by which a test knows the example."""
    examples = getattr(dataset, split)
    x = np.asarray(examples.arrays(np.arange(len(examples)))[0])
    return x.reshape(len(x), -1)[:, 0]


def only(dataset: Dataset, split: str, config: DataConfig) -> Slicing:
    (found,) = slicings_of(dataset, split, config)
    return found


def table(folder: Path, split: str = "") -> Path:
    """Write a table whose column `a` is the row."""
    head = f"a,label,place{',split' if split else ''}"
    rows = [
        f"{i},{i % 2},p{i % 3}{',' + ('train' if i % 7 else 'test') if split else ''}"
        for i in range(ROWS)
    ]
    (folder / "t.csv").write_text("\n".join([head, *rows]) + "\n")
    return folder / "t.csv"


@pytest.mark.parametrize("split", ["", "split"])
def test_a_column_of_a_table_stays_with_its_rows(tmp_path: Path, split: str) -> None:
    dataset, config = opened(table(tmp_path, split), "csv", "place")
    for part in SPLITS:
        ids = first_values(dataset, part).astype(int)
        assert only(dataset, part, config).labels == tuple(f"p{i % 3}" for i in ids)
    assert dataset.train.arrays(np.arange(1))[0].shape == (1, 1)  # words are no input


def test_a_column_of_numbers_stays_an_input(tmp_path: Path) -> None:
    rows = [f"{i},{i % 2},{i % 3}" for i in range(ROWS)]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["a,label,site", *rows]) + "\n")
    dataset, config = opened(path, "csv", "site")
    x = dataset.test.arrays(np.arange(len(dataset.test)))[0]
    assert only(dataset, "test", config).labels == tuple(f"{value:g}" for value in x[:, 1])


@pytest.mark.parametrize("given", [False, True])
def test_an_array_stays_with_its_examples(tmp_path: Path, given: bool) -> None:
    x = np.arange(ROWS, dtype=np.float32)[:, None] * np.ones(3, np.float32)
    arrays: dict[str, Any] = {"x": x, "y": np.arange(ROWS) % 2, "size": np.arange(ROWS) * 10.0}
    if given:
        arrays = {
            f"{name}_{part}": value + 0
            for name, value in arrays.items()
            for part in ("train", "test")
        }
    np.savez(tmp_path / "d.npz", **arrays)
    by_size = {"column": "size", "edges": [100, 300]}
    dataset, config = opened(tmp_path / "d.npz", "npz", by_size, normalize={"scale": 1.0})
    for part in SPLITS:
        sizes = 10 * first_values(dataset, part)
        wanted = [
            "below 100" if s < 100 else "100 to 300" if s < 300 else "from 300" for s in sizes
        ]
        assert list(only(dataset, part, config).labels) == wanted


def test_slices_follow_examples_that_are_left_out_for_an_earlier_run(tmp_path: Path) -> None:
    path = table(tmp_path)
    config = DataConfig.model_validate({"source": "csv", "path": str(path), "slices": ["place"]})
    other = open_dataset(config, seed=11)
    earlier = tmp_path / "splits.bin"
    parts = {part: getattr(other, part) for part in SPLITS}
    earlier.write_bytes(membership_of(parts, config, 11).content())
    dataset = open_dataset(config, 3, [earlier])
    assert dataset.left_out is not None
    assert dataset.left_out.count("test") > 0
    ids = first_values(dataset, "test").astype(int)
    assert only(dataset, "test", config).labels == tuple(f"p{i % 3}" for i in ids)


def listed(folder: Path) -> Path:
    """Write a list of images whose gray level is their row; the first cannot be decoded."""
    rows = ["path,label,camera,light"]
    for i in range(40):
        name = f"cam{i % 4}/night/{i}.png"
        if i == 0:
            (folder / name).parent.mkdir(parents=True)
            (folder / name).write_bytes(write_bad_images(folder)[0].read_bytes())
        else:
            write_image(folder / name, seed=i)
        rows.append(f"{name},{'cat' if i % 2 else 'dog'},c{i % 4},{i}")
    (folder / "list.csv").write_text("\n".join(rows) + "\n")
    return folder / "list.csv"


def test_slices_of_listed_images_follow_files_that_are_skipped(tmp_path: Path) -> None:
    slices = ["camera", {"folder": 1}, {"pattern": r"cam(\d)"}, {"name": "last", "folder": -1}]
    skip = {"on_bad_example": "skip", "bad_examples_limit": 0.5}
    dataset, config = opened(listed(tmp_path), "images", *slices, **skip)
    counted = 0
    for part in SPLITS:
        camera, folder, pattern, last = slicings_of(dataset, part, config)
        names = dataset.membership()  # type: ignore[misc]
        files = [names.name(part, i) for i in range(len(getattr(dataset, part)))]
        cameras = [file.split("/cam")[1][0] for file in files]
        assert list(camera.labels) == [f"c{one}" for one in cameras]
        assert list(folder.labels) == [f"cam{one}" for one in cameras]
        assert list(pattern.labels) == cameras
        assert set(last.labels) == {"night"}
        counted += len(files)
    assert counted == 39


def test_a_function_gets_the_examples_in_their_order(tmp_path: Path) -> None:
    code = tmp_path / "by.py"
    code.write_text("def parity(x, y):\n    return ['odd' if v % 2 else 'even' for v in x[:, 0]]\n")
    dataset, config = opened(table(tmp_path), "csv", f"{code}:parity", inputs=["a"])
    found = only(dataset, "test", config)
    assert found.by == "parity"
    ids = first_values(dataset, "test")
    assert list(found.labels) == ["odd" if i % 2 else "even" for i in ids]


def test_a_function_that_raises_or_returns_too_little_is_named(tmp_path: Path) -> None:
    code = tmp_path / "by.py"
    code.write_text(
        "def short(x, y):\n    return ['a']\ndef broken(x, y):\n    raise KeyError('q')\n"
    )
    for name, message in (("short", "for 12 examples"), ("broken", "it raised KeyError")):
        dataset, config = opened(table(tmp_path), "csv", f"{code}:{name}", inputs=["a"])
        with pytest.raises(DataError, match=message):
            slicings_of(dataset, "test", config)


def test_divided_takes_quartiles_of_many_numbers() -> None:
    values = np.random.default_rng(0).permutation(np.arange(1, 101))
    found = divided("size", values)
    assert found.names == ("below 25.75", "25.75 to 50.5", "50.5 to 75.25", "from 75.25")
    np.testing.assert_array_equal(np.bincount(found.index), [25, 25, 25, 25])
    assert list(found.index) == [(v - 1) // 25 for v in values]


def test_divided_gives_each_slice_a_name_of_its_own_where_numbers_are_close() -> None:
    hour = divided("time", 1_716_500_000 + np.arange(1, 101))
    assert hour.names == (
        "below 1716500025.75",
        "1716500025.75 to 1716500050.5",
        "1716500050.5 to 1716500075.25",
        "from 1716500075.25",
    )
    few = divided("id", np.array([9_000_000_000_001, 9_000_000_000_002]))
    assert few.names == ("9000000000001", "9000000000002")


def test_divided_takes_few_numbers_and_texts_as_names() -> None:
    few = divided("n", np.array([10, 9, 10]))
    assert (few.names, few.labels) == (("9", "10"), ("10", "9", "10"))
    texts = divided("t", np.array(["b", "", "a"]))
    assert texts.labels == ("b", "(empty)", "a")
    folders = divided("f", np.array([str(n) for n in range(2000, 2030)]), are_numbers=False)
    assert len(folders.names) == 30


@pytest.mark.parametrize(
    ("source", "entry", "message"),
    [
        ("digits", "place", "has no columns"),
        ("csv", {"folder": 1}, "has no paths"),
        ("csv", {"column": "a", "folder": 1}, "give one of column"),
        ("csv", {"name": "a"}, "none of them"),
        ("csv", "class", "class is always there"),
        ("csv", {"column": "a", "edges": [2, 1]}, "ascending"),
        ("images", {"pattern": "("}, "no regular expression"),
        ("images", {"folder": 0}, "levels are 1"),
    ],
)
def test_slices_are_checked_when_the_recipe_is_read(source: str, entry: Any, message: str) -> None:
    settings = {
        "source": source,
        "slices": [entry],
        **({} if source == "digits" else {"path": "x"}),
    }
    with pytest.raises(ValidationError, match=message):
        DataConfig.model_validate(settings)


def test_a_missing_column_is_named_with_those_that_are_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="names 'plaec', and there is a, label, place"):
        opened(table(tmp_path), "csv", "plaec")
