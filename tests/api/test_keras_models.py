"""Models in memory: the same model is the same file."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from shrink.api.keras_models import is_keras_model, saved_model
from shrink.base.errors import ModelError
from shrink.base.files import sha256
from shrink.contract.usage import record_of, write_record
from tests import forks


def save(library: str, store: str) -> dict[str, Any]:
    """Save a model with a shared layer twice, and again with another weight."""
    import os

    os.environ["SHRINK_CACHE_DIR"] = store
    factory = importlib.import_module(library)
    factory.utils.set_random_seed(0)
    layers = factory.layers
    shared = layers.Dense(4, name="shared")
    left, right = layers.Input((4,), name="left"), layers.Input((4,), name="right")
    joined = layers.Add(name="sum")([shared(left), shared(right)])
    model = factory.Model([left, right], joined, name="two arms")
    model.compile("adam", "mse")
    kind, saves = type(model), list[str]()
    save_one = kind.save

    def counted(self: Any, path: str) -> None:
        saves.append(path)
        save_one(self, path)

    kind.save = counted
    first = saved_model(model)
    before_again = len(saves)
    again = saved_model(model)
    saved_again = len(saves) - before_again
    before = model.get_weights()
    model.set_weights([weight + 1 for weight in before])
    changed = saved_model(model)
    weights = [w.tolist() for w in factory.models.load_model(first).get_weights()]
    return {
        "paths": [str(path) for path in (first, again, changed)],
        "saved again": saved_again,
        "kept": weights == [w.tolist() for w in before],
        "is": is_keras_model(model),
    }


@pytest.mark.parametrize("library", ["tf_keras", "keras"])
def test_a_model_is_saved_once_and_alike_in_every_process(library: str, tmp_path: Path) -> None:
    stores = [str(tmp_path / name) for name in ("one", "two")]
    told = [forks.call(__name__, "save", library=library, store=store) for store in stores]
    first, again, changed = map(Path, told[0]["paths"])
    assert first == again
    assert first.name == "two-arms.keras"
    assert changed != first
    assert told[0]["saved again"] == 1
    assert told[0]["kept"]
    assert told[0]["is"]
    other = Path(told[1]["paths"][0])
    assert other.relative_to(stores[1]) == first.relative_to(stores[0])
    assert sha256(other) == sha256(first)


def record(folder: str) -> dict[str, Any]:
    """Return the recipe in the record of a model that is loaded, and changed step by step."""
    import os

    import numpy as np
    import tf_keras

    os.environ["SHRINK_CACHE_DIR"] = f"{folder}/store"
    layers = tf_keras.layers
    shared = layers.Dense(4, activation="relu")
    net = [layers.BatchNormalization(), shared, shared, layers.Dropout(0.5), layers.Dense(2)]
    made = Path(folder, "made.keras")
    tf_keras.Sequential([layers.Input((4,)), *net]).save(made)
    write_record(made, {"recipe": "own"})
    model = tf_keras.models.load_model(made)
    found = dict[str, Any]()

    def check(change: str) -> None:
        again = Path(folder, f"{change}.keras")
        model.save(again)
        found[change] = [record_of(one).get("recipe") for one in (saved_model(model), again)]

    check("loaded")
    model.trainable = False
    check("frozen")
    model.compile("adam", "mse")
    check("compiled")
    model.evaluate(np.zeros((4, 4), np.float32), np.zeros((4, 2)), verbose=0)
    check("evaluated")
    plain = Path(folder, "evaluated.keras")
    tf_keras.models.load_model(plain, compile=False).save(plain)
    found["without compile"] = [record_of(plain).get("recipe")]
    write_record(made, {"recipe": "newer"})
    check("recorded anew")
    weights = model.get_weights()
    model.set_weights([weights[0] + 1, *weights[1:]])
    check("other weights")
    model.set_weights(weights)
    model = tf_keras.Sequential([*model.layers, layers.Softmax()])
    check("other layers")
    return found


def test_a_loaded_model_has_its_record_until_layers_or_weights_change(tmp_path: Path) -> None:
    assert forks.call(__name__, "record", folder=str(tmp_path)) == {
        "loaded": ["own", "own"],
        "frozen": ["own", "own"],
        "without compile": ["own"],
        "compiled": ["own", "own"],  # the file is known since it was given as an object
        "evaluated": ["own", "own"],
        "recorded anew": ["newer", "newer"],
        "other weights": [None, None],
        "other layers": [None, None],
    }


def test_what_keras_cannot_save_is_refused() -> None:
    class Model:
        __module__ = "keras.src.models.model"
        name = "own"

        def save(self, path: str) -> None:
            raise NotImplementedError("no configuration\nand more")

    assert is_keras_model(Model())
    assert not is_keras_model(3)
    with pytest.raises(ModelError, match=r"own: Keras cannot save .*: no configuration\n"):
        saved_model(Model())
