from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

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


def _digits(**settings: object) -> Dataset:
    return open_dataset(DataConfig.model_validate({"source": "digits", **settings}), seed=0)


def test_open_dataset_splits_digits_as_the_recipe_says() -> None:
    dataset = _digits()
    sizes = [len(part) for part in (dataset.train, dataset.validation, dataset.test)]
    assert sizes == [1257, 180, 360]
    assert dataset.num_classes == 10
    assert dataset.class_names == tuple("0123456789")
    assert dataset.train.input_spec == Spec((8, 8, 1), np.dtype(np.float32))
    assert dataset.train.target_spec == Spec((), np.dtype(np.int64))


def test_open_dataset_names_the_labels_of_rows(tmp_path: Path) -> None:
    rows = np.arange(60).reshape(20, 3) % 2
    np.savez(tmp_path / "rows.npz", x=np.zeros((20, 4), np.float32), y=rows.astype(np.float32))
    given = {"source": "npz", "path": str(tmp_path / "rows.npz"), "classes": ["odd", "big", "red"]}
    assert open_dataset(DataConfig.model_validate(given), seed=0).class_names == (
        "odd",
        "big",
        "red",
    )


def test_open_dataset_keeps_digits_as_stored() -> None:
    x, y = _digits().test.arrays(np.arange(360))
    assert (x.min(), x.max()) == (0, 16)
    labels = _digits().test.labels
    assert labels is not None
    assert np.array_equal(y, labels)


def test_spooled_refuses_a_name_that_occurs_twice() -> None:
    examples = [[np.zeros(2), np.ones(1), np.zeros(2)]]
    with pytest.raises(DataError, match="x, y, x: a name occurs twice"):
        cached.spooled(lambda: "key", lambda: {"all": examples}, ("x", "y", "x"))


def test_arrays_equals_load() -> None:
    test = _digits(normalize={"scale": 1 / 3, "offset": -0.7}).test
    indices = np.array([5, 0, 359, 5])
    for array, tensor in zip(test.arrays(indices), test.load(tf.constant(indices)), strict=True):
        assert np.array_equal(array, tensor.numpy())


def test_open_dataset_normalizes_to_float32() -> None:
    plain, _ = _digits().train.arrays(np.arange(9))
    normalized = _digits(normalize={"scale": 0.0625, "offset": -0.5}).train
    x, _ = normalized.arrays(np.arange(9))
    assert x.dtype == np.float32
    assert np.array_equal(x, plain / 16 - 0.5)
    assert normalized.input_spec.dtype == np.float32
    assert normalized.labels is not None


