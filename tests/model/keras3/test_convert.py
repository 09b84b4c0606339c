"""Models of Keras 3 compute in tf-keras what they computed there."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import tf_keras as keras

from shrink.base.errors import ModelError
from shrink.contract.model_source import ModelKind, ModelSource
from shrink.model.keras3.convert import compare_import, snake_case
from shrink.model.load import import_note, load_model, load_source
from shrink.tflite.convert import convert
from tests import forks
from tests.model.keras3.checks import largest_difference
from tests.model.keras3.conftest import write_zoo
from tests.sharing import made_once

TOLERANCE = 1e-5
REFUSED = ("gated_attention", "op_sort", "recurrent_hard_sigmoid", "rms_normalization")


def models_of(zoo: Path) -> list[Path]:
    return [path for path in sorted(zoo.glob("*.keras")) if path.stem not in REFUSED]


def too_different(folder: Path) -> dict[str, float]:
    """Return the models whose outputs are not those of Keras 3."""
    differences = {
        path.stem: largest_difference(load_model(path), path.with_suffix(".npz"))
        for path in models_of(folder)
    }
    return {name: d for name, d in differences.items() if not d <= TOLERANCE}


def test_load_model_gives_the_outputs_of_keras3(zoo: Path) -> None:
    assert len(models_of(zoo)) >= 25
    assert too_different(zoo) == {}


@pytest.mark.slow
def test_load_model_gives_the_outputs_of_keras3_for_every_model(tmp_path: Path) -> None:
    write_zoo(tmp_path)
    assert len(models_of(tmp_path)) >= 140
    assert too_different(tmp_path) == {}


def test_largest_difference_is_seen_when_a_weight_changes(zoo: Path) -> None:
    model = load_model(zoo / "residual_net.keras")
    kernel = model.trainable_weights[0]
    kernel.assign(kernel * 1.01)
    assert largest_difference(model, zoo / "residual_net.npz") > 10 * TOLERANCE


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gated_attention", "MultiHeadAttention 'multi_head_attention'.*use_gate"),
        ("op_sort", "keras.ops Sort 'sort'"),
        ("recurrent_hard_sigmoid", "LSTM 'lstm'.*hard_sigmoid"),
        ("rms_normalization", "RMSNormalization 'rms_normalization'.*no such layer"),
    ],
)
def test_load_model_names_what_it_cannot_take(name: str, words: str, zoo: Path) -> None:
    with pytest.raises(ModelError, match=words) as caught:
        load_model(zoo / f"{name}.keras")
    assert caught.value.hint


@pytest.mark.parametrize(
    "name", ["residual_net", "nested_models", "op_slicing", "activation_hard_silu", "op_reshape"]
)
def test_load_model_gives_models_that_can_be_saved_again(
    name: str, zoo: Path, tmp_path: Path
) -> None:
    load_model(zoo / f"{name}.keras").save(tmp_path / "again.keras")
    again = load_model(tmp_path / "again.keras")
    assert largest_difference(again, zoo / f"{name}.npz") <= TOLERANCE


def test_load_model_keeps_frozen_layers_frozen(zoo: Path) -> None:
    model = load_model(zoo / "unnamed_shape.keras")
    assert [layer.trainable for layer in model.layers] == [False, True, True]


def test_load_model_shares_the_weights_of_a_layer_called_twice(zoo: Path) -> None:
    assert len(load_model(zoo / "shared_layer.keras").weights) == 2


def test_convert_quantizes_an_imported_model(zoo: Path) -> None:
    model = load_model(zoo / "residual_net.keras")
    with np.load(zoo / "residual_net.npz") as arrays:
        x = arrays["x0"]
    content = convert(model, "static_int8", calibration=({"x": x[i : i + 1]} for i in range(3)))
    assert len(content.content) < len(convert(model, "float32").content)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("Conv2D", "conv2d"), ("LSTM", "lstm"), ("PReLU", "p_re_lu"), ("Functional", "functional")],
)
def test_snake_case_writes_names_as_keras3_does(name: str, expected: str) -> None:
    assert snake_case(name) == expected


@pytest.mark.parametrize(
    "name", ["residual_net", "named_outputs", "shared_layer", "embedded_floats", "whole_numbers"]
)
def test_compare_import_says_how_near_an_import_is(name: str, zoo: Path) -> None:
    path = zoo / f"{name}.keras"
    said = re.search(r"agree to (\S+) of the largest one$", compare_import(load_model(path), path))
    assert said
    assert float(said.group(1)) <= TOLERANCE


def test_compare_import_refuses_what_computes_something_else(zoo: Path) -> None:
    path = zoo / "residual_net.keras"
    model = load_model(path)
    kernel = model.trainable_weights[0]
    kernel.assign(kernel * 1.5)
    with pytest.raises(ModelError, match="Keras 3 gives outputs that differ by"):
        compare_import(model, path)


@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file")
@pytest.mark.parametrize("kind", ["keras", "h5"])
def test_import_note_scans_nothing_again_of_what_tf_keras_saved(
    kind: ModelKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = ModelSource(kind, tmp_path / f"model.{kind}")
    inputs = keras.Input((4,))
    keras.Model(inputs, keras.layers.Dense(2)(inputs)).save(source.path)
    model, scanned = load_source(source), []
    monkeypatch.setattr("shrink.model.load.check_model_file", lambda *each: scanned.append(each))
    assert import_note(model, source) == ""
    assert scanned == []


def test_import_note_says_how_near_an_import_is(zoo: Path) -> None:
    source = ModelSource("keras", zoo / "residual_net.keras")
    assert import_note(load_source(source), source).startswith("imported from Keras 3: outputs")


@pytest.fixture(scope="module")
def quantized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what `quantized.py` writes."""

    def make(folder: Path) -> None:
        forks.call("tests.model.keras3.quantized", "write_all", folder=str(folder))

    return made_once(tmp_path_factory, "keras3-quantized", make)


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("dense_int8", "weights of int8 became float32"),
        ("dense_int4_small_groups", "weights of int4"),
        ("text_int4", "weights of int4"),
        ("lora_int8", "weights of int8"),
        ("half", "as Keras computes in float16"),
        ("augmented", "augmentation is left out: rand_augment, cut_mix"),
    ],
)
def test_load_source_reads_weights_that_keras3_changed(
    name: str, note: str, quantized: Path
) -> None:
    path = quantized / f"{name}.keras"
    model = load_source(ModelSource("keras", path))
    tolerance = 1e-3 if name == "half" else TOLERANCE
    assert largest_difference(model, path.with_suffix(".npz")) < tolerance
    assert all(weight.dtype == "float32" for weight in model.weights)
    assert note in import_note(model, ModelSource("keras", path))


