"""Sizes that are known before anything is trained are those of the file that a run leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import shrink
from shrink.base.cache import cache_root
from shrink.recipe.load import RawRecipe
from shrink.run.process import preloading
from shrink.run.store import Store
from shrink.search.candidates import Candidates
from shrink.search.choose import Sizes, Steps

MODEL = """
import tf_keras as keras
L = keras.layers
def build():
    inputs = L.Input((8, 8, 1))
    x = L.Conv2D(16, 3, padding="same", use_bias=False)(inputs)
    x = L.ReLU()(L.BatchNormalization()(x))
    y = L.BatchNormalization()(L.Conv2D(16, 3, padding="same")(x))
    x = L.Flatten()(L.Conv2D(32, 3, strides=2, activation="relu")(L.Add()([x, y])))
    x = L.Dense(64, activation="relu")(L.Dense(64, activation="relu")(x))
    return keras.Model(inputs, L.Dense(10, activation="softmax")(x))
"""
STUDENT = {"distill": {"student": {"width": 0.5}, "epochs": 1}}
CHAINS: dict[str, list[dict[str, Any]]] = {
    "int8": [{"quantize": {}}],
    "4 bits": [{"quantize": {"scheme": "dynamic_wi4_afp32"}}],
    "int16": [{"quantize": {"scheme": "static_wi8_ai16"}}],
    "aware": [{"quantize": {"aware": True, "epochs": 1}}],
    "student": [STUDENT, {"quantize": {}}],
    "student in 4 bits": [STUDENT, {"quantize": {"scheme": "weight_only_wi4_afp32"}}],
    "student in float16": [STUDENT, {"quantize": {"scheme": "float16"}}],
    "channels": [{"prune": {"method": "channels", "ratio": 0.5, "epochs": 1}}, {"quantize": {}}],
    "zeros that a distillation keeps": [
        {"prune": {"sparsity": 0.8, "epochs": 1}},
        {"distill": {"epochs": 1}},
        {"quantize": {"sparse": True}},
    ],
    "zeros": [{"prune": {"sparsity": 0.8, "epochs": 1}}, {"quantize": {"sparse": True}}],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CHAINS)
def test_a_file_has_the_bytes_that_were_known_of_it_untrained(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a model that nobody has trained yet, whose biases are all zero."""
    monkeypatch.setenv("SHRINK_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "model.py").write_text(MODEL, encoding="utf-8")
    stages = [{"train": {"epochs": 1}}, *CHAINS[name]]
    given = {"name": "r", "data": {"source": "digits"}, "stages": stages}
    recipe: Any = {**given, "model": f"{tmp_path / 'model.py'}:build"}
    searched = {**recipe, "search": {"trials": 1, "space": {"training.seed": [0]}}}
    candidates = Candidates.read(RawRecipe(searched, {}), Path("r"), ())
    store = Store(cache_root(), lambda text: None)
    with preloading(), store.in_use():
        known = Sizes(Steps(store)).of(candidates.plan({}))
        run = shrink.run(recipe, output=tmp_path / "out", quiet=True)
    assert known.error is None
    assert known.figures["tflite_bytes"] == run.stages[-1].figures["tflite_bytes"]
