from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_array_equal
from PIL import Image

from shrink.base.errors import DataError
from shrink.base.types import Spec
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.decoding import decoded
from shrink.data.examples import SPLIT_NAMES
from shrink.data.opening import open_dataset
from shrink.data.pipeline import evaluation_batches, naming_bad_examples, training_batches
from tests.data.images import write_folders, write_image
from tests.data.opened import all_of, counts, everything, opened
from tests.forks import call


def _open(path: Path, **settings: Any) -> Dataset:
    return opened("images", path, **{"cache": "none", **settings})


def _all(dataset: Dataset) -> np.ndarray:
    return everything(dataset)[0]


def test_images_without_classes_are_examples_without_targets(tmp_path: Path) -> None:
    for i in range(10):
        write_image(tmp_path / f"{i}.png", seed=i)
    dataset = opened("images", tmp_path, target="none")
    assert (counts(dataset), dataset.class_names, dataset.notes) == ([7, 1, 2], (), ())
    with pytest.raises(DataError, match="in folders by class") as error:
        opened("images", tmp_path)
    assert "data.target: none" in str(error.value.hint)


def test_open_dataset_splits_folders_by_fractions(tmp_path: Path) -> None:
    dataset = _open(write_folders(tmp_path))
    parts = (dataset.train, dataset.validation, dataset.test)
    assert counts(dataset) == [14, 2, 4]
    assert dataset.class_names == ("cat", "dog")
    assert dataset.train.input_spec == Spec((6, 5, 3), np.dtype(np.uint8))
    assert all(set(np.asarray(part.labels)) == {0, 1} for part in parts)


def test_open_dataset_takes_validation_from_the_given_train_part(tmp_path: Path) -> None:
    write_folders(tmp_path / "train")
    write_folders(tmp_path / "test", count=3)
    assert counts(_open(tmp_path)) == [18, 2, 6]


def test_arrays_decodes_png_to_the_pixels_that_were_written(tmp_path: Path) -> None:
    dataset = _open(write_folders(tmp_path))
    expected = [np.asarray(Image.open(file)) for file in sorted(tmp_path.rglob("*.png"))]
    found = {image.tobytes() for image in _all(dataset)}
    assert found == {image.tobytes() for image in expected}


@pytest.mark.parametrize("ending", ["png", "jpg", "bmp", "gif"])
@pytest.mark.parametrize("settings", [{}, {"image_size": [4, 9]}, {"channels": 1}])
def test_arrays_equals_batches_bit_for_bit(
    tmp_path: Path, ending: str, settings: dict[str, Any]
) -> None:
    for name in ("a", "b"):
        for index in range(4):
            write_image(tmp_path / name / f"{index}.{ending}", seed=index, size=(7, 8))
    train = _open(tmp_path, **settings).train
    x, y = all_of(train)
    (fed,) = evaluation_batches(train, 100).as_numpy_iterator()
    assert np.array_equal(x, fed[0])
    assert np.array_equal(y, fed[1])
    assert x.shape[1:] == train.input_spec.shape
    assert x.std() > 10


