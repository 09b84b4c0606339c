"""What a recipe takes from the record of its model, and what it refuses or warns of."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from shrink.base import files
from shrink.base.errors import DataError, ModelError
from shrink.contract.usage import record_path, write_record
from shrink.data.config import DataConfig, TokensConfig, usage_section
from shrink.recipe.load import recipe_from_mapping
from shrink.recipe.plan import Plan, build_plan

LABELS = ["ant", "bee", "cat"]
IMAGES = {"source": "images", "normalize": {"scale": 0.5, "offset": 0.0}, "image_size": [8, 8]}


def recorded(folder: Path, **entry: Any) -> Path:
    """Write a model's file and its record; return the file."""
    path = folder / "artifacts" / "00-train.keras"
    path.parent.mkdir()
    path.write_bytes(b"model")
    digest = hashlib.sha256(b"model").hexdigest()
    document = {"artifacts": [{"file": path.name, "sha256": digest, **entry}]}
    (path.parent / "metadata.json").write_text(json.dumps(document), encoding="utf-8")
    return path


def planned(model: Path, data: dict[str, Any], **keys: Any) -> Plan:
    if data["source"] not in ("digits", "none"):
        data = {"path": str(model.parent), **data}
    recipe = {"name": "r", "model": str(model), "data": data, **keys}
    return build_plan(recipe_from_mapping(recipe, "test"))


def test_a_plan_takes_what_is_left_out_from_the_record(tmp_path: Path) -> None:
    plan = planned(recorded(tmp_path, labels=LABELS, data=IMAGES), {"source": "images"})
    data = plan.recipe.data
    assert data.normalize is not None
    assert (data.normalize.scale, data.image_size, data.classes) == (0.5, (8, 8), tuple(LABELS))
    assert plan.inherited is not None
    assert plan.inherited.keys == ("data.normalize", "data.image_size", "data.classes")
    assert plan.inherited.warnings == ()


def test_a_plan_takes_nothing_that_does_not_hold_for_another_source(tmp_path: Path) -> None:
    section = {**IMAGES, "targets": ["kind"], "validation_split": 0.3}
    data = planned(recorded(tmp_path, data=section), {"source": "digits"}).recipe.data
    assert data.normalize is not None
    assert (data.image_size, data.targets, data.validation_split) == (None, None, 0.1)


HALF, UNCHANGED = {"scale": 0.5, "offset": 0.0}, {"scale": 1.0, "offset": 0.0}
WINDOWS = {"window": 8, "horizon": 2}


