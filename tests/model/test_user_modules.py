"""Custom objects and code of the user's own: what passes, what is refused, and the hints."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tf_keras as keras

from shrink.base.errors import DataError, ModelError
from shrink.contract.model_source import ModelSource, Trust
from shrink.data.config import DataConfig
from shrink.data.sources.python import open_source
from shrink.model.load import load_model, load_source
from shrink.model.scan import check_model_file
from shrink.model.user_modules import custom_objects, declared_objects, imported
from tests.attacks.hostile import ATTACKS, operator
from tests.attacks.parts import archive, dense, function, h5, lambda_layer, layer, sequential

OBJECTS = """
import tensorflow as tf
import tf_keras as keras


@keras.saving.register_keras_serializable(package="Mine")
class Scale(keras.layers.Layer):
    def __init__(self, factor=2.0, **options):
        super().__init__(**options)
        self.factor = factor

    def build(self, shape):
        self.shift = self.add_weight(name="shift", shape=shape[-1:])

    def call(self, x):
        return x * self.factor + self.shift

    def get_config(self):
        return {**super().get_config(), "factor": self.factor}


class Popen(keras.layers.Layer):
    pass


def bent(x):
    return tf.where(x > 0, x, 0.3 * x)
"""


@pytest.fixture
def trust(tmp_path: Path) -> Trust:
    path = tmp_path / "objects.py"
    path.write_text(OBJECTS, encoding="utf-8")
    return Trust(path)


def custom_model(trust: Trust, suffix: str) -> keras.Model:
    objects = custom_objects(trust.custom_objects)
    inputs = keras.Input((4,))
    # tf-keras itself cannot read the functions back that it writes into .h5 files.
    activation = objects["bent"] if suffix == "keras" else "relu"
    hidden = keras.layers.Dense(3, activation=activation)(inputs)
    return keras.Model(inputs, objects["Scale"](factor=3.0)(hidden))


def test_declared_objects_reads_names_without_running_the_file(tmp_path: Path) -> None:
    path = tmp_path / "objects.py"
    path.write_text("raise SystemExit\n" + OBJECTS, encoding="utf-8")
    found = declared_objects(path)
    assert found == {"Scale": "Scale", "Mine>Scale": "Scale", "Popen": "Popen", "bent": "bent"}


@pytest.mark.parametrize("text", ["def (", "\0", "(" * 100_000])
def test_declared_objects_refuses_what_is_no_python(text: str, tmp_path: Path) -> None:
    (tmp_path / "objects.py").write_text(text, encoding="utf-8")
    with pytest.raises(ModelError, match="not valid Python"):
        declared_objects(tmp_path / "objects.py")


@pytest.mark.parametrize("name", ["model.keras", "model.h5"])
@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file")
def test_load_model_takes_custom_objects_from_a_named_file(
    name: str, trust: Trust, tmp_path: Path
) -> None:
    model = custom_model(trust, name.rpartition(".")[2])
    model.set_weights([np.full(w.shape, 0.5, np.float32) for w in model.get_weights()])
    model.save(tmp_path / name)
    x = np.linspace(-2, 2, 8, dtype=np.float32).reshape(2, 4)
    loaded = load_model(tmp_path / name, trust)
    np.testing.assert_array_equal(loaded(x).numpy(), model(x).numpy())
    assert type(loaded.layers[-1]) is imported(tmp_path / "objects.py").Scale
    with pytest.raises(ModelError, match="refused"):
        load_model(tmp_path / name)


def test_check_model_file_names_custom_objects_as_the_way(tmp_path: Path) -> None:
    path = archive(tmp_path, sequential(layer("Scale", {}, "mine", "Mine>Scale")))
    with pytest.raises(ModelError, match="custom object") as caught:
        check_model_file(path)
    assert "custom_objects: file.py" in str(caught.value.hint)


@pytest.mark.parametrize("registered", [None, "subprocess>Popen"])
def test_check_model_file_refuses_a_custom_name_that_keras_would_import(
    registered: str | None, trust: Trust, tmp_path: Path
) -> None:
    """Keras imports a module's class where the registered name is not among the custom ones."""
    path = archive(tmp_path, sequential(layer("Popen", {}, "subprocess", registered)))
    with pytest.raises(ModelError, match="refused"):
        check_model_file(path, trust)
    path = archive(tmp_path, sequential(layer("Popen", {}, "subprocess", "Popen")))
    assert check_model_file(path, trust).keras_version


