from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from sklearn.datasets import load_digits

from shrink.base.errors import DataError
from shrink.base.types import Spec
from shrink.data import cache as cached
from shrink.data.cache import CachedExamples
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.opening import open_dataset
from shrink.data.pipeline import evaluation_batches
from shrink.data.sources.none import no_examples
from tests.data.images import write_folders, write_image
from tests.data.opened import all_of, counts, opened


def test_open_dataset_splits_digits_as_the_recipe_says() -> None:
    dataset = opened("digits")
    assert counts(dataset) == [1257, 180, 360]
    assert dataset.num_classes == 10
    assert dataset.class_names == tuple("0123456789")
    assert dataset.train.input_spec == Spec((8, 8, 1), np.dtype(np.float32))
    assert dataset.train.target_spec == Spec((), np.dtype(np.int64))


def test_open_dataset_names_the_labels_of_rows(tmp_path: Path) -> None:
    rows = np.arange(60).reshape(20, 3) % 2
    np.savez(tmp_path / "rows.npz", x=np.zeros((20, 4), np.float32), y=rows.astype(np.float32))
    names = ("odd", "big", "red")
    assert opened("npz", tmp_path / "rows.npz", classes=names).class_names == names


def test_open_dataset_gives_the_digits_of_scikit_learn() -> None:
    digits = opened("digits", test_split=1).test
    x, y = digits.arrays(np.arange(1797))
    expected = load_digits()
    order, wanted = (np.lexsort(one.reshape(1797, 64).T) for one in (x, expected.images))
    assert np.array_equal(x[order, ..., 0], expected.images[wanted])
    assert np.array_equal(y[order], expected.target[wanted])
    assert digits.labels is not None
    assert np.array_equal(y, digits.labels)


def test_spooled_refuses_a_name_that_occurs_twice() -> None:
    examples = [[np.zeros(2), np.ones(1), np.zeros(2)]]
    with pytest.raises(DataError, match="x, y, x: a name occurs twice"):
        cached.spooled(lambda: "key", lambda: {"all": examples}, ("x", "y", "x"))


def test_arrays_equals_load() -> None:
    test = opened("digits", normalize={"scale": 1 / 3, "offset": -0.7}).test
    indices = np.array([5, 0, 359, 5])
    for array, tensor in zip(test.arrays(indices), test.load(tf.constant(indices)), strict=True):
        assert np.array_equal(array, tensor.numpy())


def test_open_dataset_normalizes_to_float32() -> None:
    plain, _ = opened("digits").train.arrays(np.arange(9))
    normalized = opened("digits", normalize={"scale": 0.0625, "offset": -0.5}).train
    x, _ = normalized.arrays(np.arange(9))
    assert x.dtype == np.float32
    assert np.array_equal(x, plain / 16 - 0.5)
    assert normalized.input_spec.dtype == np.float32
    assert normalized.labels is not None


def test_open_dataset_makes_the_input_the_target() -> None:
    dataset = opened("digits", target="input", normalize={"scale": 0.0625})
    x, y = dataset.train.arrays(np.arange(4))
    assert np.array_equal(x, y)
    assert x.max() == 1
    assert dataset.train.target_spec == dataset.train.input_spec
    assert dataset.train.labels is None
    assert dataset.num_classes is None


@pytest.mark.parametrize("seed", [1, 2])
def test_open_dataset_splits_by_the_seed(seed: int) -> None:
    config = DataConfig(source="digits")
    one, same, other = (
        open_dataset(config, s).test.arrays(np.arange(360)) for s in (seed, seed, 0)
    )
    assert np.array_equal(one[0], same[0])
    assert not np.array_equal(one[0], other[0])


@pytest.mark.parametrize(
    ("cache", "part"),
    [("memory", "train"), ("disk", "train"), ("auto", "train"), ("validation", "validation")],
)
def test_open_dataset_reads_cached_examples_once(cache: str, part: str, tmp_path: Path) -> None:
    root = write_folders(tmp_path / "pictures")
    plain, kept = (
        getattr(opened("images", root, normalize={"scale": 0.5}, cache=one), part)
        for one in ("none", cache)
    )
    assert len(plain)
    first, again = (
        list(evaluation_batches(examples, 5).as_numpy_iterator()) for examples in (plain, kept)
    )
    for path in root.rglob("*.png"):
        path.unlink()
    last = list(evaluation_batches(kept, 5).as_numpy_iterator())
    for batches in (again, last):
        for one, other in zip(first, batches, strict=True):
            np.testing.assert_array_equal(one[0], other[0])
            np.testing.assert_array_equal(one[1], other[1])


