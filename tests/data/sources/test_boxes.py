"""Boxes as COCO, YOLO and Pascal VOC store them: one scene in all three, and what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from shrink.base.errors import DataError
from shrink.data.box_files import read_boxes
from shrink.data.config import DataConfig
from shrink.data.fingerprint import fingerprint
from tests.data.opened import all_of, opened

HEIGHT, WIDTH, PICTURES = 20, 40, 12
CLASSES = ("cat", "dog")
BOXES = [[(4, 2, 20, 12, 1), (10, 0, 40, 20, 0)], [(0, 0, 8, 8, 0)], []]
"""Left, top, right, bottom and class, of pictures 0, 1, 2, and again."""


def boxes_of(picture: int) -> list[tuple[int, int, int, int, int]]:
    return BOXES[picture % 3]


def pictures(folder: Path) -> None:
    folder.mkdir(parents=True)
    for number in range(PICTURES):
        gray = np.full((HEIGHT, WIDTH), number * 10, np.uint8)
        Image.fromarray(gray).save(folder / f"p{number:02}.png")


def coco(root: Path) -> Path:
    pictures(root / "images")
    rows = [
        {
            "id": 10 * picture + index,
            "image_id": picture,
            "category_id": 7 + 3 * label,
            "bbox": [left, top, right - left, bottom - top],
            "area": 0.5 * (right - left) * (bottom - top),
            "iscrowd": int(label == 0 and picture == 1),
        }
        for picture in range(PICTURES)
        for index, (left, top, right, bottom, label) in enumerate(boxes_of(picture))
    ]
    content = {
        "images": [{"id": n, "file_name": f"p{n:02}.png"} for n in range(PICTURES)],
        "categories": [{"id": 10, "name": "dog"}, {"id": 7, "name": "cat"}],
        "annotations": rows,
    }
    (root / "all.json").write_text(json.dumps(content))
    return root / "all.json"


def yolo(root: Path) -> Path:
    pictures(root / "images")
    (root / "labels").mkdir()
    (root / "classes.txt").write_text("cat\ndog\n")
    for number in range(PICTURES):
        lines = [
            f"{label} {(left + right) / 2 / WIDTH} {(top + bottom) / 2 / HEIGHT} "
            f"{(right - left) / WIDTH} {(bottom - top) / HEIGHT}"
            for left, top, right, bottom, label in boxes_of(number)
        ]
        if lines:
            (root / "labels" / f"p{number:02}.txt").write_text("\n".join(lines) + "\n")
    return root


def voc(root: Path) -> Path:
    pictures(root / "JPEGImages")
    (root / "Annotations").mkdir()
    for number in range(PICTURES):
        objects = "".join(
            f"\n<object><name>{CLASSES[label]}</name><difficult>0</difficult><bndbox>"
            f"<xmin>{left + 1}</xmin><ymin>{top + 1}</ymin><xmax>{right}</xmax>"
            f"<ymax>{bottom}</ymax></bndbox></object>"
            for left, top, right, bottom, label in boxes_of(number)
        )
        text = f"<annotation><filename>p{number:02}.png</filename>{objects}</annotation>"
        (root / "Annotations" / f"p{number:02}.xml").write_text(text)
    return root


MAKERS = {"coco": coco, "yolo": yolo, "voc": voc}


def every(dataset: Any) -> dict[int, np.ndarray]:
    """Return the boxes of each picture, by the number that its pixels say."""
    found: dict[int, np.ndarray] = {}
    for examples in (dataset.train, dataset.validation, dataset.test):
        pairs = zip(*all_of(examples), strict=True)
        found |= {int(image[0, 0, 0]) // 10: rows for image, rows in pairs}
    return found


@pytest.mark.parametrize("form", MAKERS)
def test_boxes_are_read_from_every_form(form: str, tmp_path: Path) -> None:
    dataset = opened("boxes", MAKERS[form](tmp_path / "data"))
    assert (dataset.class_names, dataset.has_boxes) == (CLASSES, True)
    found = every(dataset)
    assert sorted(found) == list(range(PICTURES))
    for number, rows in found.items():
        own = boxes_of(number)
        assert rows.shape == (2, 7)
        for row, expected in zip(rows, own, strict=False):
            np.testing.assert_allclose(row[:5], expected, atol=1e-5)
            share = 0.5 if form == "coco" else 1.0
            area = (expected[2] - expected[0]) * (expected[3] - expected[1])
            assert row[6] == pytest.approx(share * area)
            assert row[5] == (form == "coco" and number == 1)
        assert np.all(rows[len(own) :, 4] == -1)


def test_objects_of_voc_are_read_in_any_namespace(tmp_path: Path) -> None:
    path = voc(tmp_path / "data")
    plain = read_boxes(path, None)
    for file in (path / "Annotations").iterdir():
        text = file.read_text().replace("<annotation>", "<annotation xmlns='http://voc.example'>")
        file.write_text(text)
    assert read_boxes(path, None) == plain


def test_boxes_are_scaled_with_their_pictures(tmp_path: Path) -> None:
    dataset = opened("boxes", coco(tmp_path / "data"), image_size=(40, 20))
    rows = every(dataset)[0]
    np.testing.assert_allclose(rows[0], [2, 4, 10, 24, 1, 0, 0.5 * 160], atol=1e-5)


def test_splits_are_those_of_the_folder(tmp_path: Path) -> None:
    whole = json.loads(coco(tmp_path / "data").read_text())
    for name, part in (("train", range(8)), ("val", range(8, 10)), ("test", range(10, 12))):
        images = [one for one in whole["images"] if one["id"] in part]
        rows = [one for one in whole["annotations"] if one["image_id"] in part]
        content = {**whole, "images": images, "annotations": rows}
        (tmp_path / "data" / f"{name}.json").write_text(json.dumps(content))
    dataset = opened("boxes", tmp_path / "data")
    assert [len(dataset.train), len(dataset.validation), len(dataset.test)] == [8, 2, 2]
    assert dataset.given == {"validation", "test"}


@pytest.mark.parametrize("form", MAKERS)
def test_fingerprint_follows_boxes_and_not_the_place(form: str, tmp_path: Path) -> None:
    one, other = (MAKERS[form](tmp_path / name / "data") for name in "ab")

    def printed(path: Path) -> str:
        return fingerprint(DataConfig(source="boxes", path=str(path)))

    assert printed(one) == printed(other)
    changed = {"coco": "all.json", "yolo": "labels/p00.txt", "voc": "Annotations/p00.xml"}[form]
    file = tmp_path / "b" / "data" / changed
    file.write_text(
        file.read_text().replace("12<", "11<").replace("0.35", "0.34").replace("16, 10", "16, 9")
    )
    assert printed(one) != printed(other)


@pytest.mark.parametrize(
    ("form", "file", "change", "words", "where"),
    [
        ("coco", "all.json", ("[4, 2, 16, 10]", "[4, 2, 60, 10]"), "not inside", "annotation 0"),
        ("coco", "all.json", ('"category_id": 10', '"category_id": 4'), "category 4", "annotation"),
        ("coco", "all.json", ('"p00.png"', '"gone.png"'), "no picture", "image 0"),
        ("coco", "all.json", ("[4, 2, 16, 10]", "[4, 2]"), "bbox is not", "annotation 0"),
        ("coco", "all.json", ("[4, 2, 16, 10]", "[4, 2, NaN, 10]"), "not finite", "annotation 0"),
        ("coco", "all.json", ('"area": 80.0', '"area": Infinity'), "not finite", "annotation 0"),
        ("coco", "all.json", ("[4, 2, 16, 10]", '[4, "2", 16, 10]'), "holds '2'", "annotation 0"),
        ("coco", "all.json", ("[4, 2, 16, 10]", '"4216"'), "bbox is not", "annotation 0"),
        ("coco", "all.json", ("[4, 2, 16, 10]", "[4, 2, true, 10]"), "holds True", "annotation 0"),
        ("coco", "all.json", ('"area": 80.0', '"area": null'), "area is None", "annotation 0"),
        ("coco", "all.json", ('"area": 80.0', '"area": -1'), "0 or more", "annotation 0"),
        ("coco", "all.json", ('"p01.png"', '"./p00.png"'), "is image 0 too", "image 1"),
        ("voc", "Annotations/p01.xml", ("p01.png", "p00.png"), "belongs to p00.xml", "p01.xml"),
        ("coco", "all.json", (', "name": "dog"', ""), "name is missing", "categories[0]"),
        ("coco", "all.json", ('"id": 7,', '"id": "7",'), "numbers and texts", "all.json"),
        ("coco", "all.json", ('"id": 7,', '"id": 10,'), "10 occurs twice", "categories[1]"),
        ("coco", "all.json", ('"dog"', '"cat"'), "'cat' occurs twice", "categories[1]"),
        ("coco", "all.json", ('"iscrowd": 1', '"iscrowd": "0"'), "iscrowd is '0'", "annotation 10"),
        ("coco", "all.json", ('"iscrowd": 1', '"iscrowd": 2'), "iscrowd is 2", "annotation 10"),
        ("coco", "all.json", ('"image_id": 0', '"image_id": [0]'), "image_id is", "annotation 0"),
        ("coco", "all.json", ('"id": 1, "file', '"id": 0, "file'), "0 occurs twice", "image 0"),
        ("coco", "all.json", ('"p00.png"', '"../out.png"'), "leaves the folder", "image 0"),
        ("coco", "all.json", ('"p00.png"', '"a/../../o.png"'), "leaves the folder", "image 0"),
        ("coco", "all.json", ('"p00.png"', '"/out.png"'), "leaves the folder", "image 0"),
        ("coco", "all.json", ('"p00.png"', '"p\\u0000.png"'), "not a file name", "image 0"),
        ("coco", "all.json", ('"p00.png"', "null"), "file_name is None", "image 0"),
        ("yolo", "labels/p00.txt", ("0 0.625", "nan 0.625"), "no class nan", "p00.txt:2"),
        ("yolo", "labels/p00.txt", ("0 0.625", "inf 0.625"), "no class inf", "p00.txt:2"),
        ("voc", "Annotations/p00.xml", ("p00.png", "../o.png"), "leaves the folder", "p00.xml"),
        ("yolo", "labels/p00.txt", ("0 0.625", "5 0.625"), "no class 5", "p00.txt:2"),
        ("yolo", "labels/p00.txt", ("1 0.3 ", "1 0.9 "), "not inside", "p00.txt:1"),
        ("yolo", "labels/p00.txt", ("1 0.3 ", "1 "), "not five numbers", "p00.txt:1"),
        (
            "voc",
            "Annotations/p00.xml",
            ("<xmax>40<", "<xmax>60<"),
            "not inside",
            "p00.xml: object 2",
        ),
        ("voc", "Annotations/p00.xml", ("p00.png", "gone.png"), "no picture", "p00.xml"),
        ("voc", "Annotations/p00.xml", ("ymin", "top"), "no bndbox", "p00.xml: object 1"),
        ("voc", "Annotations/p00.xml", ("</object>", ""), "cannot be read", "p00.xml"),
        *(
            (
                "voc",
                "Annotations/p00.xml",
                ("<annotation>", f"<?xml version='1.0' encoding='{encoding}'?><annotation>"),
                "cannot be read: .*encoding",
                "p00.xml",
            )
            for encoding in ("nobody", "shift_jis")
        ),
        (
            "voc",
            "Annotations/p00.xml",
            ("t>0</d", "t>yes</d"),
            "difficult is 'yes'",
            "p00.xml: object 1",
        ),
        ("yolo", "classes.txt", ("dog", "cat"), "'cat' occurs twice", "classes.txt:2"),
        ("yolo", "classes.txt", ("cat\n", "cat\n\n"), "line is empty", "classes.txt:2"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(
    form: str, file: str, change: tuple[str, str], words: str, where: str, tmp_path: Path
) -> None:
    path = MAKERS[form](tmp_path / "data")
    broken = tmp_path / "data" / file
    assert change[0] in broken.read_text()
    broken.write_text(broken.read_text().replace(*change))
    with pytest.raises(DataError, match=words) as raised:
        read_boxes(path, None)
    assert where in str(raised.value.subject)
    assert raised.value.exit_code == 3


def test_box_beside_its_picture_by_less_than_a_pixel_is_cut_to_the_edge(tmp_path: Path) -> None:
    path = coco(tmp_path / "data")
    path.write_text(path.read_text().replace("[4, 2, 16, 10]", f"[{WIDTH + 0.5}, 1, 0.4, 4]"))
    (box, _) = read_boxes(path, None).splits["all"][0].boxes
    assert (box.left, box.top, box.right, box.bottom) == (WIDTH, 1, WIDTH, 5)


def test_class_that_data_classes_lacks_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no class 'dog'") as raised:
        read_boxes(voc(tmp_path / "data"), ["cat", "owl"])
    assert "p00.xml: object 1" in str(raised.value.subject)


@pytest.mark.parametrize("form", MAKERS)
def test_two_names_of_one_split_are_refused(form: str, tmp_path: Path) -> None:
    path = MAKERS[form](tmp_path / "data")
    root, lists = tmp_path / "data", tmp_path / "data" / "ImageSets" / "Main"
    lists.mkdir(parents=True)
    for name in ("train", "val", "validation"):
        if form == "coco":
            (root / f"{name}.json").write_bytes(path.read_bytes())
        elif form == "yolo":
            (root / "images" / name).mkdir()
        else:
            (lists / f"{name}.txt").write_text("p00\n")
    with pytest.raises(DataError, match="both val and validation"):
        read_boxes(root, None)


def test_trainval_of_voc_trains_without_what_other_lists_name(tmp_path: Path) -> None:
    path = voc(tmp_path / "data")
    lists = path / "ImageSets" / "Main"
    lists.mkdir(parents=True)
    (lists / "trainval.txt").write_text("".join(f"p{n:02}\n" for n in range(9)))
    (lists / "test.txt").write_text("p08\np09\np10\n")
    splits = read_boxes(path, None).splits
    found = {name: [Path(one.file).name for one in own] for name, own in splits.items()}
    assert found == {
        "train": [f"p{n:02}.png" for n in range(8)],
        "test": ["p08.png", "p09.png", "p10.png"],
    }
    (lists / "train.txt").write_text("p00\n")
    assert len(read_boxes(path, None).splits["train"]) == 1


def test_class_that_data_classes_names_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="names a class twice"):
        read_boxes(yolo(tmp_path / "data"), ["cat", "cat"])


def test_folder_without_boxes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no boxes that shrink reads"):
        read_boxes(tmp_path, None)


@pytest.mark.parametrize("form", MAKERS)
def test_pictures_of_one_content_in_two_splits_are_named(form: str, tmp_path: Path) -> None:
    path = MAKERS[form](tmp_path / "data")
    assert not opened("boxes", path).shared()
    whole = opened("boxes", path)
    shared, twin = (Path(whole.membership().name(s, 0)) for s in ("train", "test"))  # type: ignore[misc]
    twin.write_bytes(shared.read_bytes())
    again = opened("boxes", path)
    (found,) = again.shared()
    assert (found.split, found.other, found.count) == ("test", "train", 1)
    assert shared.name in found.example
    assert twin.name in found.example
    membership = again.membership()  # type: ignore[misc]
    assert membership.identified_by == "file"
    assert len(np.intersect1d(membership.splits["train"], membership.splits["test"])) == 1


def test_examples_are_told_by_their_file_whatever_its_name(tmp_path: Path) -> None:
    one, other = opened("boxes", coco(tmp_path / "a")), opened("boxes", yolo(tmp_path / "b"))
    for split in ("train", "validation", "test"):
        own, same = (dataset.membership().splits[split] for dataset in (one, other))  # type: ignore[misc]
        np.testing.assert_array_equal(own, same)