def test_arrays_resizes_like_antialiased_bilinear(tmp_path: Path) -> None:
    # Halving each side with a triangle filter of twice the width: weights 1 3 3 1 inside.
    row = np.array([0, 0, 80, 160, 240, 240, 0, 0], np.uint8)
    for name in ("a", "b"):
        for index in range(3):
            (tmp_path / name).mkdir(exist_ok=True)
            Image.fromarray(np.tile(row, (2, 1))).save(tmp_path / name / f"{index}.png")
    x, _ = _open(tmp_path, image_size=[2, 4]).train.arrays(np.array([0]))
    assert x.dtype == np.uint8
    assert x[0, 0, 1:3, 0].tolist() == [(80 * 3 + 160 * 3 + 240) // 8, (160 + 240 * 6) // 8]


@pytest.mark.parametrize(
    ("mode", "ending", "channels"),
    [("L", "png", 1), ("L", "jpg", 1), ("RGBA", "png", 3), ("L", "bmp", 1), ("L", "gif", 3)],
)
def test_open_dataset_takes_the_channels_of_the_first_image(
    tmp_path: Path, mode: str, ending: str, channels: int
) -> None:
    for name in ("a", "b"):
        for index in range(4):
            write_image(tmp_path / name / f"{index}.{ending}", seed=index, mode=mode)
    dataset = _open(tmp_path)
    assert dataset.train.input_spec.shape == (6, 5, channels)
    assert _all(dataset).shape == (8, 6, 5, channels)


def test_arrays_takes_the_first_frame_of_a_gif(tmp_path: Path) -> None:
    black, white = (Image.new("L", (5, 6), value) for value in (0, 255))
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for index in range(3):
            target = tmp_path / name / f"{index}.gif"
            black.save(target, save_all=True, append_images=[white])
    assert _all(_open(tmp_path)).max() == 0


def test_open_dataset_reports_ignored_files(tmp_path: Path) -> None:
    write_folders(tmp_path)
    (tmp_path / "cat" / "notes.txt").touch()
    assert _open(tmp_path).notes == ("ignored in the image folders: 1 files that are no images",)


def test_open_dataset_takes_a_single_class_for_an_autoencoder(tmp_path: Path) -> None:
    dataset = _open(write_folders(tmp_path, classes=("normal",)), target="input")
    x, y = dataset.train.arrays(np.arange(2))
    assert x.dtype == np.uint8
    assert np.array_equal(x, y)


def test_open_dataset_raises_data_error_when_there_is_a_single_class(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match="a single class, 'cat'; a classifier needs at least two classes"
    ) as caught:
        _open(write_folders(tmp_path, classes=("cat",)))
    assert caught.value.subject == str(tmp_path)


@pytest.mark.parametrize(("full", "lacking"), [("train", "test"), ("test", "train")])
def test_open_dataset_raises_data_error_when_a_part_lacks_a_class(
    tmp_path: Path, full: str, lacking: str
) -> None:
    write_folders(tmp_path / full)
    write_folders(tmp_path / lacking, classes=("cat",))
    with pytest.raises(DataError, match=f"the class 'dog' of {lacking} has no images"):
        _open(tmp_path)


def test_open_dataset_raises_data_error_when_a_class_is_empty(tmp_path: Path) -> None:
    (write_folders(tmp_path) / "emu").mkdir()
    with pytest.raises(DataError, match="the class 'emu' has no images"):
        _open(tmp_path)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:60])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_cut, "not an image that can be decoded"),
        (lambda path: path.write_bytes(b""), "the file is empty"),
        (lambda path: path.write_bytes(b"no image"), "not an image that can be decoded"),
        (lambda path: path.write_bytes(b"\xff\xd8\xff\xe0"), "not an image that can be decoded"),
        (lambda path: path.unlink(), "cannot be read: No such file"),
        (lambda path: write_image(path, size=(5, 6)),
         r"is 5 x 6 pixels .* first one, .*00\.png, is 6 x 5\n.*image_size: \[6, 5\]"),
    ],
)  # fmt: skip
def test_training_names_the_file_that_is_wrong(tmp_path: Path, damage: Any, message: str) -> None:
    dataset = _open(write_folders(tmp_path))
    bad = Path(dataset.membership().name("train", 5))  # type: ignore[misc]
    damage(bad)
    with pytest.raises(DataError, match=message) as caught:
        all_of(dataset.train)
    assert caught.value.subject == str(bad)
    batches = training_batches(
        dataset.train, global_batch_size=4, seed=0, first_step=0, last_step=4
    )
    with pytest.raises(DataError, match=message), naming_bad_examples(dataset.train):
        list(batches)


