"""Tables in CSV files, and the order of classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from shrink.base.errors import DataError
from shrink.data.folders import named_classes
from shrink.data.opening import open_dataset_for
from shrink.engine.class_weights import class_weights_of
from shrink.recipe.data_reference import parse_data_reference
from tests.data.opened import SPLITS, all_of, as_parquet, configured, opened

ROWS = 40


def table(folder: Path, header: str, row: Any) -> Path:
    path = folder / "t.csv"
    path.write_text("\n".join([header, *(row(i) for i in range(ROWS))]) + "\n")
    return path


def test_open_dataset_reads_a_table_of_labels(tmp_path: Path) -> None:
    path = table(tmp_path, "a,label,b", lambda i: f"{i},{i % 2},{-i / 4}")
    dataset = opened("csv", path)
    x, y = all_of(dataset.test)
    assert x.dtype == np.float32
    np.testing.assert_array_equal(x[:, 1], -x[:, 0] / 4)
    np.testing.assert_array_equal(y, x[:, 0] % 2)
    assert (dataset.num_classes, dataset.class_names) == (2, ("0", "1"))
    assert parse_data_reference("t.csv", tmp_path)["source"] == "csv"


def test_labels_may_have_zeros_in_front(tmp_path: Path) -> None:
    path = table(tmp_path, "a,label", lambda i: f"{i},{i % 2:07}")
    dataset = opened("csv", path)
    _, y = all_of(dataset.test)
    assert (dataset.num_classes, y.dtype) == (2, np.int64)


@pytest.mark.parametrize("index", ["", "Unnamed: 0"])
def test_row_numbers_of_pandas_are_no_input(tmp_path: Path, index: str) -> None:
    path = table(tmp_path, f"{index},a,label", lambda i: f"{i},{i / 4},{i % 2}")
    dataset = opened("csv", path)
    x, _ = dataset.train.arrays(np.arange(2))
    assert x.shape == (2, 1)
    assert "row numbers" in dataset.notes[1]
    assert opened("csv", path, inputs=[index]).train.arrays(np.arange(2))[0].shape == (2, 1)


@pytest.mark.parametrize("separator", [";", "\t"])
def test_semicolons_and_tabs_separate_values(tmp_path: Path, separator: str) -> None:
    path = table(tmp_path, separator.join("ab") + separator + "y", lambda i: f"{i}.5,{i},{i % 2}")
    path.write_text(path.read_text().replace(",", separator))
    assert opened("csv", path).train.arrays(np.arange(3))[0].shape == (3, 2)


def test_open_dataset_reads_real_targets_and_chosen_columns(tmp_path: Path) -> None:
    path = table(tmp_path, "a,b,c,d", lambda i: f"{i},{2 * i},{i / 2},{i / 8}")
    dataset = opened("csv", path, targets=["c", "d"], inputs=["b"])
    x, y = dataset.train.arrays(np.arange(3))
    assert x.shape == (3, 1)
    np.testing.assert_array_equal(y, np.concatenate([x / 4, x / 16], axis=1))
    assert dataset.num_classes is None


@pytest.mark.parametrize(
    ("classes", "numbers"),
    [(None, {"cat": 0, "dog": 1}), (("dog", "bird", "cat"), {"dog": 0, "cat": 2})],
)
def test_open_dataset_numbers_words_as_classes_says(
    tmp_path: Path, classes: tuple[str, ...] | None, numbers: dict[str, int]
) -> None:
    path = table(tmp_path, "x,class", lambda i: f"{i},{'dog' if i % 4 else 'cat'}")
    dataset = opened("csv", path, classes=classes)
    x, y = dataset.train.arrays(np.arange(10))
    wanted = [numbers["dog" if value % 4 else "cat"] for value in x[:, 0]]
    np.testing.assert_array_equal(y, wanted)
    assert dataset.class_names == (classes or ("cat", "dog"))
    assert dataset.num_classes == len(dataset.class_names)


def test_a_class_of_a_table_may_be_called_nan_or_inf(tmp_path: Path) -> None:
    path = table(tmp_path, "x,class", lambda i: f"{i},{('nan', 'inf', 'pita')[i % 3]}")
    dataset = opened("csv", path)
    x, y = dataset.train.arrays(np.arange(10))
    assert dataset.class_names == ("inf", "nan", "pita")
    np.testing.assert_array_equal(y, np.array([1, 0, 2])[x[:, 0].astype(int) % 3])
    gap = table(tmp_path, "x,y", lambda i: f"{i},{'nan' if i == 3 else i / 8}")
    with pytest.raises(DataError, match="y in line 5 is 'nan', not a finite number"):
        opened("csv", gap)


def test_open_dataset_refuses_a_label_that_training_lacks(tmp_path: Path) -> None:
    names = ("train", "test", "train", "train")

    def row(i: int) -> str:
        return f"{i},{5 if i == 9 else i // 4 % 2},{names[i % 4]}"

    path = table(tmp_path, "x,y,split", row)
    with pytest.raises(DataError, match=r"y_test\[2\] is 5, out of range: .* 0 to 1"):
        opened("csv", path)


def test_open_dataset_keeps_the_split_that_a_table_gives(tmp_path: Path) -> None:
    names = ("train", "val", "test", "train")
    path = table(tmp_path, "x,y,split", lambda i: f"{i},{i // 4 % 2},{names[i % 4]}")
    dataset = opened("csv", path)
    x, _ = dataset.test.arrays(np.arange(10))
    np.testing.assert_array_equal(x[:, 0] % 4, 2)


@pytest.mark.parametrize(
    ("header", "row", "words"),
    [
        ("a,b", "1,2", "cannot infer the target column"),
        ("a,y", "x,1", "a in line 2 is 'x', not a finite number"),
        ("a,y", "1", "line 2 has 1 values for 2 columns"),
        ("y", "1", "no column is left for the input"),
        ("a,a,y", "1,2,3", "two columns have the same name"),
        ("a,y", "nan,1", "not a finite number"),
        ("a,y", "1e39,1", "'1e39', not a finite number"),
        ("a,y", ",1", "a in line 2 is '', not a finite number"),
    ],
)
def test_open_dataset_refuses_a_table(tmp_path: Path, header: str, row: str, words: str) -> None:
    with pytest.raises(DataError, match=words):
        opened("csv", table(tmp_path, header, lambda i: row))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a,y\n1,0\n\n\n2,1\nbad,1\n", 6),
        ('\n"a\nb",y\n1,0\nbad,1\n', 5),
        ('a,y\n"1\n",0\nbad,1\n', 4),
    ],
)
def test_open_dataset_names_the_line_of_a_table_as_an_editor_does(
    tmp_path: Path, text: str, line: int
) -> None:
    for row in ("bad,1", "3"):
        (tmp_path / "t.csv").write_text(text.replace("bad,1", row))
        with pytest.raises(DataError, match=f"line {line} (is 'bad'|has 1 values)"):
            opened("csv", tmp_path / "t.csv")
    assert text.splitlines()[line - 1] == "bad,1"


def test_open_dataset_orders_folders_of_images_by_classes(tmp_path: Path) -> None:
    for place, name in enumerate(("circle", "cross", "square")):
        (tmp_path / name).mkdir()
        for number in range(12):
            image = Image.fromarray(np.full((4, 4), 80 * place, np.uint8))
            image.save(tmp_path / name / f"{number}.png")
    dataset = opened("images", tmp_path, classes=["square", "circle", "cross"])
    x, y = dataset.train.arrays(np.arange(20))
    shown = x[:, 0, 0, 0] // 80
    np.testing.assert_array_equal(y, np.array([1, 2, 0])[shown])
    assert dataset.class_names == ("square", "circle", "cross")
    with pytest.raises(DataError, match=r"'cross' is not in data\.classes"):
        opened("images", tmp_path, classes=["square", "circle", "cros"])


def test_open_dataset_names_the_classes_of_whole_numbers(tmp_path: Path) -> None:
    path = table(tmp_path, "a,y", lambda i: f"{i},{i % 3}")
    dataset = opened("csv", path, classes=["a", "b", "c", "d"])
    assert (dataset.class_names, dataset.num_classes) == (("a", "b", "c", "d"), 4)
    weights = class_weights_of({"b": 2.0, "d": 3.0}, dataset)
    np.testing.assert_array_equal(weights, [1, 2, 1, 3])
    with pytest.raises(DataError, match=r"has 2 names, and the labels go up to 2"):
        opened("csv", path, classes=["a", "b"])


@pytest.mark.parametrize(
    ("shape", "settings", "wanted", "note"),
    [
        ((8, 8, 3), {}, (8, 8, 3), "4 x 4 x 1 are resized to the model's input, 8 x 8 x 3"),
        ((4, 4, 1), {}, (4, 4, 1), None),
        ((8, 8, 3), {"image_size": [2, 2]}, (2, 2, 1), None),
        (None, {}, (4, 4, 1), None),
    ],
)
def test_open_dataset_for_brings_images_to_the_models_input(
    tmp_path: Path,
    shape: tuple[int, int, int] | None,
    settings: dict[str, Any],
    wanted: tuple[int, int, int],
    note: str | None,
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for number in range(10):
            grey = Image.fromarray(np.full((4, 4), number, np.uint8))
            grey.save(tmp_path / name / f"{number}.png")
    dataset = open_dataset_for(configured("images", tmp_path, **settings), 0, lambda: shape)
    assert dataset.train.arrays(np.arange(2))[0].shape == (2, *wanted)
    assert [n for n in dataset.notes if "resized" in n] == (
        [n for n in dataset.notes if note and note in n]
    )
    assert any("resized" in n for n in dataset.notes) == (note is not None)


@pytest.mark.parametrize(
    ("names", "wanted", "found"),
    [
        (("cat", "dog"), None, ("cat", "dog")),
        ((), ("cat", "dog"), ("cat", "dog")),  # of so many classes that the source has no names
        (("0", "1"), ("cat", "dog"), ("cat", "dog")),
        (("0", "1"), ("1", "2"), ("1", "2")),
        (("cat", "dog"), ("Katze", "Hund"), ("Katze", "Hund")),
        (("cat", "dog"), ("cat", "dog", "bird"), ("cat", "dog", "bird")),
        (("cat", "dog"), ("dog", "cat"), None),
        (("cat", "dog"), ("dog", "bird", "cat"), None),
        (("0", "1"), ("1", "0"), None),
    ],
)
def test_named_classes_gives_stored_labels_no_other_class(
    names: tuple[str, ...], wanted: tuple[str, ...] | None, found: tuple[str, ...] | None
) -> None:
    if found is None:
        with pytest.raises(DataError, match="another order than the labels"):
            named_classes(names, 2, wanted, "records")
    else:
        assert named_classes(names, 2, wanted, "records") == found


def test_open_dataset_reads_from_parquet_what_csv_says_too(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    columns = {
        "a": random.normal(size=ROWS),
        "b": random.normal(size=ROWS).astype(np.float32),
        "c": random.integers(-9, 9, ROWS),
        "d": [bool(i % 3) for i in range(ROWS)],
        "label": [("cat", "dog")[i % 2] for i in range(ROWS)],
        "split": [("train", "val", "test", "train")[i % 4] for i in range(ROWS)],
    }
    lines = [",".join(columns)]
    for row in zip(*columns.values(), strict=True):
        lines.append(",".join(str(int(v)) if isinstance(v, bool) else str(v) for v in row))
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    one = opened("csv", tmp_path / "t.csv")
    other = opened("csv", as_parquet(tmp_path / "t.parquet", columns))
    assert one.class_names == other.class_names
    for split in SPLITS:
        for x, y in zip(*(all_of(getattr(of, split)) for of in (one, other)), strict=True):
            np.testing.assert_array_equal(x, y)
    assert parse_data_reference("t.parquet", tmp_path)["source"] == "csv"


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a": [0.5, None], "y": [0, 1]}, "a in row 2 is empty"),
        ({"a": [0.5, float("nan")], "y": [0, 1]}, "a in line 2 is 'nan', not a finite number"),
        ({"a": [[1], [2]], "y": [0, 1]}, "not a finite number"),
        ({"a": [], "y": []}, "no rows"),
    ],
)
def test_open_dataset_refuses_a_parquet_file_by_its_row(
    tmp_path: Path, columns: dict[str, Any], message: str
) -> None:
    path = as_parquet(tmp_path / "t.parquet", columns)
    with pytest.raises(DataError, match=message):
        opened("csv", path)


def test_open_dataset_refuses_what_is_no_parquet_file(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "t.parquet").write_bytes(b"PAR1 nothing")
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        opened("csv", tmp_path / "t.parquet")
