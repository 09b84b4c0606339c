"""Model files and data that cannot be used, and training that is lost: named, and nothing run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tf_keras as keras

from shrink.base.errors import ModelError
from shrink.model.load import load_model
from tests.cli.shell import read_report, shrink
from tests.cli.toy import RECIPE, write_toy
from tests.data.images import write_bad_images, write_folders

layers = keras.layers


def refusal(path: Path) -> str:
    """Load a model file in this process; return the error."""
    with pytest.raises(ModelError) as caught:
        load_model(path)
    assert caught.value.exit_code == 3
    assert caught.value.hint
    assert str(path) in str(caught.value)
    return str(caught.value)


def small_model() -> keras.Model:
    inputs = layers.Input((4,))
    return keras.Model(inputs, layers.Dense(3)(inputs))


@pytest.mark.parametrize("ending", [".keras", ".h5"])
@pytest.mark.filterwarnings("ignore:.*HDF5 file:UserWarning")
def test_a_damaged_model_is_named(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"model{ending}"
    small_model().save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert "cut short" in refusal(path)
    path.write_bytes(b"garbage" * 100)
    assert "that can be read: it " in refusal(path)
    path.write_bytes(b"")
    assert "it is empty" in refusal(path)


@pytest.mark.parametrize(
    ("ending", "start", "words"),
    [
        (".keras", b"\x89HDF\r\n\x1a\n", "an HDF5 file, whose name must end in .h5"),
        (".keras", b"\x89HDF\r\n\x1a\n", "rename the file to model.h5"),
        (".keras", b"\x1c\0\0\0TFL3", "a TFLite model, whose name must end in .tflite"),
        (".h5", b"PK\x03\x04", "a zip archive, as .keras files are"),
        (".h5", b"\x80\x04\x95", "perhaps a pickle"),
    ],
)
def test_a_renamed_format_is_named(tmp_path: Path, ending: str, start: bytes, words: str) -> None:
    path = tmp_path / f"model{ending}"
    path.write_bytes(start + b"\0" * 40)
    assert words in refusal(path)


def test_an_unknown_layer_asks_for_the_file_that_defines_it(tmp_path: Path) -> None:
    class Own(keras.layers.Layer):
        pass

    inputs = layers.Input((4,))
    keras.Model(inputs, Own()(inputs)).save(tmp_path / "model.keras")
    message = refusal(tmp_path / "model.keras")
    assert "Own" in message
    assert "--custom-objects file.py" in message


def test_weights_alone_are_no_model(tmp_path: Path) -> None:
    path = tmp_path / "weights.h5"
    small_model().save_weights(path)
    assert "weights without their model" in refusal(path)


@pytest.mark.parametrize("ending", [".keras", ".h5"])
@pytest.mark.filterwarnings("ignore:.*HDF5 file:UserWarning")
def test_a_lambda_layer_is_refused_before_it_runs(tmp_path: Path, ending: str) -> None:
    canary = str(tmp_path / "canary")
    inputs = layers.Input((4,))
    hidden = layers.Lambda(lambda x: (Path(canary).write_bytes(b""), x)[1])(inputs)
    path = tmp_path / f"model{ending}"
    keras.Model(inputs, layers.Dense(3)(hidden)).save(path)
    assert Path(canary).exists()  # building it has run the layer
    Path(canary).unlink()
    message = refusal(path)
    assert "refused" in message
    assert "Lambda" in message
    assert not Path(canary).exists()
    if ending == ".h5":
        write_toy(tmp_path)
        arguments = ("evaluate", path.name, "--data", "toy.npz", "--output", "out")
        done = shrink(*arguments, cwd=tmp_path, store=tmp_path / "store", expect=3)
        assert "model.h5: refused: a Lambda carries code" in done.stderr
        assert not Path(canary).exists()
        report = read_report(tmp_path / "out")
        assert [stage["status"] for stage in report["stages"]] == ["failed"]


STUDENT = """
import keras


def build():
    inputs = keras.Input((4,))
    return keras.Model(inputs, keras.layers.Dense(3)(inputs))


