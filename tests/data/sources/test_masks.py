"""Images with masks in two folders, masks in arrays, and what is wrong with them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tf_keras as keras
from PIL import Image

from shrink.base.errors import DataError
from shrink.data.opening import open_dataset
from shrink.data.slices import slicings_of
from shrink.data.sources.masks import read_mask
from shrink.recipe.data_reference import parse_data_reference
from shrink.task.config import TaskConfig
from shrink.task.interface import keras_interface
from shrink.task.resolve import resolve_task
from tests.data.opened import SPLITS, all_of, configured, counts, everything, opened

COUNT, HEIGHT, WIDTH = 20, 6, 9


def numbers(index: int) -> np.ndarray:
    """Return the mask of an example, which its image repeats as gray values."""
    return np.random.default_rng(index).integers(0, 4, (HEIGHT, WIDTH)).astype(np.uint8)


def palette(mask: np.ndarray) -> Image.Image:
    image = Image.fromarray(mask, mode="P")
    image.putpalette([value for color in range(256) for value in (255 - color, color, 7)])
    return image


def write(folder: Path, count: int = COUNT, first: int = 0) -> Path:
    for name in ("images", "masks"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for index in range(first, first + count):
        mask = numbers(index)
        Image.fromarray(mask * 60).save(folder / "images" / f"{index:02}.png")
        stored = palette(mask) if index % 2 else Image.fromarray(mask)
        stored.save(folder / "masks" / f"{index:02}.png")
    return folder


def test_open_dataset_pairs_images_with_palette_and_index_masks(tmp_path: Path) -> None:
    dataset = opened("masks", write(tmp_path))
    x, y = everything(dataset)
    assert (x.shape, y.shape) == ((COUNT, HEIGHT, WIDTH, 1), (COUNT, HEIGHT, WIDTH))
    np.testing.assert_array_equal(x[..., 0], y * 60)
    assert (dataset.class_names, dataset.num_classes) == (("0", "1", "2", "3"), None)
    assert parse_data_reference(str(tmp_path), tmp_path)["source"] == "masks"


def test_slices_by_path_stay_with_their_images(tmp_path: Path) -> None:
    config = configured("masks", write(tmp_path), slices=[{"pattern": r"\d+"}])
    dataset = open_dataset(config, seed=0)
    for split in SPLITS:
        (slicing,) = slicings_of(dataset, split, config)
        _, y = all_of(getattr(dataset, split))
        for name, mask in zip(slicing.labels, y, strict=True):
            np.testing.assert_array_equal(mask, numbers(int(name)))


def test_open_dataset_keeps_the_splits_of_folders_and_names_classes(tmp_path: Path) -> None:
    write(tmp_path / "train", 10)
    write(tmp_path / "val", 3, first=10)
    write(tmp_path / "test", 4, first=20)
    dataset = opened("masks", tmp_path, classes=["sky", "road", "tree", "car"])
    assert counts(dataset) == [10, 3, 4]
    assert dataset.class_names == ("sky", "road", "tree", "car")
    np.testing.assert_array_equal(dataset.test.arrays(np.arange(1))[1][0], numbers(20))
    assert parse_data_reference(str(tmp_path), tmp_path)["source"] == "masks"


def test_open_dataset_resizes_masks_to_the_nearest_class(tmp_path: Path) -> None:
    write(tmp_path)
    dataset = opened("masks", tmp_path, image_size=[HEIGHT * 2, WIDTH * 3])
    own = opened("masks", tmp_path)
    _, y = dataset.test.arrays(np.arange(3))
    _, small = own.test.arrays(np.arange(3))
    np.testing.assert_array_equal(y, small.repeat(2, axis=1).repeat(3, axis=2))


def png(mask: np.ndarray, depth: int, colour: int) -> bytes:
    """Return a PNG of so many bits a pixel, gray (0) or with a palette (3)."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    height, width = mask.shape
    bits = [
        "".join(f"{value:0{depth}b}" for value in row).ljust(-(-width * depth // 8) * 8, "0")
        for row in mask.tolist()
    ]
    lines = b"".join(
        b"\0" + bytes(int(row[i : i + 8], 2) for i in range(0, len(row), 8)) for row in bits
    )
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    colours = chunk(b"PLTE", bytes(range(9, 9 + 3 * 2 ** min(depth, 4)))) if colour == 3 else b""
    body = colours + chunk(b"IDAT", zlib.compress(lines))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + body + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("depth", "colour"),
    [(1, 0), (2, 0), (4, 0), (8, 0), (16, 0), (1, 3), (2, 3), (4, 3), (8, 3)],
)
def test_read_mask_gives_the_stored_number_at_every_depth(
    tmp_path: Path, depth: int, colour: int
) -> None:
    highest = min(2**depth, 256)
    mask = (np.arange(5 * 53) % highest).reshape(5, 53)
    path = tmp_path / "m.png"
    path.write_bytes(png(mask, depth, colour))
    found = read_mask(str(path))
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, mask)


def test_read_mask_refuses_a_flipped_bit_in_any_byte(tmp_path: Path) -> None:
    whole, path = png(numbers(0), 8, 3), tmp_path / "m.png"
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(DataError):
            read_mask(str(path))