def test_open_dataset_makes_the_input_the_target() -> None:
    dataset = _digits(target="input", normalize={"scale": 0.0625})
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
def test_open_dataset_reads_cached_examples_once(
    cache: str, part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHRINK_CACHE_DIR", str(tmp_path / "cache"))
    root = write_folders(tmp_path / "pictures")
    settings = {"source": "images", "path": str(root), "normalize": {"scale": 0.5}}
    plain, kept = (
        getattr(open_dataset(DataConfig.model_validate({**settings, "cache": c}), seed=0), part)
        for c in ("none", cache)
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
    config = DataConfig(
        source="images", path=str(write_folders(tmp_path / "pictures")), cache="auto"
    )
    assert isinstance(open_dataset(config, seed=0).train, CachedExamples)
    monkeypatch.setattr(cached, "_AUTO_BYTES", 100)
    assert not isinstance(open_dataset(config, seed=0).train, CachedExamples)


def test_evaluation_batches_name_the_bad_example_that_cannot_be_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHRINK_CACHE_DIR", str(tmp_path / "cache"))
    root = write_folders(tmp_path / "pictures")
    for path in (root / "dog").iterdir():
        path.write_bytes(b"")
    config = DataConfig(source="images", path=str(root), cache="memory")
    train = open_dataset(config, seed=0).train
    with pytest.raises(DataError, match=r"dog/.*\.png: the file is empty"):
        evaluation_batches(train, 5)


def test_open_dataset_refuses_to_open_no_data() -> None:
    with pytest.raises(DataError, match="no data was named"):
        open_dataset(DataConfig(source="none"), seed=0)
    with pytest.raises(DataError, match="no data was named"):
        no_examples().test.arrays(np.arange(1))


EVERY, SPLIT, TEST = ("a", "b"), ("train/a", "train/b", "test/a", "test/b"), ("test/a", "test/b")
"""Folders of ten examples each: not divided, divided, and a test split alone."""


def _written(folder: Path, source: str, folders: tuple[str, ...]) -> dict[str, object]:
    """Write ten examples for each folder in the form of a source; return its section."""
    rows = [(name.rpartition("/"), n) for name in folders for n in range(10)]
    splits = [split for (split, _, _), _ in rows]
    labels, numbers = [label for (_, _, label), _ in rows], np.arange(len(rows))
    section: dict[str, object] = {"source": source, "path": str(folder)}
    if source == "npz":
        named = {split or "all": np.array(splits) == split for split in splits}
        arrays = {"x": numbers, "y": np.array(labels)}
        suffixes = {split: "" if split == "all" else f"_{split}" for split in named}
        values = {f"{k}{suffixes[s]}": v[m] for s, m in named.items() for k, v in arrays.items()}
        np.savez(folder / "data.npz", **values)
        return section | {"path": str(folder / "data.npz")}
    if source in ("csv", "series", "text"):
        column = "split," if splits[0] else ""
        lines = [f"{column}{'text' if source == 'text' else 'value'},label"]
        for row, split in enumerate(splits):
            lines.append(f"{split}{',' if split else ''}{row},{labels[row]}")
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
    given = {"source": source, "test_split": 1}
    for number, folders in enumerate((EVERY, SPLIT, TEST)):
        (folder := tmp_path / str(number)).mkdir()
        section = _written(folder, source, folders)
        dataset = open_dataset(DataConfig.model_validate({**section, **given}), seed=0)
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
                open_dataset(DataConfig.model_validate(section), seed=0)


@pytest.mark.parametrize("source", ["images", "audio"])
def test_only_the_tested_split_needs_all_classes(tmp_path: Path, source: str) -> None:
    section = _written(tmp_path, source, ("train/a", "train/b", "test/a", "test/b", "test/c"))
    with pytest.raises(DataError, match="the class 'c' of train has no"):
        open_dataset(DataConfig.model_validate(section), seed=0)
    config = DataConfig.model_validate({**section, "test_split": 1})
    dataset = open_dataset(config, seed=0)
    assert dataset.class_names == ("a", "b", "c")
    assert dataset.test.labels is not None
    assert dataset.test.labels.tolist() == [0] * 10 + [1] * 10 + [2] * 10
    assert dataset.test.arrays(np.arange(30))[1].tolist() == dataset.test.labels.tolist()


def test_classes_of_folders_that_are_not_tested_keep_their_numbers(tmp_path: Path) -> None:
    folders = ("train/a", "train/b", "train/c", "test/b", "test/c")
    section = _written(tmp_path, "images", folders) | {"test_split": 1}
    test = open_dataset(DataConfig.model_validate(section), seed=0).test
    assert test.labels is not None
    assert np.unique(test.labels).tolist() == [1, 2]
    named = DataConfig.model_validate({**section, "classes": ["c", "b"]})
    test = open_dataset(named, seed=0).test
    assert test.labels is not None
    assert test.labels.tolist() == [1] * 10 + [0] * 10  # the folder b, then c


def test_masks_of_splits_that_are_not_tested_may_have_other_classes(tmp_path: Path) -> None:
    section = _written(tmp_path, "masks", SPLIT) | {"classes": ["a", "b"]}
    Image.fromarray(np.full((4, 4), 7, np.uint8)).save(next(tmp_path.glob("train/masks/*.png")))
    with pytest.raises(DataError, match="class number 7"):
        open_dataset(DataConfig.model_validate(section), seed=0)
    dataset = open_dataset(DataConfig.model_validate({**section, "test_split": 1}), seed=0)
    assert {one.split for one in dataset.extremes} == {"test"}


@pytest.mark.parametrize("source", ["npz", "csv", "text", "images"])
def test_one_class_is_tested_where_its_number_is_known(tmp_path: Path, source: str) -> None:
    section = _written(tmp_path, source, ("b",))
    with pytest.raises(DataError, match="at least two classes"):
        open_dataset(DataConfig.model_validate({**section, "test_split": 1}), seed=0)
    named = {**section, "classes": ["a", "b"]}
    with pytest.raises(DataError, match="at least two classes"):
        open_dataset(DataConfig.model_validate(named), seed=0)
    test = open_dataset(DataConfig.model_validate({**named, "test_split": 1}), seed=0).test
    assert test.labels is not None
    assert test.labels.tolist() == [1] * 10


@pytest.mark.parametrize("source", ["npz", "csv", "text"])
def test_classes_are_tested_where_training_examples_have_one(tmp_path: Path, source: str) -> None:
    section = _written(tmp_path, source, ("train/b", "test/a", "test/b"))
    test = open_dataset(DataConfig.model_validate({**section, "test_split": 1}), seed=0).test
    assert test.labels is not None
    assert test.labels.tolist() == [0] * 10 + [1] * 10
    with pytest.raises(DataError, match="at least two classes"):
        open_dataset(DataConfig.model_validate(section), seed=0)


def test_one_number_is_tested_as_it_is(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x_test=np.zeros((5, 2), np.float32), y_test=np.full(5, 3))
    section = {"source": "npz", "path": str(tmp_path / "x.npz"), "test_split": 1}
    test = open_dataset(DataConfig.model_validate(section), seed=0).test
    assert test.labels is not None
    assert test.labels.tolist() == [3] * 5