def test_open_dataset_leaves_out_the_cache_when_auto_does_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_folders(tmp_path / "pictures")
    assert isinstance(opened("images", root, cache="auto").train, CachedExamples)
    monkeypatch.setattr(cached, "_AUTO_BYTES", 100)
    assert not isinstance(opened("images", root, cache="auto").train, CachedExamples)


def test_evaluation_batches_name_the_bad_example_that_cannot_be_cached(tmp_path: Path) -> None:
    root = write_folders(tmp_path / "pictures")
    for path in (root / "dog").iterdir():
        path.write_bytes(b"")
    train = opened("images", root, cache="memory").train
    with pytest.raises(DataError, match=r"dog/.*\.png: the file is empty"):
        evaluation_batches(train, 5)


def test_open_dataset_refuses_to_open_no_data() -> None:
    with pytest.raises(DataError, match="no data was named"):
        opened("none")
    with pytest.raises(DataError, match="no data was named"):
        no_examples().test.arrays(np.arange(1))


EVERY, SPLIT, TEST = ("a", "b"), ("train/a", "train/b", "test/a", "test/b"), ("test/a", "test/b")
"""Folders of ten examples each: not divided, divided, and a test split alone."""


def of(section: dict[str, object], **settings: object) -> Dataset:
    return open_dataset(DataConfig.model_validate({**section, **settings}), seed=0)


def labels(dataset: Dataset) -> list[int]:
    """Return the labels of the test split."""
    assert dataset.test.labels is not None
    return [int(label) for label in dataset.test.labels]


def _written(folder: Path, source: str, folders: tuple[str, ...]) -> dict[str, object]:
    """Write ten examples for each folder in the form of a source; return its section."""
    rows = [(name.rpartition("/"), n) for name in folders for n in range(10)]
    splits = [split for (split, _, _), _ in rows]
    kinds, numbers = [label for (_, _, label), _ in rows], np.arange(len(rows))
    section: dict[str, object] = {"source": source, "path": str(folder)}
    if source == "npz":
        named = {split or "all": np.array(splits) == split for split in splits}
        arrays = {"x": numbers, "y": np.array(kinds)}
        suffixes = {split: "" if split == "all" else f"_{split}" for split in named}
        values = {f"{k}{suffixes[s]}": v[m] for s, m in named.items() for k, v in arrays.items()}
        np.savez(folder / "data.npz", **values)
        return section | {"path": str(folder / "data.npz")}
    if source in ("csv", "series", "text"):
        column = "split," if splits[0] else ""
        lines = [f"{column}{'text' if source == 'text' else 'value'},label"]
        for row, split in enumerate(splits):
            lines.append(f"{split}{',' if split else ''}{row},{kinds[row]}")
        (folder / "data.csv").write_text("\n".join(lines))
        (folder / "words.txt").write_text("[PAD]\n[UNK]\n1\n2\n")
        own: dict[str, dict[str, object]] = {
            "csv": {},
            "series": {"inputs": ["value"], "series": {"window": 1, "horizon": 1}},
            "text": {"tokens": {"vocabulary": str(folder / "words.txt")}},
        }
        return section | {"path": str(folder / "data.csv")} | own[source]
    if source == "python":
        returned: object = {s: [(float(n), 0.5) for n in range(splits.count(s))] for s in splits}
        returned = returned if splits[0] else [(float(n), 0.5) for n in numbers]
        (folder / "data.py").write_text(
            f"import numpy as np\ndef give():\n    return {returned}\n".replace("0.5", "np.ones(1)")
        )
        return section | {"path": f"{folder / 'data.py'}:give"}
    for name in folders:
        split, _, label = name.rpartition("/")
        for n in range(10):
            if source == "masks":
                for kind in ("images", "masks"):
                    pixels = np.full((4, 4), n % 2, np.uint8)
                    path = folder / split / kind / f"{label}{n}.png"
                    path.parent.mkdir(parents=True, exist_ok=True)
                    Image.fromarray(pixels).save(path)
            elif source == "audio":
                (folder / name).mkdir(parents=True, exist_ok=True)
                with wave.open(str(folder / name / f"{n}.wav"), "wb") as clip:
                    clip.setparams((1, 2, 16_000, 0, "NONE", ""))
                    clip.writeframes(np.full(16_000, n, "<i2").tobytes())
            else:
                write_image(folder / name / f"{n}.png", seed=n)
    return section


