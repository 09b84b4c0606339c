"""Reading what TensorFlow Datasets has prepared; only where the extra `tfds` is installed."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shrink.base.errors import DataError, ResourceError
from shrink.data.dataset import Dataset
from shrink.data.fingerprint import fingerprint
from shrink.data.pipeline import training_batches
from tests.data.opened import all_of, configured, counts, opened

IS_HERE = importlib.util.find_spec("tensorflow_datasets") is not None
# Its writer, which only these tests use, imports a package that it does not require.
needs_tfds = pytest.mark.skipif(
    not IS_HERE or importlib.util.find_spec("importlib_resources") is None,
    reason="needs tensorflow-datasets and importlib_resources",
)
SHAPE = (6, 5, 3)


@pytest.fixture(scope="module", params=["tfrecord", "array_record"])
def prepared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30 examples to train on and 9 to test, written by TensorFlow Datasets itself."""
    import tensorflow_datasets as tfds

    features = {
        "image": tfds.features.Image(shape=SHAPE),
        "sized": tfds.features.Image(shape=(None, None, 3)),
        "mask": tfds.features.Image(shape=(None, None, 1)),
        "label": tfds.features.ClassLabel(names=["cat", "dog", "emu"]),
        "age": tfds.features.Scalar(np.float32),
        "name": tfds.features.Text(),
    }
    folder = tmp_path_factory.mktemp("tfds")
    tfds.dataset_builders.store_as_tfds_dataset(
        name="toy",
        version="1.0.0",
        data_dir=folder,
        features=tfds.features.FeaturesDict(features),
        split_datasets={
            "train": [(i, _example(i)) for i in range(30)],
            "test": [(i, _example(100 + i)) for i in range(9)],
        },
        file_format=request.param,
    )
    return folder / "toy" / "1.0.0"


def _example(number: int) -> dict[str, Any]:
    return {
        "image": np.full(SHAPE, number, np.uint8),
        "sized": np.full((4 + number % 3, 7, 3), number, np.uint8),
        "mask": np.array([[[0], [7]]], np.uint8),
        "label": number % 3,
        "age": np.float32(number),
        "name": str(number),
    }


def _open(folder: Path, **settings: Any) -> Dataset:
    return opened("tfds", folder, **{"inputs": ["image"], "targets": ["label"], **settings})


@needs_tfds
def test_open_dataset_reads_every_example_of_its_splits(prepared: Path) -> None:
    dataset = _open(prepared)
    assert (counts(dataset), dataset.class_names) == ([27, 3, 9], ("cat", "dog", "emu"))
    found = []
    for part in (dataset.train, dataset.validation):
        x, y = all_of(part)
        assert (x.dtype, x.shape[1:]) == (np.uint8, SHAPE)
        np.testing.assert_array_equal(y, x[:, 0, 0, 0] % 3)
        np.testing.assert_array_equal(part.labels, y)
        found += x[:, 0, 0, 0].tolist()
    assert sorted(found) == list(range(30))
    x, _ = dataset.test.arrays(np.arange(9))
    assert sorted(x[:, 5, 4, 2].tolist()) == list(range(100, 109))


@needs_tfds
def test_open_dataset_takes_several_features_and_resizes_images(prepared: Path) -> None:
    train = _open(prepared, inputs=["sized", "age"], targets=["age"], image_size=[8, 9]).train
    (image, age), y = next(
        training_batches(train, global_batch_size=7, seed=0, first_step=0, last_step=1)
        .as_numpy_iterator()
    )  # fmt: skip
    assert (image.shape, image.dtype) == ((7, 8, 9, 3), np.uint8)
    np.testing.assert_array_equal(image[:, 3, 3, 0], age)
    np.testing.assert_array_equal(y, age[:, None])
    assert train.labels is None


@needs_tfds
def test_open_dataset_resizes_targets_without_interpolation(prepared: Path) -> None:
    masks = _open(prepared, targets=["mask"], image_size=[4, 6]).train
    _, y = masks.arrays(np.arange(2))
    np.testing.assert_array_equal(y[..., 0], np.full((2, 4, 6), [0, 0, 0, 7, 7, 7]))


@needs_tfds
def test_feature_may_be_input_and_target(prepared: Path) -> None:
    dataset = _open(prepared, inputs=["age"], targets=["age", "label"])
    x, (age, label) = dataset.train.arrays(np.arange(20))
    np.testing.assert_array_equal(age[:, 0], x)
    np.testing.assert_array_equal(label, x % 3)


@needs_tfds
@pytest.mark.parametrize("damage", ["missing", "cut short"])
def test_open_dataset_raises_data_error_when_a_shard_is_damaged(
    prepared: Path, tmp_path: Path, damage: str
) -> None:
    folder = tmp_path / "toy" / "1.0.0"
    shutil.copytree(prepared, folder)
    shard = next(folder.glob("toy-train*"))
    if damage == "missing":
        shard.unlink()
    else:
        shard.write_bytes(shard.read_bytes()[:500])
    with pytest.raises(DataError, match="the split train cannot be read: ") as caught:
        _open(folder)
    assert caught.value.hint == "prepare the data set again"


@needs_tfds
def test_open_dataset_decodes_an_autoencoders_input_alone(prepared: Path) -> None:
    x, y = _open(prepared, target="input", targets=None).train.arrays(np.arange(4))
    np.testing.assert_array_equal(x, y)


@needs_tfds
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"inputs": None}, "does not say which features are inputs and targets"),
        ({"inputs": ["imag"]}, "no feature imag; there are"),
        ({"inputs": ["sized"]}, r"the shape of sized differs between examples: \(None, None, 3\)"),
        ({"inputs": ["name"]}, "name holds no array of numbers"),
    ],
)
def test_open_dataset_raises_data_error_when_features_do_not_suit(
    prepared: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        _open(prepared, **settings)


@needs_tfds
def test_fingerprint_changes_with_a_shard(prepared: Path) -> None:
    config = configured("tfds", prepared)
    before = fingerprint(config)
    shard = next(prepared.glob("toy-train*"))
    content = shard.read_bytes()
    try:
        shard.write_bytes(content + b"\0")
        assert fingerprint(config) != before
    finally:
        shard.write_bytes(content)


@pytest.mark.skipif(IS_HERE, reason="the package is here")
def test_open_dataset_names_the_extra_when_the_package_is_missing(tmp_path: Path) -> None:
    for name in ("dataset_info.json", "features.json"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(ResourceError, match="tensorflow-datasets") as caught:
        _open(tmp_path)
    assert (
        caught.value.hint
        == "python -m pip install 'array-record>=0.6' 'tensorflow-datasets>=4.9.9'"
    )
