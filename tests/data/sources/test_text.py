"""Texts as token ids: where they come from, what the vocabulary knows, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recipes.data.sentences import INTENTS, make_sentences, write
from shrink.base.errors import DataError
from shrink.data.dataset import Dataset
from shrink.data.fingerprint import fingerprint, section_by_content
from shrink.data.opening import open_dataset
from shrink.data.slices import slicings_of
from shrink.recipe.bundle import bundled_root
from shrink.recipe.data_reference import parse_data_reference
from tests.data.opened import all_of, as_parquet, configured, opened

WORDS = ("on", "off")


def rows(count: int = 30) -> list[dict[str, str]]:
    return [
        {
            "text": f"Turn it {WORDS[i % 2]}, room{i}!",
            "label": WORDS[i % 2],
            "split": ("train", "val", "test")[i % 6 // 2],
            "room": f"r{i % 3}",
        }
        for i in range(count)
    ]


def as_csv(folder: Path) -> Path:
    lines = ["text,label,split,room"]
    lines += [f'"{r["text"]}",{r["label"]},{r["split"]},{r["room"]}' for r in rows()]
    (folder / "t.csv").write_text("\n".join(lines) + "\n")
    return folder / "t.csv"


def as_json_lines(folder: Path) -> Path:
    (folder / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows()))
    return folder / "t.jsonl"


def as_parquet_file(folder: Path) -> Path:
    return as_parquet(folder / "t.parquet", rows())


def as_folder(folder: Path) -> Path:
    for number, row in enumerate(rows()):
        file = folder / "texts" / row["split"] / row["label"] / f"{number:02}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(row["text"])
    return folder / "texts"


def read_back(dataset: Dataset, split: str) -> list[tuple[str, str]]:
    """Return each text as the vocabulary has it, with its label, sorted."""
    told = dataset.front_end
    assert told is not None
    tokens = told["vocabulary"]
    ids, labels = all_of(getattr(dataset, split))
    texts = (" ".join(tokens[i] for i in row if i != told["padding_id"]) for row in ids)
    names = (dataset.class_names[label] for label in labels)
    return sorted(zip(texts, names, strict=True))


def test_a_column_to_slice_by_is_refused_of_a_folder_which_has_none(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="names 'room', and there is none"):
        opened("text", as_folder(tmp_path), tokens={"length": 8}, slices=["room"])


@pytest.mark.parametrize("write", [as_csv, as_json_lines, as_parquet_file, as_folder])
def test_open_source_reads_the_same_from_every_form(tmp_path: Path, write: Any) -> None:
    dataset = opened("text", write(tmp_path), tokens={"length": 8})
    assert dataset.class_names == ("off", "on")
    assert dataset.given == {"validation", "test"}
    expected = {
        split: sorted(
            (f"turn it {row['label']} , {{}} !".format(
                f"room{i}" if split == "train" else "[UNK]"), row["label"])
            for i, row in enumerate(rows())
            if row["split"] == name
        )
        for split, name in (("train", "train"), ("validation", "val"), ("test", "test"))
    }  # fmt: skip
    for split, pairs in expected.items():
        assert read_back(dataset, split) == pairs
    ids, _ = all_of(dataset.train)
    assert ids.dtype == np.int32
    assert ids.shape == (10, 8)


def test_vocabulary_is_learned_from_the_training_split_alone(tmp_path: Path) -> None:
    told = opened("text", as_csv(tmp_path)).front_end
    assert told is not None
    trained = {f"room{i}" for i, row in enumerate(rows()) if row["split"] == "train"}
    assert {t for t in told["vocabulary"] if t.startswith("room")} == trained
    assert told["vocabulary"][:2] == ["[PAD]", "[UNK]"]


def test_a_vocabulary_file_decides_the_ids_and_counts_by_its_content(tmp_path: Path) -> None:
    path = as_csv(tmp_path)
    words = tmp_path / "words.txt"
    words.write_text("on\n<unk>\noff\n<pad>\n")
    tokens = {"vocabulary": str(words), "unknown": "<unk>", "padding": "<pad>", "length": 7}
    config = configured("text", path, tokens=tokens)
    ids, labels = all_of(opened("text", path, tokens=tokens).test)
    np.testing.assert_array_equal(ids[:, 2], np.where(labels == 1, 0, 2))
    np.testing.assert_array_equal(ids[:, [0, 1, 3, 4, 5, 6]], [[1, 1, 1, 1, 1, 3]] * len(ids))
    before, examples = section_by_content(config), fingerprint(config)
    moved = tmp_path / "moved.txt"
    moved.write_bytes(words.read_bytes())
    same = configured("text", path, tokens={**tokens, "vocabulary": str(moved)})
    assert section_by_content(same) == before
    words.write_text("on\noff\n<unk>\n<pad>\n")
    assert section_by_content(config) != before
    assert fingerprint(config) == examples  # which texts there are is another question


def test_slices_go_by_a_column(tmp_path: Path) -> None:
    config = configured("text", as_json_lines(tmp_path), slices=["room"])
    (room,) = slicings_of(open_dataset(config, seed=0), "test", config)
    assert list(room.labels) == [r["room"] for r in rows() if r["split"] == "test"]


@pytest.mark.parametrize(
    ("content", "settings", "message"),
    [
        ("a,b,label\nx,y,0\n", {}, "cannot infer the text column"),
        ("text,label\nx,0\n,1\n", {}, "text in line 3 is empty"),
        ("text,label\nx,0\ny,0\nz,0\nu,0\n", {}, "all labels in the train split are 0"),
        ("text\nx\n", {}, "cannot infer the target column"),
        (
            "text,label,split\n" + "x,a,train\ny,b,train\n" * 8 + "z,c,test\n",
            {},
            "no training text has the label 'c'",
        ),
    ],
)
def test_open_source_refuses_what_is_no_table_of_texts(
    tmp_path: Path, content: str, settings: dict[str, Any], message: str
) -> None:
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(DataError, match=message):
        opened("text", tmp_path / "t.csv", **settings)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('{"text": "a", "label": 0}\n[1]\n', "line 2 is not a JSON object"),
        ('{"text": "a", "label": 0}\n\n{"text": "a"\n', "line 3 is not JSON"),
        ('{"text": "a", "label": 0}\n{"text": "a"}\n', "not the same keys: label"),
        ('{"text": ["a"], "label": 0}\n', "text in line 1 is"),
        ("\n", "no rows"),
    ],
)
def test_json_lines_are_refused_by_their_line(tmp_path: Path, lines: str, message: str) -> None:
    (tmp_path / "t.jsonl").write_text(lines)
    with pytest.raises(DataError, match=message):
        opened("text", tmp_path / "t.jsonl")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("[PAD]\n[UNK]\na\n\nb\n", "line 4 is empty"),
        ("[PAD]\n[UNK]\na\nb\na\n", "line 5 has 'a', and so has line 3"),
        ("[PAD]\na\n", r"no line is '\[UNK\]'"),
    ],
)
def test_a_vocabulary_file_is_refused_by_its_line(tmp_path: Path, lines: str, message: str) -> None:
    (tmp_path / "v.txt").write_text(lines)
    with pytest.raises(DataError, match=message):
        opened("text", as_csv(tmp_path), tokens={"vocabulary": str(tmp_path / "v.txt")})


def test_data_references_know_texts_by_their_files(tmp_path: Path) -> None:
    as_json_lines(tmp_path)
    as_folder(tmp_path)
    assert parse_data_reference("t.jsonl", tmp_path)["source"] == "text"
    assert parse_data_reference("texts", tmp_path)["source"] == "text"
    with pytest.raises(DataError, match="sentences was removed") as refused:
        parse_data_reference("sentences", tmp_path)
    assert "sentences.csv" in str(refused.value.hint)


def test_sentences_share_no_template_between_splits_and_are_those_of_the_file(
    tmp_path: Path,
) -> None:
    made = {split: make_sentences(split, 200) for split in ("train", "validation", "test")}
    assert make_sentences("test", 200) == made["test"]
    for one, other in (("train", "test"), ("train", "validation"), ("validation", "test")):
        assert not set(made[one].templates) & set(made[other].templates)
    assert np.bincount(made["test"].labels).tolist() == [20] * len(INTENTS)
    write(tmp_path / "sentences.csv")
    file = bundled_root() / "recipes" / "data" / "sentences.csv"
    assert (tmp_path / "sentences.csv").read_bytes() == file.read_bytes()
    # What the seed gives must never change: stored figures are of these sentences.
    assert made["train"].texts[0] == "now lights off in the bathroom if you can"