# The source, the record's keys, those of the recipe, the section that is used (None: of the record
# alone), and the key that differs.
@pytest.mark.parametrize(
    ("source", "record", "stated", "used", "differs"),
    [
        ("npz", {}, {}, {}, None),
        ("npz", {}, {"normalize": HALF}, {"normalize": HALF}, "normalize"),
        ("npz", {}, {"normalize": UNCHANGED}, {"normalize": UNCHANGED}, None),
        ("npz", {"normalize": HALF}, {}, {"normalize": HALF}, None),
        ("npz", {"normalize": HALF}, {"normalize": {"scale": 0.5}}, {"normalize": HALF}, None),
        ("npz", {"normalize": HALF}, {"normalize": {"scale": 1}}, {}, "normalize"),
        ("npz", {"normalize": UNCHANGED}, {"normalize": {"offset": 1}}, {}, "normalize"),
        ("npz", {"target": "input"}, {}, {"target": "input"}, None),
        ("npz", {"target": "input"}, {"target": "label"}, {"target": "label"}, "target"),
        ("npz", {"inputs": ["a", "b"]}, {}, {"inputs": ["a", "b"]}, None),
        ("npz", {"inputs": ["a", "b"]}, {"inputs": ["b", "a"]}, {}, "inputs"),
        ("npz", {}, {"inputs": ["values"]}, {}, None),  # a name of the file's own
        ("npz", {"test_split": 0.3}, {"test_split": 0.2}, {"test_split": 0.2}, None),
        ("images", {}, {"image_size": [8, 8]}, {}, None),  # another size does not fit the model
        ("images", {"image_size": [8, 8]}, {}, {"image_size": [8, 8]}, None),
        ("images", {"image_size": [8, 8]}, {"image_size": [8, 9]}, {}, "image_size"),
        ("images", {"channels": 1}, {}, {"channels": 1}, None),
        ("images", {"channels": 1}, {"channels": 3}, {"channels": 3}, "channels"),
        ("audio", {}, {"audio": {"bands": 40}}, {}, None),  # the default
        ("audio", {}, {"audio": {"bands": 32}}, {}, "audio"),
        ("audio", {"audio": {"bands": 32}}, {"audio": {"bands": 32}}, {}, None),
        ("audio", {"audio": {"bands": 32}}, {"audio": {"bands": 40}}, {}, "audio"),
        ("python", {}, {"audio": {"bands": 40}}, {}, "audio"),  # the function gave no clips
        ("text", {}, {"tokens": {"length": 32}}, {}, None),
        ("text", {}, {"tokens": {"length": 7}}, {}, "tokens"),
        ("text", {"tokens": {"length": 7}}, {"tokens": {"length": 7, "size": 90}}, {}, None),
        ("text", {"tokens": {"length": 7}}, {"tokens": {"lower": False}}, {}, "tokens"),
        ("series", {}, {"series": {"window": 48}}, {}, None),
        ("series", {}, {"series": WINDOWS}, {}, "series"),
        ("series", {"series": WINDOWS}, {}, {}, None),
        ("series", {"series": WINDOWS}, {"series": {**WINDOWS, "window": 9}}, {}, "series"),
        ("tiles", {"level": 1}, {}, {"level": 1}, None),
        ("tiles", {"level": 1}, {"level": 0}, {"level": 0}, "level"),
    ],
)
def test_stated_keys_win_and_other_uses_of_a_model_are_warned_of(
    tmp_path: Path,
    source: str,
    record: dict[str, Any],
    stated: dict[str, Any],
    used: dict[str, Any],
    differs: str | None,
) -> None:
    front_end = {"vocabulary": ["[PAD]", "[UNK]", "red"]} if source == "text" else None
    model = recorded(tmp_path, data={"source": source, **record}, front_end=front_end)
    path = {"path": "build.py:load"} if source == "python" else {}
    plan = planned(model, {"source": source, **path, **stated})
    section = plan.recipe.data.model_dump(mode="json")
    assert {key: section[key] for key in used} == used
    assert plan.inherited is not None
    warned = [(one.code, one.message.split()[0]) for one in plan.inherited.warnings]
    assert warned == ([("differs-from-record", f"data.{differs}")] if differs else [])


def test_a_warning_says_what_the_record_has(tmp_path: Path) -> None:
    model = recorded(tmp_path, data={"source": "npz"})
    plan = planned(model, {"source": "npz", "normalize": {"scale": 0.5}})
    assert plan.inherited is not None
    (warning,) = plan.inherited.warnings
    assert warning.message == (
        "data.normalize is {scale: 0.5}, but the model was made without data.normalize"
    )


@pytest.mark.parametrize(
    ("classes", "refused"),
    [
        (["cat", "bee", "ant"], True),  # the same names in another order
        (["ant", "bee"], True),  # fewer than outputs
        (["Ameise", "Biene", "Katze"], False),  # other names for the same outputs
        (LABELS, False),
    ],
)
def test_classes_that_cannot_be_those_of_the_outputs_are_refused(
    tmp_path: Path, classes: list[str], refused: bool
) -> None:
    model = recorded(tmp_path, labels=LABELS, data=IMAGES)
    data = {"source": "images", "classes": classes}
    if not refused:
        assert planned(model, data).recipe.data.classes == tuple(classes)
        return
    with pytest.raises(DataError, match="the outputs of the model are ant, bee, cat"):
        planned(model, data)