def test_arrays_takes_the_colours_of_a_palette(tmp_path: Path) -> None:
    for ending in ("bmp", "gif", "png"):
        for name in ("a", "b"):
            for index in range(3):
                path = tmp_path / ending / name / f"{index}.{ending}"
                path.parent.mkdir(parents=True, exist_ok=True)
                colours = Image.new("RGB", (5, 6), (250, 3, 77)).quantize(4)
                colours.save(path, ending)
        assert np.unique(_all(_open(tmp_path / ending)).reshape(-1, 3), axis=0).tolist() == [
            [250, 3, 77]
        ]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_arrays_turns_as_exif_asks(tmp_path: Path, orientation: int) -> None:
    upright = np.zeros((16, 24), np.uint8)
    upright[:8, :8], upright[8:, 8:] = 255, 120
    # What a camera stores that was held so (CIPA DC-008, 4.6.4 A): rows and columns by corner.
    stored = {
        1: upright, 2: upright[:, ::-1], 3: upright[::-1, ::-1], 4: upright[::-1],
        5: upright.T, 6: np.rot90(upright, 1), 7: upright[::-1, ::-1].T, 8: np.rot90(upright, -1),
    }[orientation]  # fmt: skip
    exif = Image.Exif()
    exif[0x0112] = orientation
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for index in range(3):
            target = tmp_path / name / f"{index}.jpg"
            Image.fromarray(np.ascontiguousarray(stored)).save(target, quality=100, exif=exif)
    images = _all(_open(tmp_path))
    assert images.shape == (6, 16, 24, 1)
    np.testing.assert_allclose(images[0, :, :, 0], upright, atol=8)


def test_arrays_takes_the_high_byte_of_16_bits(tmp_path: Path) -> None:
    values = np.arange(30, dtype=np.uint16).reshape(6, 5) * 2000 + 77
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for index in range(3):
            Image.fromarray(values).save(tmp_path / name / f"{index}.png")
    np.testing.assert_array_equal(_all(_open(tmp_path))[0, :, :, 0], values >> 8)


def _csv(folder: Path, text: str) -> Path:
    for index in range(12):
        write_image(folder / f"{index}.png", seed=index)
    (folder / "list.csv").write_text(text)
    return folder / "list.csv"


@pytest.mark.parametrize(
    ("label", "names", "targets"),
    [
        (lambda i: ("dog", "cat")[i % 2], ("cat", "dog"), [(i + 1) % 2 for i in range(12)]),
        (lambda i: i % 3, ("0", "1", "2"), [i % 3 for i in range(12)]),
        (lambda i: i / 4, (), [[i / 4] for i in range(12)]),
    ],
)
def test_open_dataset_takes_a_list_of_images(
    tmp_path: Path, label: Any, names: tuple[str, ...], targets: list[Any]
) -> None:
    rows = "".join(f"{i}.png,{label(i)}\n" for i in range(12))
    dataset = _open(_csv(tmp_path, "path,label\n" + rows))
    assert dataset.class_names == names
    parts = (dataset.train, dataset.validation, dataset.test)
    name = dataset.membership().name  # type: ignore[misc]
    of_split = zip(SPLIT_NAMES, parts, strict=True)
    files = [int(Path(name(split, i)).stem) for split, part in of_split for i in range(len(part))]
    assert everything(dataset)[1].tolist() == [targets[file] for file in files]
    assert sorted(files) == list(range(12))