def test_open_dataset_takes_gray_values_of_four_bits_as_class_numbers(tmp_path: Path) -> None:
    write(tmp_path)
    for index in range(COUNT):
        (tmp_path / "masks" / f"{index:02}.png").write_bytes(png(numbers(index), 4, 0))
    dataset = opened("masks", tmp_path)
    x, y = all_of(dataset.test)
    np.testing.assert_array_equal(x[..., 0], y * 60)
    assert dataset.class_names == ("0", "1", "2", "3")


def remove_a_mask(folder: Path) -> str:
    (folder / "masks" / "03.png").unlink()
    return "images/03.png: there is no file 03.* in masks/"


def remove_an_image(folder: Path) -> str:
    (folder / "images" / "04.png").unlink()
    return "masks/04.png: there is no file 04.* in images/"


def shrink_a_mask(folder: Path) -> str:
    palette(numbers(5)[:, :-1]).save(folder / "masks" / "05.png")
    return r"masks/05.png: the mask is 6 x 8 .*images/05.png, is 6 x 9"


def colour_a_mask(folder: Path) -> str:
    palette(numbers(5)).convert("RGB").save(folder / "masks" / "05.png")
    return "masks/05.png: the mask is in colours"


def raise_a_class(folder: Path) -> str:
    mask = numbers(6)
    mask[2, 3] = 200
    palette(mask).save(folder / "masks" / "06.png")
    return "masks/06.png: the mask has the class number 200, and data.classes has 4"


def cut_a_mask_short(folder: Path) -> str:
    path = folder / "masks" / "07.png"
    path.write_bytes(path.read_bytes()[:60])
    return "masks/07.png: not a PNG that can be decoded"


def add_a_twin(folder: Path) -> str:
    Image.fromarray(numbers(1)).save(folder / "images" / "01.bmp")
    return "images/01.png: it has the stem of images/01.bmp"


def put_a_jpeg_among_masks(folder: Path) -> str:
    Image.fromarray(numbers(1)).save(folder / "masks" / "99.jpg")
    return "masks/99.jpg: not one of .png"


@pytest.mark.parametrize(
    "spoil",
    [
        remove_a_mask, remove_an_image, shrink_a_mask, colour_a_mask, raise_a_class,
        cut_a_mask_short, add_a_twin, put_a_jpeg_among_masks,
    ],
)  # fmt: skip
def test_open_dataset_names_the_file_that_is_wrong(
    tmp_path: Path, spoil: Callable[[Path], str]
) -> None:
    write(tmp_path)
    words = spoil(tmp_path)
    with pytest.raises(DataError, match=words) as caught:
        opened("masks", tmp_path, classes=["a", "b", "c", "d"])
    assert caught.value.exit_code == 3


def test_a_changed_mask_is_looked_at_again(tmp_path: Path) -> None:
    write(tmp_path)
    opened("masks", tmp_path, classes=["a", "b", "c", "d"])
    raise_a_class(tmp_path)
    with pytest.raises(DataError, match="class number 200"):
        opened("masks", tmp_path, classes=["a", "b", "c", "d"])


@pytest.mark.parametrize(
    ("dtype", "fed"),
    [("uint8", "uint8"), ("uint16", "int32"), ("int64", "int64"), ("int8", "int32")],
)
def test_open_dataset_feeds_masks_of_arrays_as_whole_numbers(
    tmp_path: Path, dtype: str, fed: str
) -> None:
    masks = np.stack([numbers(index) for index in range(COUNT)])
    path = tmp_path / "m.npz"
    np.savez(path, x=masks[..., None].astype(np.float32), y=masks.astype(dtype))
    dataset = opened("npz", path)
    x, y = dataset.train.arrays(np.arange(5))
    assert y.dtype == fed
    np.testing.assert_array_equal(x[..., 0], y)
    assert [(one.split, one.value) for one in dataset.extremes] == [("train", k) for k in range(4)]


@pytest.mark.parametrize("source", ["masks", "npz"])
def test_void_pixels_are_no_class_and_may_be_ignored(tmp_path: Path, source: str) -> None:
    folder = write(tmp_path / "data")
    masks = np.stack([numbers(index) for index in range(COUNT)])
    masks[:, 0, :] = 255
    for index, mask in enumerate(masks):
        Image.fromarray(mask).save(folder / "masks" / f"{index:02}.png")
    np.savez(tmp_path / "m.npz", x=np.zeros((COUNT, HEIGHT, WIDTH, 1), np.float32), y=masks)
    dataset = opened(source, folder if source == "masks" else tmp_path / "m.npz")
    image = keras.Input((HEIGHT, WIDTH, 1))
    net = keras_interface(keras.Model(image, keras.layers.Conv2D(4, 1)(image)))
    loss = {"name": "sparse_categorical_crossentropy", "ignore_class": 255}
    task = resolve_task(TaskConfig.model_validate({"loss": loss}), dataset, net)
    assert "255" in task.losses[0]
    with pytest.raises(DataError, match="is 255, and the model has 4 outputs") as caught:
        resolve_task(TaskConfig(), dataset, net)
    assert "ignore_class: 255" in str(caught.value.hint)
    small = keras_interface(keras.Model(image, keras.layers.Conv2D(3, 1)(image)))
    with pytest.raises(DataError, match="is 3, and the model has 3 outputs"):
        resolve_task(TaskConfig.model_validate({"loss": loss}), dataset, small)
    if source == "masks":
        assert dataset.class_names == ("0", "1", "2", "3")