def test_the_vocabulary_comes_with_the_model(tmp_path: Path) -> None:
    front_end = {"length": 4, "vocabulary": ["[PAD]", "[UNK]", "red"]}
    section = {"source": "text", "tokens": {"length": 4, "lower": False}}
    model = recorded(tmp_path, data=section, front_end=front_end)
    # Settings of a vocabulary that was learned do not count where the model has one.
    plan = planned(model, {"source": "text", "tokens": {"length": 4, "size": 90}})
    tokens = plan.recipe.data.tokens or TokensConfig()
    assert (tokens.length, tokens.lower) == (4, False)
    assert Path(str(tokens.vocabulary)).read_text(encoding="utf-8") == "[PAD]\n[UNK]\nred\n"
    assert plan.inherited is not None
    assert plan.inherited.keys == ("data.tokens.lower", "data.tokens.vocabulary")
    assert plan.inherited.warnings == ()
    other = tmp_path / "other.txt"
    other.write_text("[PAD]\n[UNK]\nblue\n", encoding="utf-8")
    plan = planned(model, {"source": "text", "tokens": {"vocabulary": str(other)}})
    assert plan.inherited is not None
    assert [one.code for one in plan.inherited.warnings] == ["differs-from-record"]


def test_the_decoding_of_a_detector_comes_with_the_model(tmp_path: Path) -> None:
    own = {"name": "grid", "strides": [8], "score_threshold": 0.3}
    model = recorded(tmp_path, data={"source": "boxes"}, decode=own)
    decode = planned(model, {"source": "boxes"}).recipe.task.decode
    assert decode is not None
    assert decode.name == "grid"
    own["name"] = "heads.py:decode"  # code runs only where a recipe names it
    (tmp_path / "artifacts" / "metadata.json").unlink()
    model.unlink()
    model.parent.rmdir()
    model = recorded(tmp_path, data={"source": "boxes"}, decode=own)
    assert planned(model, {"source": "boxes"}).recipe.task.decode is None


def test_a_changed_file_has_no_record(tmp_path: Path) -> None:
    model = recorded(tmp_path, labels=LABELS, data=IMAGES)
    model.write_bytes(b"another")
    plan = planned(model, {"source": "images"})
    assert (plan.usage, plan.recipe.data.normalize) == (None, None)
    assert plan.inherited is not None
    (warning,) = plan.inherited.warnings
    assert warning.code == "record-of-another-file"
    # The record of a single file goes with it; the shared one of the folder is that of others.
    (tmp_path / "moved").mkdir()
    own = model.rename(tmp_path / "moved" / "own.keras")
    document = json.loads((tmp_path / "artifacts" / "metadata.json").read_text())
    document["artifacts"][0] |= {"file": "own.keras", "sha256": files.sha256(own)}
    record_path(own).write_text(json.dumps(document), encoding="utf-8")
    (tmp_path / "moved" / "metadata.json").write_text(
        (tmp_path / "artifacts" / "metadata.json").read_text(), encoding="utf-8"
    )
    plan = planned(own, {"source": "images"})
    assert plan.inherited is not None
    assert (plan.recipe.data.image_size, plan.inherited.warnings) == ((8, 8), ())


def test_a_stale_record_is_no_matter_where_the_cache_knows_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHRINK_CACHE_DIR", str(tmp_path / "cache"))
    model = recorded(tmp_path, data=IMAGES)
    model.write_bytes(b"another")
    write_record(model, {"data": IMAGES})
    record_path(model).unlink()
    plan = planned(model, {"source": "images"})
    assert plan.inherited is not None
    assert (plan.recipe.data.image_size, plan.inherited.warnings) == ((8, 8), ())


TEXTS = {"source": "text", "tokens": {"length": 6, "lower": True}}
HEARD = {"source": "audio", "audio": {"bands": 40}}


