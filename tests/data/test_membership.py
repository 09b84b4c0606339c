"""Nothing is tested on that was trained on, and nothing trained on that was tested on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shrink.base.cache import cache_root
from shrink.base.errors import DataError
from shrink.data.arrays import ArrayExamples
from shrink.data.config import DataConfig, NormalizeConfig
from shrink.data.dataset import Dataset, left_out
from shrink.data.examples import SPLIT_NAMES
from shrink.data.membership import Membership, read_membership
from shrink.data.opening import open_dataset
from shrink.data.views import View
from shrink.run.execute import _test_examples
from tests.data.images import write_folders, write_image
from tests.data.opened import as_parquet

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(200, 5)).astype(np.float32)
Y = np.arange(200) % 4


@pytest.fixture(autouse=True, scope="module")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHRINK_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


def _npz(path: Path, rows: np.ndarray) -> DataConfig:
    np.savez(path, x=X[rows], y=Y[rows])
    return DataConfig(source="npz", path=str(path))


def _rows(dataset: Dataset, part: str) -> set[bytes]:
    """Return the inputs of a part: what an example is, by no hash of ours."""
    examples = getattr(dataset, part)
    return {row.tobytes() for row in examples.arrays(np.arange(len(examples)))[0]}


def _earlier(dataset: Dataset, folder: Path) -> Path:
    assert dataset.membership is not None
    path = folder / f"{len(list(folder.iterdir()))}.bin"
    path.write_bytes(dataset.membership().content())
    return path


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("data", ["the same", "more", "half", "normalized"])
def test_open_dataset_tests_on_nothing_that_an_earlier_run_trained_on(
    tmp_path: Path, data: str, seed: int
) -> None:
    first = open_dataset(_npz(tmp_path / "a.npz", np.arange(120)), seed=7)
    rows = {"more": np.arange(200), "half": np.arange(60, 180)}.get(data, np.arange(120))
    config = _npz(tmp_path / "b.npz", RANDOM.permutation(rows))
    if data == "normalized":
        config = config.model_copy(update={"normalize": NormalizeConfig(scale=1.0)})
    second = open_dataset(config, seed, [_earlier(first, tmp_path)])
    trained = _rows(first, "train") | _rows(first, "validation")
    everything = _rows(open_dataset(config, seed), "test")
    assert _rows(second, "test") == everything - trained
    assert second.left_out is not None
    assert second.left_out.count("test") == len(everything & trained)
    for part in ("train", "validation"):
        assert not _rows(second, part) & _rows(first, "test")
        assert _rows(second, part) == _rows(open_dataset(config, seed), part) - _rows(first, "test")


def test_open_dataset_keeps_out_of_a_third_run_what_either_of_two_trained_on(
    tmp_path: Path,
) -> None:
    first = open_dataset(_npz(tmp_path / "a.npz", np.arange(100)), seed=1)
    before = [_earlier(first, tmp_path)]
    second = open_dataset(_npz(tmp_path / "b.npz", np.arange(50, 150)), 2, before)
    before.append(_earlier(second, tmp_path))
    third = open_dataset(_npz(tmp_path / "c.npz", np.arange(200)), 3, before)
    for earlier in (first, second):
        assert not _rows(third, "test") & (_rows(earlier, "train") | _rows(earlier, "validation"))
        assert not _rows(earlier, "test") & _rows(third, "train")


def test_open_dataset_refuses_data_that_was_all_trained_on(tmp_path: Path) -> None:
    first = open_dataset(_npz(tmp_path / "a.npz", np.arange(200)), seed=1)
    rows = [int(np.flatnonzero((np.frombuffer(r, np.float32) == X).all(1))[0])
            for r in sorted(_rows(first, "train"))]  # fmt: skip
    config = _npz(tmp_path / "b.npz", np.array(rows))
    with pytest.raises(DataError, match="trained on all 28 test examples"):
        open_dataset(config, 0, [_earlier(first, tmp_path)])


def test_open_dataset_trains_on_what_was_tested_on_when_there_is_nothing_else(
    tmp_path: Path,
) -> None:
    first = open_dataset(_npz(tmp_path / "a.npz", np.arange(200)), seed=1)
    rows = [int(np.flatnonzero((np.frombuffer(r, np.float32) == X).all(1))[0])
            for r in sorted(_rows(first, "test"))]  # fmt: skip
    second = open_dataset(_npz(tmp_path / "b.npz", np.array(rows)), 0, [_earlier(first, tmp_path)])
    assert len(second.test) == 8
    assert len(second.train) == 28


def test_open_dataset_tells_images_by_their_files_in_any_folder_and_size(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        write_folders(tmp_path / folder, count=20)
    one = DataConfig(source="images", path=str(tmp_path / "a"))
    other = DataConfig(source="images", path=str(tmp_path / "b"), image_size=(4, 4))
    first = open_dataset(one, seed=1)
    second = open_dataset(other, seed=2, earlier=[_earlier(first, tmp_path)])
    assert first.membership is not None
    assert second.membership is not None
    assert second.left_out is not None
    assert second.left_out.comparable
    assert not np.isin(second.membership().splits["test"], first.membership().trained()).any()
    assert second.left_out.count("test") > 0


def test_open_dataset_says_when_earlier_examples_are_of_another_form(tmp_path: Path) -> None:
    first = open_dataset(_npz(tmp_path / "a.npz", np.arange(100)), seed=1)
    second = open_dataset(DataConfig(source="digits"), 0, [_earlier(first, tmp_path)])
    assert second.left_out is not None
    assert not second.left_out.comparable
    assert [second.left_out.count(part) for part in SPLIT_NAMES] == [0, 0, 0]


@pytest.mark.parametrize(
    ("names", "given"),
    [(("x", "y"), set()), (("x_train", "y_train", "x_test", "y_test"), {"test"})],
)
def test_open_dataset_says_which_parts_the_source_gives(
    tmp_path: Path, names: tuple[str, ...], given: set[str]
) -> None:
    arrays: dict[str, Any] = {name: X if name[0] == "x" else Y for name in names}
    np.savez(tmp_path / "a.npz", **arrays)
    dataset = open_dataset(DataConfig(source="npz", path=str(tmp_path / "a.npz")), 0)
    assert dataset.given == given


HASHES = st.lists(st.integers(0, 30), max_size=20).map(lambda v: np.array(v, np.uint64))
MEMBERSHIPS = st.builds(
    lambda a, b, c: Membership("inputs", {"train": a, "validation": b, "test": c}),
    HASHES, HASHES, HASHES,
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.too_slow])  # of a loaded machine, not of the test
@given(MEMBERSHIPS, st.lists(MEMBERSHIPS, max_size=3))
def test_left_out_leaves_no_test_example_that_was_trained_on(
    own: Membership, earlier: list[Membership]
) -> None:
    trained = {int(v) for one in earlier for p in ("train", "validation") for v in one.splits[p]}
    wanted = [int(v) for v in own.splits["test"] if int(v) not in trained]
    if len(own.splits["test"]) and not wanted:
        with pytest.raises(DataError):
            left_out(own, earlier)
        return
    found = left_out(own, earlier)
    assert own.kept(found.masks).splits["test"].tolist() == wanted


@given(MEMBERSHIPS)
def test_membership_is_read_as_it_was_written(one: Membership) -> None:
    path = cache_root() / "splits.bin"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(one.content())
    found = read_membership(path)
    assert found.identified_by == one.identified_by
    for part in SPLIT_NAMES:
        np.testing.assert_array_equal(found.splits[part], one.splits[part])
    path.write_bytes(one.content() + b"!")
    with pytest.raises(DataError, match="cannot be read"):
        read_membership(path)


def test_a_view_gives_batches_of_the_examples_that_it_names() -> None:
    base = ArrayExamples(X, Y.astype(np.int64), np.arange(200))
    rows = np.array([3, 150, 7])
    view = View(base, rows=rows)
    for x, y in (view.arrays(np.array([2, 0])), view.load(np.array([2, 0]))):
        np.testing.assert_array_equal(x, X[[7, 3]])
        np.testing.assert_array_equal(y, Y[[7, 3]])
    assert len(view) == 3
    np.testing.assert_array_equal(view.labels, Y[rows])


TRAINED, TESTED = range(60), range(57, 67)
"""Numbers of the examples of the training and the test split: three are in both."""


def _array_splits() -> dict[str, Any]:
    return {
        f"{name}_{split}": array[list(rows)]
        for name, array in (("x", X), ("y", Y))
        for split, rows in (("train", TRAINED), ("test", TESTED))
    }


def _as_npz(folder: Path) -> dict[str, Any]:
    np.savez(folder / "a.npz", **_array_splits())
    return {"source": "npz", "path": str(folder / "a.npz")}


def _as_hdf5(folder: Path) -> dict[str, Any]:
    import h5py

    with h5py.File(folder / "a.h5", "w") as file:
        for name, array in _array_splits().items():
            file[name] = array
    return {"source": "hdf5", "path": str(folder / "a.h5")}


def _table(make: Any) -> list[dict[str, Any]]:
    pairs = [("train", row) for row in TRAINED] + [("test", row) for row in TESTED]
    return [{**make(row), "label": f"c{row % 4}", "split": split} for split, row in pairs]


def _as_csv(folder: Path) -> dict[str, Any]:
    rows = _table(lambda row: {"a": X[row, 0], "b": X[row, 1]})
    lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
    (folder / "a.csv").write_text("\n".join(lines) + "\n")
    return {"source": "csv", "path": str(folder / "a.csv")}


def _as_parquet(folder: Path) -> dict[str, Any]:
    rows = _table(lambda row: {"a": float(X[row, 0]), "b": float(X[row, 1])})
    return {"source": "csv", "path": str(as_parquet(folder / "a.parquet", rows))}


def _as_text(folder: Path) -> dict[str, Any]:
    """Words of the test split that training has not are all the same id."""
    rows = _table(lambda row: {"text": f"word{row} {row}"})
    lines = [",".join(rows[0]), *(",".join(row.values()) for row in rows)]
    (folder / "t.csv").write_text("\n".join(lines) + "\n")
    return {"source": "text", "path": str(folder / "t.csv"), "tokens": {"length": 4}}


def _as_images(folder: Path) -> dict[str, Any]:
    for split, rows in (("train", TRAINED), ("test", TESTED)):
        for row in rows:
            write_image(folder / split / f"c{row % 4}" / f"{split}{row}.png", seed=row)
    return {"source": "images", "path": str(folder)}


def _as_audio(folder: Path) -> dict[str, Any]:
    from scipy.io import wavfile

    for split, rows in (("train", TRAINED), ("test", TESTED)):
        for row in rows:
            clip = np.random.default_rng(row).integers(-1000, 1000, 400).astype(np.int16)
            path = folder / split / f"c{row % 4}" / f"{split}{row}.wav"
            path.parent.mkdir(parents=True, exist_ok=True)
            wavfile.write(path, 8000, clip)
    return {"source": "audio", "path": str(folder), "audio": {"sample_rate": 8000}}


def _as_tfrecord(folder: Path) -> dict[str, Any]:
    import tensorflow as tf

    def record(row: int) -> bytes:
        x = tf.train.Feature(bytes_list=tf.train.BytesList(value=[X[row].tobytes()]))
        y = tf.train.Feature(int64_list=tf.train.Int64List(value=[int(Y[row])]))
        features = tf.train.Features(feature={"x": x, "y": y})
        return bytes(tf.train.Example(features=features).SerializeToString())

    for split, rows in (("train", TRAINED), ("test", TESTED)):
        with tf.io.TFRecordWriter(str(folder / f"{split}-0.tfrecord")) as writer:
            for row in rows:
                writer.write(record(row))
    features = {"x": {"type": "raw", "dtype": "float32", "shape": [5]}, "y": {"type": "int64"}}
    return {"source": "tfrecord", "path": str(folder), "features": features}


def _as_python(folder: Path) -> dict[str, Any]:
    np.savez(folder / "a.npz", **_array_splits())
    (folder / "data.py").write_text(
        "import numpy as np\nfrom pathlib import Path\ndef examples():\n"
        "    a = np.load(Path(__file__).parent / 'a.npz')\n"
        "    return {s: list(zip(a['x_' + s], a['y_' + s])) for s in ('train', 'test')}\n"
    )
    return {"source": "python", "path": f"{folder / 'data.py'}:examples"}


@pytest.mark.parametrize(
    "write",
    [
        _as_npz, _as_hdf5, _as_csv, _as_parquet, _as_text, _as_images, _as_audio, _as_tfrecord,
        _as_python,
    ],
)  # fmt: skip
def test_examples_in_two_splits_are_counted_and_left_out(write: Any, tmp_path: Path) -> None:
    config = DataConfig.model_validate(write(tmp_path))
    dataset = open_dataset(config, 0)
    shared = dataset.shared()
    assert {(one.split, one.total) for one in shared} == {("test", 10)}
    assert sum(one.count for one in shared) == 3
    left = open_dataset(config.model_copy(update={"overlap": "leave_out"}), 0)
    assert (len(left.train), len(left.validation)) == (len(dataset.train), len(dataset.validation))
    # Labels tell which seven are left: they stand in the order of TESTED.
    assert len(left.test) == 7
    assert left.test.labels is not None
    np.testing.assert_array_equal(np.sort(left.test.labels), np.sort(np.arange(60, 67) % 4))
    assert left.membership is not None
    assert not len(np.intersect1d(left.membership().splits["test"], left.membership().trained()))


def test_leaving_out_examples_in_two_splits_keeps_slices_and_earlier_runs(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {
        **_array_splits(),
        "g_train": np.arange(60),
        "g_test": np.arange(57, 67),
    }
    np.savez(tmp_path / "a.npz", **arrays)
    section = {"source": "npz", "path": str(tmp_path / "a.npz"), "slices": ["g"]}
    config = DataConfig.model_validate({**section, "overlap": "leave_out"})
    first = open_dataset(_npz(tmp_path / "b.npz", np.arange(60, 63)), 0)
    dataset = open_dataset(config, 0, [_earlier(first, tmp_path)])
    kept = dataset.slice_values["test"]["g"].astype(int)
    np.testing.assert_array_equal(dataset.test.arrays(np.arange(len(kept)))[0], X[kept])
    seen = _rows(first, "train") | _rows(first, "validation")
    assert set(kept) == {row for row in range(60, 67) if X[row].tobytes() not in seen}


def test_a_test_split_of_training_examples_alone_cannot_be_left_out(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x_train=X[:60], y_train=Y[:60], x_test=X[:9], y_test=Y[:9])
    section = {"source": "npz", "path": str(tmp_path / "a.npz"), "overlap": "leave_out"}
    with pytest.raises(DataError, match="all 9 test examples"):
        open_dataset(DataConfig.model_validate(section), 0)


@pytest.mark.parametrize("real", [False, True])
def test_test_examples_are_the_same_in_another_order_and_never_with_other_targets(
    tmp_path: Path, real: bool
) -> None:
    targets = Y[:20] + 0.5 if real else Y[:20]
    hashes = []
    for name, inputs, own in (
        ("a", X[:20], targets),
        ("b", X[:20], targets),
        ("c", X[19::-1], targets[::-1]),
        ("d", X[:20], targets[::-1]),
    ):
        train = {"x_train": X[20:], "y_train": Y[20:] + (targets[0] - Y[0])}
        np.savez(tmp_path / f"{name}.npz", x_test=inputs, y_test=own, **train)
        config = DataConfig(source="npz", path=str(tmp_path / f"{name}.npz"))
        hashes.append(_test_examples(open_dataset(config, 0), config))
    first, copied, turned, others = hashes
    assert first is not None
    assert first == copied
    assert others not in (first, turned)
    # Only the whole file tells real targets apart.
    assert (turned == first) is not real