def test_open_dataset_takes_parts_and_several_labels_of_a_list(tmp_path: Path) -> None:
    rows = "".join(
        f"{i}.png,{i % 2},{i % 3 % 2},{'test' if i > 8 else 'train'}\n" for i in range(12)
    )
    dataset = _open(_csv(tmp_path, "path,red,round,split\n" + rows), targets=["red", "round"])
    _, y = dataset.test.arrays(np.arange(3))
    assert y.tolist() == [[i % 2, i % 3 % 2] for i in (9, 10, 11)]
    assert dataset.train.labels is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file,label\n0.png,1\n", "no column path"),
        ("path,class\n0.png,1\n", "no column label; there are path, class"),
        ("path,label\n", "no rows in this table"),
        ("path,label\n0.png\n", "line 2 has 1 values for 2 columns"),
        ("path,label,split\n0.png,1,tets\n", "the column split has 'tets'"),
        ("path,label\n0.png,a\n1.png,a\n", "all labels are a"),
    ],
)
def test_open_dataset_raises_data_error_when_a_list_is_wrong(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        _open(_csv(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("file,label\n0.png,1\n", "line path,label .*rename the column of the files to path"),
        ("path,class\n0.png,1\n", "rename the column to label, or set data.targets"),
    ],
)
def test_the_hint_says_what_a_list_looks_like(tmp_path: Path, text: str, hint: str) -> None:
    with pytest.raises(DataError) as caught:
        _open(_csv(tmp_path, text))
    assert caught.value.hint is not None
    assert re.search(hint, caught.value.hint)


def test_open_dataset_skips_bad_images_up_to_the_limit(tmp_path: Path) -> None:
    root = write_folders(tmp_path)
    for name in ("cat/00.png", "dog/03.png"):
        _cut(root / name)
    with pytest.raises(DataError, match=r"2 of 20 images cannot be decoded, more than 0.10%"):
        _open(root, on_bad_example="skip")
    dataset = _open(root, on_bad_example="skip", bad_examples_limit=0.1)
    assert _all(dataset).shape == (18, 6, 5, 3)
    assert dataset.notes[0].startswith("skipped 2 of 20 images that cannot be decoded: ")
    again = _open(root, on_bad_example="skip", bad_examples_limit=0.1)
    np.testing.assert_array_equal(_all(again), _all(dataset))


@pytest.mark.parametrize("behind", [b"\n", bytes(11), bytes(16), b"\xff" * 40])
def test_decoded_ignores_what_is_behind_the_end_of_a_png(tmp_path: Path, behind: bytes) -> None:
    write_image(tmp_path / "a.png")
    pixels = np.random.default_rng(0).integers(0, 256, (6, 5, 3), np.uint8)
    assert_array_equal(decoded((tmp_path / "a.png").read_bytes() + behind), pixels)


def test_decoded_refuses_a_png_that_is_cut_off_or_has_a_flipped_bit(tmp_path: Path) -> None:
    write_image(tmp_path / "a.png")
    content = (tmp_path / "a.png").read_bytes()
    damaged = [content[:-cut] for cut in (1, 4, 5, 8, 9, 11, 13, 16, 40, len(content) - 10)]
    damaged += [
        content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :] for at in range(len(content))
    ]
    for bad in damaged:
        with pytest.raises(DataError, match=r"not an image that can be decoded: (?!unpack)"):
            decoded(bad)


@pytest.mark.parametrize("content", [b"", b"no image", b"\x89PNG\r\n\x1a\n"])
def test_open_dataset_raises_data_error_when_the_first_image_is_corrupt(
    tmp_path: Path, content: bytes
) -> None:
    write_folders(tmp_path)
    (tmp_path / "cat" / "00.png").write_bytes(content)
    with pytest.raises(
        DataError, match=r"00\.png: (not an image that can be decoded|the file is empty)"
    ):
        _open(tmp_path)


def configure_devices_after_opening(path: str) -> int:
    """Return how many devices there are; they can be set until TensorFlow's runtime has started."""
    open_dataset(DataConfig(source="images", path=path), 0).train.input_spec  # noqa: B018
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    return len(tf.config.list_logical_devices("CPU"))


def test_open_dataset_leaves_devices_to_be_configured(tmp_path: Path) -> None:
    write_folders(tmp_path)
    assert call(__name__, "configure_devices_after_opening", path=str(tmp_path)) == 2