@pytest.mark.parametrize(
    ("name", "words", "hint"),
    [
        ("gptq", "without their zero points", "before Keras quantizes"),
        ("awq", "without their zero points", "before Keras quantizes"),
        ("subclassed", r"subclassed model \(Subclassed\) has no graph", "model.export"),
        ("distiller", r"subclassed model \(Distiller\)", "distiller.student.save"),
    ],
)
def test_load_source_says_what_to_do_instead(
    name: str, words: str, hint: str, quantized: Path
) -> None:
    with pytest.raises(ModelError, match=words) as caught:
        load_source(ModelSource("keras", quantized / f"{name}.keras"))
    assert hint in str(caught.value.hint)


BUILDER = """
import keras


class Subclassed(keras.Model):
    def call(self, x):
        return x


def build(width=4):
    inputs = keras.Input((8, 8, 1))
    x = keras.layers.Conv2D(int(width), 3, activation="relu")(inputs)
    x = keras.layers.BatchNormalization()(x)
    x = keras.layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, keras.layers.Dense(3)(x))


def sequential():
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])


def subclassed():
    return Subclassed()


def unbuilt():
    return keras.Sequential([keras.layers.Dense(3)])


def layer():
    return keras.layers.Dense(3)


model = sequential()
"""


def of_builder(folder: Path, function: str, **arguments: float) -> ModelSource:
    (folder / "net.py").write_text(BUILDER, encoding="utf-8")
    return ModelSource("builder", folder / "net.py", function, arguments)


def test_load_source_rebuilds_what_a_builder_makes_with_keras3(tmp_path: Path) -> None:
    source = of_builder(tmp_path, "build", width=6)
    model = load_source(source)
    assert isinstance(model, keras.Model)
    assert [layer.filters for layer in model.layers if hasattr(layer, "filters")] == [6]
    assert "imported from Keras 3: outputs agree" in import_note(model, source)
    source = of_builder(tmp_path, "sequential")
    assert load_source(source).output_shape == (None, 3)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("subclassed", "subclassed model has no graph of layers"),
        ("layer", "Dense, not a Keras model"),
        ("unbuilt", "Keras 3"),
        ("model", "model is a model, not a function"),
    ],
)
def test_load_source_refuses_other_things_of_keras3(
    function: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=words) as caught:
        load_source(of_builder(tmp_path, function))
    assert caught.value.subject == str(tmp_path / "net.py")