@pytest.mark.parametrize(
    "source", ["npz", "csv", "series", "text", "python", "images", "audio", "masks"]
)
def test_every_source_is_tested_whole_or_by_its_test_split(tmp_path: Path, source: str) -> None:
    for number, folders in enumerate((EVERY, SPLIT, TEST)):
        (folder := tmp_path / str(number)).mkdir()
        section = _written(folder, source, folders)
        dataset = of(section, test_split=1)
        # A series has a window less than rows.
        lost = source == "series"
        assert len(dataset.test) == 20 - lost
        assert len(dataset.train) == (20 - lost if folders == SPLIT else 0)
        assert len(dataset.validation) == 0
        assert ("test" in dataset.given) == (folders != EVERY)  # else nobody calls it a test split
        told = any("all examples" in note for note in dataset.notes)
        assert told == (folders == EVERY)
        if folders == TEST:
            with pytest.raises(DataError, match=r"no split train|the train split has at most 0"):
                of(section)


@pytest.mark.parametrize("source", ["images", "audio"])
def test_only_the_tested_split_needs_all_classes(tmp_path: Path, source: str) -> None:
    section = _written(tmp_path, source, ("train/a", "train/b", "test/a", "test/b", "test/c"))
    with pytest.raises(DataError, match="the class 'c' of train has no"):
        of(section)
    dataset = of(section, test_split=1)
    assert dataset.class_names == ("a", "b", "c")
    assert labels(dataset) == [0] * 10 + [1] * 10 + [2] * 10
    assert all_of(dataset.test)[1].tolist() == labels(dataset)


def test_classes_of_folders_that_are_not_tested_keep_their_numbers(tmp_path: Path) -> None:
    folders = ("train/a", "train/b", "train/c", "test/b", "test/c")
    section = _written(tmp_path, "images", folders)
    assert labels(of(section, test_split=1)) == [1] * 10 + [2] * 10
    # The folder b, then c.
    assert labels(of(section, test_split=1, classes=["c", "b"])) == [1] * 10 + [0] * 10


def test_masks_of_splits_that_are_not_tested_may_have_other_classes(tmp_path: Path) -> None:
    section = _written(tmp_path, "masks", SPLIT) | {"classes": ["a", "b"]}
    Image.fromarray(np.full((4, 4), 7, np.uint8)).save(next(tmp_path.glob("train/masks/*.png")))
    with pytest.raises(DataError, match="class number 7"):
        of(section)
    assert {one.split for one in of(section, test_split=1).extremes} == {"test"}


@pytest.mark.parametrize("source", ["npz", "csv", "text", "images"])
def test_one_class_is_tested_where_its_number_is_known(tmp_path: Path, source: str) -> None:
    section = _written(tmp_path, source, ("b",))
    with pytest.raises(DataError, match="at least two classes"):
        of(section, test_split=1)
    with pytest.raises(DataError, match="at least two classes"):
        of(section, classes=["a", "b"])
    assert labels(of(section, classes=["a", "b"], test_split=1)) == [1] * 10


@pytest.mark.parametrize("source", ["npz", "csv", "text"])
def test_classes_are_tested_where_training_examples_have_one(tmp_path: Path, source: str) -> None:
    section = _written(tmp_path, source, ("train/b", "test/a", "test/b"))
    assert labels(of(section, test_split=1)) == [0] * 10 + [1] * 10
    with pytest.raises(DataError, match="at least two classes"):
        of(section)


def test_one_number_is_tested_as_it_is(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x_test=np.zeros((5, 2), np.float32), y_test=np.full(5, 3))
    assert labels(opened("npz", tmp_path / "x.npz", test_split=1)) == [3] * 5
