from __future__ import annotations

import os
from pathlib import Path

import pytest

from shrink.base.errors import DataError
from shrink.data.folders import find_images


def _touch(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def test_find_images_sorts_classes_and_files(tmp_path: Path) -> None:
    root = _touch(tmp_path, "dog/b.png", "dog/a.JPG", "cat/c.jpeg", "ant/d.gif", "ant/e.bmp")
    folders = find_images(root)
    assert list(folders.splits) == ["all"]
    assert {k: list(v) for k, v in folders.splits["all"].items()} == {
        "ant": ["ant/d.gif", "ant/e.bmp"],
        "cat": ["cat/c.jpeg"],
        "dog": ["dog/a.JPG", "dog/b.png"],
    }
    assert list(folders.splits["all"]) == ["ant", "cat", "dog"]
    assert folders.notes() == ()


def test_find_images_takes_parts_and_val_for_validation(tmp_path: Path) -> None:
    root = _touch(tmp_path, "train/a/1.png", "val/a/2.png", "test/a/3.png", "old/a/4.png")
    folders = find_images(root)
    assert folders.splits == {
        "train": {"a": ["train/a/1.png"]},
        "validation": {"a": ["val/a/2.png"]},
        "test": {"a": ["test/a/3.png"]},
    }
    assert folders.names == ["test/a/3.png", "train/a/1.png", "val/a/2.png"]
    assert folders.notes() == (
        "ignored in the image folders: 1 folders beside train, validation and test",
    )


def test_find_images_takes_train_for_a_class_when_it_holds_images(tmp_path: Path) -> None:
    root = _touch(tmp_path, "car/1.png", "train/2.png")
    assert find_images(root).splits == {"all": {"car": ["car/1.png"], "train": ["train/2.png"]}}


def test_find_images_counts_what_it_ignores(tmp_path: Path) -> None:
    root = _touch(
        tmp_path, "a/1.png", "a/Thumbs.db", "a/notes.txt", "a/.DS_Store", "a/deep/2.png", "3.png"
    )
    assert find_images(root).notes() == (
        "ignored in the image folders: 2 files that are no images, "
        "1 folders inside class folders, 1 hidden files, 1 images outside class folders",
    )


def test_find_images_ends_when_links_loop(tmp_path: Path) -> None:
    root = _touch(tmp_path, "a/1.png", "b/2.png")
    (root / "up").symlink_to(root)
    (root / "a" / "up").symlink_to(root / "a")
    (root / "a" / "self.png").symlink_to(root / "a" / "self.png")
    (root / "a" / "gone.png").symlink_to(root / "nowhere.png")
    folders = find_images(root)
    assert folders.names == ["a/1.png", "b/2.png"]
    assert folders.ignored == {
        "links to a folder that contains it": 2,
        "broken links and special files": 2,
    }


def test_find_images_follows_links_to_images_and_classes(tmp_path: Path) -> None:
    _touch(tmp_path, "store/1.png")
    root = _touch(tmp_path / "data", "b/2.png")
    (root / "a").symlink_to(tmp_path / "store")
    (root / "b" / "3.png").symlink_to(tmp_path / "store" / "1.png")
    assert find_images(root).names == ["a/1.png", "b/2.png", "b/3.png"]


def test_find_images_does_not_open_special_files(tmp_path: Path) -> None:
    root = _touch(tmp_path, "a/1.png")
    os.mkfifo(root / "a" / "pipe.png")  # to open it would block for ever
    assert find_images(root).names == ["a/1.png"]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ((), "no images"),
        (("a/notes.txt",), "no images"),
        (("1.png",), "no images .* in folders by class"),
        (("train/a/1.png", "val/a/1.png", "validation/a/1.png"), "both val and validation"),
        (("train/a/1.png", "valid/a/1.png", "validation/a/1.png"), "both validation and valid"),
    ],
)
def test_find_images_raises_data_error_when_folders_are_wrong(
    tmp_path: Path, names: tuple[str, ...], message: str
) -> None:
    with pytest.raises(DataError, match=message) as caught:
        find_images(_touch(tmp_path, *names))
    assert caught.value.subject == str(tmp_path)