class Subclassed(keras.Model):
    def call(self, x):
        return x


def subclassed():
    return Subclassed()
"""


@pytest.mark.parametrize("function", ["build", "subclassed"])
def test_a_student_file_is_tried_before_the_teacher_is_trained(
    tmp_path: Path, function: str
) -> None:
    write_toy(tmp_path, RECIPE + f"  - distill: {{student: 'student.py:{function}', epochs: 1}}\n")
    (tmp_path / "student.py").write_text(STUDENT, encoding="utf-8")
    expect = 3 if function == "subclassed" else 0
    arguments = ("run", "toy.yaml", "--output", "out")
    done = shrink(*arguments, cwd=tmp_path, store=tmp_path / "store", expect=expect)
    if expect:
        assert "student.py: a subclassed model has no graph of layers" in done.stderr
        assert "epoch" not in done.stderr
        assert not (tmp_path / "out").exists()
        return
    student = read_report(tmp_path / "out")["stages"][-1]
    assert any("imported from Keras 3: outputs agree" in note for note in student["notes"])


def test_a_lost_loss_fails_its_stage_and_skips_the_rest(tmp_path: Path) -> None:
    optimizer = "training: {optimizer: {name: sgd, learning_rate: 1e20}, "
    write_toy(tmp_path, RECIPE.replace("training: {", optimizer) + "  - quantize\n")
    arguments = ("run", "toy.yaml", "--output", "out")
    done = shrink(*arguments, cwd=tmp_path, store=tmp_path / "store", expect=4)
    assert "error: train: the loss is " in done.stderr
    assert "epoch 1" in done.stderr
    assert "learning_rate" in done.stderr
    report = read_report(tmp_path / "out")
    assert report["passed"] is False
    assert [stage["status"] for stage in report["stages"]] == ["failed", "skipped"]
    assert report["stages"][0]["error"]["exit_code"] == 4


def test_every_bad_image_is_named_in_one_run(tmp_path: Path) -> None:
    write_folders(tmp_path / "pictures", count=12, size=(16, 16))
    bad = write_bad_images(tmp_path / "pictures" / "dog")
    good = tmp_path / "pictures" / "cat"
    (good / "05.png").rename(good / "05.jpg")
    (tmp_path / "pictures" / "dog" / "copy.png").write_bytes((good / "07.png").read_bytes())
    arguments = ("data", "check", "pictures", "--json")
    done = shrink(*arguments, cwd=tmp_path, store=tmp_path / "store", expect=3)
    found = json.loads(done.stdout)
    bad = [path for path in bad if not path.name.startswith("size")]  # a run resizes these
    named = [text.partition(": ")[0] for text in found["bad"]]
    assert sorted(named) == sorted(str(path) for path in bad)
    assert all("hint: " in text for text in found["bad"])
    assert sum(split["examples"] for split in found["splits"].values()) == 25 + 3
    same, wrong = sorted(found["suspicious"], key=len)[::-1]
    assert "05.jpg: the content is PNG" in wrong
    assert "the same image under different labels" in same
    assert len(found["duplicates"]) == 1 + 10  # of each bad kind there are three alike


@pytest.mark.parametrize(
    ("shape", "labels", "words"),
    [
        ((5,), 3, ["takes inputs of shape (4,)", "(5,)"]),
        ((4,), 7, ["a label of the train split is 6", "3 outputs (labels 0 to 2)"]),
    ],
    ids=["shape", "labels"],
)
def test_data_that_do_not_fit_the_model_are_refused(
    tmp_path: Path, shape: tuple[int, ...], labels: int, words: list[str]
) -> None:
    write_toy(tmp_path)
    x = np.random.default_rng(0).normal(size=(70, *shape)).astype(np.float32)
    np.savez(tmp_path / "toy.npz", x=x, y=np.arange(70) % labels)
    arguments = ("run", "toy.yaml", "--output", "out")
    done = shrink(*arguments, cwd=tmp_path, store=tmp_path / "store", expect=3)
    assert all(word in done.stderr for word in words), done.stderr
    assert read_report(tmp_path / "out")["passed"] is False
