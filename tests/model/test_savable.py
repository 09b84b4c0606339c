"""Models that training would be lost of, as Keras cannot save them."""

from __future__ import annotations

from pathlib import Path

import pytest
import tf_keras as keras

from shrink.base.errors import ModelError
from shrink.contract.model_source import ModelSource
from shrink.model.load import load_source
from shrink.model.savable import check_savable
from tests.jobs import context_of

L = keras.layers
BUILDERS = """
import numpy as np
import tensorflow as tf
import tf_keras as keras

L = keras.layers

class Times(L.Layer):
    def __init__(self, by, **given):
        super().__init__(**given)
        self.by = by

    def call(self, x):
        return x * self.by

class Kept(Times):
    def get_config(self):
        return {**super().get_config(), "by": self.by}

class Odd(Times):
    def get_config(self):
        return {**super().get_config(), "by": object()}

def model(through):
    x = L.Input((4, 3))
    return keras.Model(x, L.Dense(2)(through(L.Dense(3)(x))))

def ellipsis():
    return model(lambda x: x[..., 0])

def inside():
    x = L.Input((4, 3))
    return keras.Model(x, ellipsis()(x))

def unknown():
    return model(Odd(2.0, name="times"))

def sliced():
    return model(lambda x: x[:, :, 0])

def gathered():
    return model(lambda x: tf.gather(x, 0, axis=-1))

def scaled():
    return model(Kept(2.0))
"""


def built(function: str, folder: Path) -> ModelSource:
    path = folder / "own.py"
    path.write_text(BUILDERS)
    return ModelSource("builder", path, function=function)


@pytest.mark.parametrize(
    ("function", "says", "remedy"),
    [
        ("ellipsis", "getitem.*Ellipsis", "x[:, :, 0]"),
        ("inside", "Ellipsis", "get_config"),
        ("unknown", "'times' cannot be saved", "get_config"),
    ],
)
def test_a_builder_is_refused_where_its_model_cannot_be_saved(
    function: str, says: str, remedy: str, tmp_path: Path
) -> None:
    source = built(function, tmp_path)
    with pytest.raises(ModelError, match=says) as caught:
        context_of(tmp_path / "step", kind="train", inputs={"model": source}).load()
    assert caught.match("training would be lost")
    assert caught.value.hint is not None
    assert remedy in caught.value.hint
    # A model that is only looked at, or quantized, is not saved.
    assert load_source(source).count_params()
    assert load_source(source, as_graph=True).count_params()


@pytest.mark.parametrize("function", ["sliced", "gathered", "scaled"])
def test_a_builder_is_taken_where_keras_saves_its_model(function: str, tmp_path: Path) -> None:
    model = load_source(built(function, tmp_path))
    check_savable(model, tmp_path)
    model.save(tmp_path / "saved.keras")
    assert (tmp_path / "saved.keras").stat().st_size