def test_check_model_file_refuses_a_lambda_beside_custom_objects(
    trust: Trust, tmp_path: Path
) -> None:
    inner = layer("Scale", {"layer": lambda_layer(tmp_path)}, "mine", "Mine>Scale")
    with pytest.raises(ModelError, match="Lambda carries code"):
        check_model_file(archive(tmp_path, sequential(inner)), trust)
    with pytest.raises(ModelError, match="refused"):
        check_model_file(archive(tmp_path, sequential(dense(activation=function("os", "system")))))


def test_check_model_file_lets_pass_what_is_trusted(trust: Trust, tmp_path: Path) -> None:
    path = archive(tmp_path, sequential(layer("Scale", {}, "mine", "Mine>Scale")))
    check_model_file(path, trust)
    path = archive(tmp_path, sequential(lambda_layer(tmp_path)))
    check_model_file(path, Trust(everything=True))
    with pytest.raises(ModelError, match="Lambda"):
        check_model_file(path, trust)


@pytest.mark.parametrize(
    "attack",
    ["traversal", "zip_bomb", "hdf5_external_link", "units_bomb", "graph_link", "pickle_as_h5"],
)
def test_check_model_file_looks_at_the_frame_of_trusted_models(attack: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError):
        check_model_file(ATTACKS[attack](tmp_path), Trust(everything=True))


def test_check_model_file_passes_operators_of_trusted_graphs(tmp_path: Path) -> None:
    check_model_file(operator("ReadFile")(tmp_path), Trust(everything=True))


@pytest.mark.parametrize("name", ["model.keras", "model.h5"])
@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file")
def test_load_source_runs_a_lambda_when_the_model_is_trusted(name: str, tmp_path: Path) -> None:
    inputs = keras.Input((4,))
    model = keras.Model(inputs, keras.layers.Lambda(lambda x: x * 2.0)(inputs))
    model.save(tmp_path / name)
    source = ModelSource("keras", tmp_path / name)
    with pytest.raises(ModelError, match="Lambda carries code"):
        load_source(source)
    x = np.ones((1, 4), np.float32)
    loaded = load_source(replace(source, trust=Trust(everything=True)))
    np.testing.assert_array_equal(loaded(x).numpy(), 2 * x)


def test_h5_refuses_a_lambda_with_custom_objects(trust: Trust, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="Lambda"):
        check_model_file(h5(tmp_path, sequential(lambda_layer(tmp_path))), trust)


@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5")
@pytest.mark.parametrize("name", ["model.keras", "model.h5"])
def test_load_model_takes_losses_and_metrics_that_were_added(name: str, tmp_path: Path) -> None:
    inputs = keras.Input((3,))
    x = keras.layers.Dense(2)(inputs)
    model = keras.Model(inputs, x)
    model.add_loss(keras.layers.Activation("relu")(x))
    model.add_metric(x, name="mean")
    model.save(tmp_path / name)
    check_model_file(tmp_path / name)
    loaded = load_model(tmp_path / name)
    rows = np.ones((2, 3), np.float32)
    loaded(rows)
    (loss,) = loaded.losses
    assert np.allclose(loss, np.maximum(model.predict(rows, verbose=0), 0), atol=1e-6)


def test_check_model_file_refuses_an_added_loss_of_another_module(tmp_path: Path) -> None:
    added = layer("AddLoss", {"name": "add_loss"}, module="os")
    path = archive(tmp_path, sequential(dense(), added))
    with pytest.raises(ModelError, match="AddLoss comes from the module 'os'"):
        check_model_file(path)


@pytest.mark.parametrize(("name", "hinted"), [("helper_beside", True), ("helper_nowhere", False)])
def test_a_module_beside_a_file_is_hinted_at_where_it_is_not_found(
    tmp_path: Path, name: str, hinted: bool
) -> None:
    (tmp_path / "helper_beside.py").write_text("WIDTH = 8\n", encoding="utf-8")
    path = tmp_path / f"of_{name}.py"
    path.write_text(f"import {name}\n", encoding="utf-8")
    with pytest.raises(ModelError, match=f"No module named '{name}'") as caught:
        imported(path)
    assert (caught.value.hint is not None) == hinted
    assert not hinted or f"PYTHONPATH={tmp_path} " in str(caught.value.hint)
    with pytest.raises(DataError, match=f"No module named '{name}'") as caught_too:
        open_source(DataConfig(source="python", path=f"{path}:examples"), seed=0)
    assert ("PYTHONPATH" in str(caught_too.value.hint)) == hinted
