from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from shrink.contract.model_source import ModelSource
from shrink.contract.trained_range import ModelMetadata, TrainedRange, metadata_from_plain
from shrink.model.load import import_note, imported_from_tfmot, load_model
from shrink.model.metadata import read_metadata, write_metadata
from shrink.stages.from_tfmot import metadata_from_tfmot
from tests.model.tfmot import zoo

_NAMES = ["picture", "conv", "norm", "relu", "depthwise", "sum", "sum_relu", "second", "pool"]
_STRIPPED = ("pruned", "clustered", "annotated")
_TRAITS = {
    "pruned": ("sparsity",),
    "pqat": ("sparsity",),
    "clustered": ("clusters",),
    "cqat": ("clusters",),
    "pcqat": ("sparsity", "clusters"),
}


def _check(kind: str, made: keras.Model, path: Path) -> keras.Model:
    """Load a file and compare it with the model that tfmot made."""
    model = load_model(path)
    x = zoo.examples(made)
    wanted = np.asarray(made(x, training=False))
    assert [layer.name for layer in model.layers] == [*_NAMES, "scores"]
    assert not any("tensorflow_model_opt" in type(layer).__module__ for layer in model.layers)
    error = float(np.abs(np.asarray(model(x)) - wanted).max())
    assert error <= (1e-6 if kind in _STRIPPED else 0.05)
    assert set(metadata_from_tfmot(model)[0].traits) == set(_TRAITS.get(kind, ()))
    return model


@pytest.mark.parametrize(("kind", "ending"), [("pruned", ".keras"), ("clustered", ".h5")])
def test_load_model_strips_wrappers(kind: str, ending: str, tmp_path: Path) -> None:
    keras.utils.set_random_seed(0)
    made = zoo.MADE[kind](zoo.small())
    if kind == "pruned":  # as an optimizer leaves it without tfmot's callback
        kernel, mask, _ = made.get_layer("prune_low_magnitude_second").pruning_vars[0]
        kernel.assign_add(1.0 - mask)
    path = zoo.saved(made, tmp_path, ending)
    model = _check(kind, made, path)
    if kind == "pruned":
        np.testing.assert_array_equal(model.get_layer("second").get_weights()[0] == 0, mask == 0)
    note = import_note(model, ModelSource("keras", path))
    assert "around" in note
    assert "outputs agree to" in note


def test_load_model_keeps_the_ranges_of_a_model_that_tfmot_itself_cannot_load(
    tmp_path: Path,
) -> None:
    keras.utils.set_random_seed(0)
    made = zoo.cqat(zoo.small())
    loaded = {e: _check("cqat", made, zoo.saved(made, tmp_path, e)) for e in (".keras", ".h5")}
    for model in loaded.values():
        found = imported_from_tfmot(model)
        assert found is not None
        ranges = {(one.layer, one.before_activation): one for one in found.ranges}
        assert set(ranges) == {
            *((name, False) for name in ("picture", "relu", "depthwise", "sum_relu", "second")),
            ("pool", False),
            ("scores", True),
        }
        variables_of = {v.name: v for v in made.variables}
        high = variables_of["quant_relu/output_max:0"]
        low = variables_of["quant_scores/pre_activation_min:0"]
        assert ranges["relu", False].high == float(high)
        assert ranges["scores", True].low == float(low)
        limits = (variables_of[f"quant_second/kernel_{end}:0"] for end in ("min", "max"))
        kernel = made.get_layer("quant_second")._weight_vars[0][0]
        rounded = tf.quantization.fake_quant_with_min_max_vars_per_channel(
            kernel, *limits, num_bits=8, narrow_range=True
        )
        np.testing.assert_array_equal(model.get_layer("second").get_weights()[0], rounded)


@pytest.mark.slow
@pytest.mark.parametrize("ending", zoo.ENDINGS.values(), ids=zoo.ENDINGS)
@pytest.mark.parametrize("kind", zoo.MADE)
def test_load_model_takes_every_kind_in_every_format(
    kind: str, ending: str, tmp_path: Path
) -> None:
    keras.utils.set_random_seed(0)
    made = zoo.MADE[kind](zoo.small())
    _check(kind, made, zoo.saved(made, tmp_path, ending))


def test_write_brought_leaves_a_model_that_keras_loads(tmp_path: Path) -> None:
    path = tmp_path / "model.keras"
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.save(path)
    imported = ModelMetadata((TrainedRange("dense", False, -1.5, 2.0),), ("sparsity",))
    write_metadata(path, imported)
    assert read_metadata(path) == imported
    again = keras.models.load_model(path)
    np.testing.assert_array_equal(again.get_weights()[0], model.get_weights()[0])


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {"ranges": 3, "traits": "sparsity"},
        {
            "ranges": [
                ["a", False, 0.0],
                ["a", 1, 0.0, 1.0],
                ["a", False, 1.0, 0.0],
                [3, False, 0, 1],
            ]
        },
        {"ranges": [["a", False, float("nan"), 1.0], ["a", False, "0", 1]], "traits": ["own"]},
    ],
)
def test_brought_from_plain_leaves_out_what_makes_no_sense(value: object) -> None:
    assert metadata_from_plain(value) == ModelMetadata()


def test_one_damaged_range_leaves_the_others_and_the_traits() -> None:
    value = {"ranges": [["a", False, -1.0, 1.0], ["b", False, 1.0]], "traits": ["sparsity"]}
    expected = ModelMetadata((TrainedRange("a", False, -1.0, 1.0),), ("sparsity",))
    assert metadata_from_plain(value) == expected