def distilled(tmp_path: Path, data: dict[str, Any], **roles: str) -> Plan:
    """Plan a distillation whose other model is trained by the same recipe."""
    (tmp_path / "build.py").write_text("def build(): ...", encoding="utf-8")
    follow = {"teacher": "train", "student": f"{tmp_path}/build.py:build", "epochs": 1, **roles}
    recipe: dict[str, Any] = {"name": "r", "model": f"{tmp_path}/build.py:build"}
    recipe["stages"] = [{"train": {"epochs": 1}}, {"distill": follow}]
    return build_plan(recipe_from_mapping({**recipe, "data": {"path": "x", **data}}, "test"))


@pytest.mark.parametrize("role", ["teacher", "student"])
@pytest.mark.parametrize(
    ("section", "stated"),
    [
        (TEXTS, {"source": "text", "tokens": {"length": 7}}),
        (TEXTS, {"source": "text", "tokens": {"lower": False}}),
        (HEARD, {"source": "audio", "audio": {"bands": 32}}),
    ],
)
def test_a_teacher_or_student_of_another_front_end_is_refused(
    tmp_path: Path, role: str, section: dict[str, Any], stated: dict[str, Any]
) -> None:
    front_end = {"vocabulary": ["[PAD]", "[UNK]", "red"]} if section is TEXTS else {}
    model = recorded(tmp_path, data=section, front_end=front_end)
    with pytest.raises(ModelError, match=f"and the {role} was made with"):
        distilled(tmp_path, stated, **{role: str(model)})


def test_a_student_of_another_vocabulary_is_refused(tmp_path: Path) -> None:
    front_end = {"vocabulary": ["[PAD]", "[UNK]", "red"]}
    model = recorded(tmp_path, data=TEXTS, front_end=front_end)
    file = tmp_path / "own.txt"
    data = {"source": "text", "tokens": {"vocabulary": str(file)}}
    file.write_text("[PAD]\n[UNK]\nred\n", encoding="utf-8")
    plan = distilled(tmp_path, data, student=str(model))
    assert plan.recipe.data.tokens is not None
    assert plan.recipe.data.tokens.length == 6  # of the record
    file.write_text("[PAD]\n[UNK]\nblue\n", encoding="utf-8")
    with pytest.raises(ModelError, match="the student was made with"):
        distilled(tmp_path, data, student=str(model))


def test_a_student_is_compared_with_the_data_as_a_model_is(tmp_path: Path) -> None:
    model = str(recorded(tmp_path, labels=LABELS, data=IMAGES))
    plan = distilled(tmp_path, {"source": "images"}, student=model)
    assert plan.inherited is not None
    assert plan.inherited.keys == ("data.normalize", "data.image_size", "data.classes")
    assert (plan.inherited.of, plan.inherited.warnings, plan.usage) == ("student", (), None)
    assert plan.recipe.data.normalize is not None

    stated = {"source": "images", "normalize": {"scale": 1.0}}
    plan = distilled(tmp_path, stated, student=model)
    assert plan.inherited is not None
    (warning,) = plan.inherited.warnings
    assert warning.code == "differs-from-record"
    assert "the student was made with {scale: 0.5, offset: 0.0}" in warning.message

    with pytest.raises(DataError, match="outputs of the model are ant, bee, cat"):
        distilled(tmp_path, {"source": "images", "classes": ["cat", "bee", "ant"]}, student=model)


def test_a_teacher_gives_the_data_nothing(tmp_path: Path) -> None:
    model = str(recorded(tmp_path, labels=LABELS, data=IMAGES))
    plan = distilled(tmp_path, {"source": "images"}, teacher=model)
    assert plan.recipe.data.normalize is None
    assert plan.inherited is not None
    assert (plan.inherited.keys, plan.inherited.warnings) == ((), ())


def test_a_record_does_not_say_that_all_examples_were_tested() -> None:
    assert usage_section(DataConfig(source="digits", test_split=0.3))["test_split"] == 0.3
    assert "test_split" not in usage_section(DataConfig(source="digits", test_split=1))
