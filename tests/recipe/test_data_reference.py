from __future__ import annotations

from pathlib import Path

import pytest

from shrink.base.errors import DataError, RecipeError
from shrink.recipe.data_reference import NamedData, parse_data_reference, parse_named_data


def test_parse_data_reference_takes_a_folder_for_images(tmp_path: Path) -> None:
    (tmp_path / "digits").mkdir()
    expected = {"source": "images", "path": str(tmp_path / "digits")}
    assert parse_data_reference("./digits", tmp_path) == expected
    assert parse_data_reference(str(tmp_path / "digits"), Path("/")) == expected


@pytest.mark.parametrize(
    ("files", "name", "recorded", "source"),
    [
        ({"a.csv": "path,label"}, "a.csv", None, "images"),
        ({"a.csv": "path,label"}, "a.csv", "audio", "audio"),
        ({"a.csv": "path,x,y"}, "a.csv", "tiles", "tiles"),
        ({"a.csv": "x,y"}, "a.csv", "audio", "audio"),  # refused there: it lists no clips
        ({"a.csv": "x,y"}, "a.csv", "images", "csv"),
        ({"a.csv": "text,label"}, "a.csv", "text", "text"),
        ({"a.npz": ""}, "a.npz", "series", "series"),
        ({"a.npz": ""}, "a.npz", "hdf5", "npz"),
        ({"a.jsonl": ""}, "a.jsonl", "csv", "text"),
        ({"a.json": "{}"}, "a.json", "boxes", "boxes"),
        ({"a/labels/1.txt": "", "a/images/1.png": ""}, "a", "boxes", "boxes"),
        ({"a/train.json": "{}", "a/train/1.png": ""}, "a", "boxes", "boxes"),
        ({"a/data.mdb": ""}, "a", "lmdb", "lmdb"),
        ({"a/ant/1.png": ""}, "a", "npz", "images"),
    ],
)
def test_files_that_several_sources_read_are_of_the_source_that_a_model_was_made_with(
    files: dict[str, str], name: str, recorded: str | None, source: str, tmp_path: Path
) -> None:
    for file, content in files.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(content, encoding="utf-8")
    expected = {"source": source, "path": str(tmp_path / name)}
    assert parse_data_reference(name, tmp_path, recorded) == expected


def test_parse_data_reference_reads_the_section_of_a_recipe(tmp_path: Path) -> None:
    (tmp_path / "recipes").mkdir()
    recipe = tmp_path / "recipes" / "r.yaml"
    recipe.write_text("name: r\ndata: {source: images, path: ../pictures, image_size: [4, 4]}\n")
    section = parse_data_reference("recipes/r.yaml", tmp_path)
    assert section["image_size"] == [4, 4]
    assert Path(section["path"]).resolve() == (tmp_path / "pictures").resolve()
    assert Path(section["path"]).is_absolute()


def test_parse_data_reference_follows_extends(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "b.yaml").write_text("data: {source: npz, path: a.npz, test_split: 0.3}")
    (tmp_path / "r.yaml").write_text("extends: base/b.yaml\n")
    (tmp_path / "s.yaml").write_text("extends: base/b.yaml\ndata: {test_split: 0.4}\n")
    path = str(tmp_path / "base" / "a.npz")
    inherited = {"source": "npz", "path": path, "test_split": 0.3}
    assert parse_data_reference("r.yaml", tmp_path) == inherited
    assert parse_data_reference("s.yaml", tmp_path) == {**inherited, "test_split": 0.4}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("none.npz", r"none\.npz: no such file or folder"),
        ("digit", "no such file or folder\n.*did you mean digits"),
        ("pictres", "no such file or folder\n.*did you mean .*/pictures"),
        ("images", "the source images needs a path"),
        ("notes.txt", r"notes\.txt: not a kind of data"),
        ("empty.yaml", r"empty\.yaml: no data section"),
    ],
)
def test_parse_data_reference_raises_data_error_when_it_is_no_data(
    tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "pictures").mkdir()
    (tmp_path / "notes.txt").touch()
    (tmp_path / "empty.yaml").write_text("name: x\n")
    with pytest.raises(DataError, match=message):
        parse_data_reference(text, tmp_path)


def test_parse_named_data_takes_the_task_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "d.yaml").write_text(
        "data: {source: npz, path: x.npz}\ntask: {loss: binary_crossentropy}\n"
    )
    named = parse_named_data("d.yaml", tmp_path)
    assert named.data == {"source": "npz", "path": str(tmp_path / "x.npz")}
    assert named.task == {"loss": "binary_crossentropy"}
    assert parse_named_data("digits", tmp_path) == NamedData({"source": "digits"}, {})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("data: {source: digits}\ntsak: {}\n", ["d.yaml:2:1", "'tsak'", "did you mean task?"]),
        ("data: {source: digits}\ngates: {}\n", ["d.yaml:2:1", "'gates'", "shrink run"]),
        ("data: digits\n", ["d.yaml:1:1", "data: must be a mapping"]),
        ("data: {source: digits}\ntask: 3\n", ["d.yaml:2:1", "task: must be a mapping"]),
        ("data: {sorce: digits}\n", ["d.yaml:1:8", "unknown key 'sorce'", "source?"]),
        ("data: {source: digits}\ntask:\n  los: x\n", ["d.yaml:3:3", "did you mean loss?"]),
    ],
)
def test_parse_named_data_refuses_what_it_would_not_use(
    tmp_path: Path, text: str, words: list[str]
) -> None:
    (tmp_path / "d.yaml").write_text(text)
    with pytest.raises(RecipeError) as caught:
        parse_named_data("d.yaml", tmp_path)
    said = "; ".join(str(error) for error in (caught.value, *caught.value.others))
    said += str(caught.value.hint)
    assert [word for word in words if word not in said] == []
