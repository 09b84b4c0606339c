"""The record of a single file: what it may replace, and what happens where it cannot be written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shrink.base.errors import RecipeError, ResourceError
from shrink.contract.usage import check_free, keep_record, record_of, record_path


@pytest.mark.parametrize(
    ("content", "is_record"),
    [
        ('{"schema_version": 1, "artifacts": [{"file": "m.tflite", "sha256": "0"}]}', True),
        ('{"labels": ["cat", "dog"]}', False),
        ('{"artifacts": [{"url": "x"}]}', False),
        ("[]", False),
        ("no JSON", False),
    ],
)
def test_a_record_replaces_no_file_but_a_record(
    tmp_path: Path, content: str, is_record: bool
) -> None:
    place = tmp_path / "m.tflite.json"
    check_free(tmp_path / "m.tflite", force=False)
    place.write_text(content, encoding="utf-8")
    check_free(tmp_path / "m.tflite", force=True)
    check_free(tmp_path / "m.tflite", force=False, has_record=False)
    if is_record:
        check_free(tmp_path / "m.tflite", force=False)
        return
    with pytest.raises(RecipeError, match=r"the record of m\.tflite would replace it") as refused:
        check_free(tmp_path / "m.tflite", force=False)
    assert (refused.value.subject, refused.value.exit_code) == (str(place), 2)
    assert "--force" in str(refused.value.hint)


def test_a_folder_that_cannot_be_written_to_is_refused_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(ResourceError):
        check_free(tmp_path / "file" / "m.tflite", force=True)


@pytest.mark.parametrize("has_record_beside", [True, False])
def test_only_an_artifact_of_the_same_recipe_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_record_beside: bool
) -> None:
    monkeypatch.setenv("SHRINK_CACHE_DIR", str(tmp_path / "cache"))
    artifact = tmp_path / "m.tflite"
    artifact.write_bytes(b"model")
    keep_record(artifact, {"recipe": "own"}, pytest.fail)
    if not has_record_beside:  # the command was killed before it wrote the record
        record_path(artifact).unlink()
    check_free(artifact, force=False, recipe="own")
    for recipe in (None, "another"):
        with pytest.raises(RecipeError, match="the file exists") as refused:
            check_free(artifact, force=False, recipe=recipe)
        assert (refused.value.subject, refused.value.exit_code) == (str(artifact), 2)
        check_free(artifact, force=True, recipe=recipe)
    artifact.write_bytes(b"a file of the user's")
    with pytest.raises(RecipeError, match="the file exists"):
        check_free(artifact, force=False, recipe="own")


@pytest.mark.parametrize(
    ("blocked", "words"),
    [("m.tflite.json", "another folder"), ("cache", "SHRINK_CACHE_DIR")],
)
def test_a_record_that_cannot_be_written_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blocked: str, words: str
) -> None:
    monkeypatch.setenv("SHRINK_CACHE_DIR", str(tmp_path / "cache"))
    artifact = tmp_path / "m.tflite"
    artifact.write_bytes(b"model")
    if blocked == "cache":
        (tmp_path / blocked).write_text("a file", encoding="utf-8")
    else:
        (tmp_path / blocked).mkdir()
    warned = list[str]()
    keep_record(artifact, {"recipe": "own"}, warned.append)
    (warning,) = warned
    assert str(tmp_path / blocked) in warning
    assert words in warning.partition("hint: ")[2]
    assert record_of(artifact).get("recipe") == (None if blocked == "m.tflite.json" else "own")
    keep_record(artifact, {}, warned.append)
    assert len(warned) == 1


def test_the_record_beside_a_file_is_of_its_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHRINK_CACHE_DIR", str(tmp_path / "cache"))
    artifact, warned = tmp_path / "m.tflite", list[str]()
    artifact.write_bytes(b"model")
    keep_record(artifact, {"recipe": "own", "metrics": {}}, warned.append, same_tensors=False)
    (entry,) = json.loads((tmp_path / "m.tflite.json").read_text(encoding="utf-8"))["artifacts"]
    assert entry == {
        "recipe": "own",
        "file": "m.tflite",
        "sha256": "9372c470eeadd5ecd9c3c74c2b3cb633f8e2f2fad799250a0f70d652b6b825e4",
    }
    assert warned == []
