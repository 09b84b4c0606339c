"""The stage itself, on a small model trained for a moment on the digits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn.metrics
import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import ModelError, StageError
from shrink.contract.model_source import ModelKind, ModelSource
from shrink.graph.rebuild import parted
from shrink.pruning.sharing import cluster
from shrink.quantization.source import read_float_tflite
from shrink.stages.context import StageContext
from shrink.stages.preservation import Preserved
from shrink.stages.quantize import schemes
from shrink.stages.quantize.config import SCHEME_TRAITS, QuantizeConfig
from shrink.stages.quantize.run import METADATA_ENTRY, run
from shrink.stages.quantize.schemes import SCHEMES
from shrink.tflite.convert import Conversion, convert
from shrink.tflite.interpreter import load
from shrink.tflite.model import packed, read, read_metadata, unpacked
from shrink.tflite.sparse import with_sparse_constants
from shrink.tflite.weights import float_operators
from tests.jobs import context_of
from tests.quantization.test_float_blocks import ROWS, WIDTH, added_by_hand, scores_of

L = keras.layers


def context_for(path: Path, kind: ModelKind, folder: Path, **fields: Any) -> StageContext:
    fields = {"training": {"global_batch_size": 64, "micro_batch_size": 32}, **fields}
    return context_of(folder, kind="quantize", inputs={"model": ModelSource(kind, path)}, **fields)


def context_on(folder: Path, model: keras.Model, x: np.ndarray) -> StageContext:
    """Return the context of a model on examples without targets."""
    model.save(folder / "model.keras")
    np.savez(folder / "x.npz", x=x)
    data = {"source": "npz", "path": str(folder / "x.npz"), "target": "none"}
    return context_for(folder / "model.keras", "keras", folder, data=data)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    keras.utils.set_random_seed(0)
    inputs = L.Input((8, 8, 1))
    x = L.Conv2D(16, 3, strides=2, activation="relu")(inputs)
    x = L.Conv2D(32, 3, activation="relu")(x)
    model = keras.Model(inputs, L.Dense(10, activation="softmax")(L.Flatten()(x)))
    train = context_for(folder / "none.keras", "keras", folder).dataset.train
    x_train, y_train = train.arrays(np.arange(len(train)))
    model.compile("adam", "sparse_categorical_crossentropy")
    model.fit(np.asarray(x_train, np.float32), y_train, epochs=8, verbose=0)
    model.save(folder / "model.keras")
    (folder / "model.tflite").write_bytes(convert(model, "float32").content)
    return folder


def quantized(folder: Path, tmp_path: Path, form: ModelKind = "keras", **keys: Any) -> Any:
    context = context_for(folder / f"model.{form}", form, tmp_path)
    return run(QuantizeConfig(**keys), context)


@pytest.mark.parametrize("scheme", ["float16", "dynamic_wi4_afp32", "static_wi8_ai8"])
def test_a_model_that_nobody_trained_takes_what_the_trained_one_does(
    trained: Path, tmp_path: Path, scheme: str
) -> None:
    """The same layers with other values, of which sizes alone are asked for."""
    keras.utils.set_random_seed(1)
    fresh = keras.models.clone_model(keras.models.load_model(trained / "model.keras"))
    fresh.set_weights(parted(fresh.get_weights(), np.random.default_rng(1)))
    fresh.save(tmp_path / "fresh.keras")
    context = context_for(tmp_path / "fresh.keras", "keras", tmp_path)
    context.untrained = True
    config = QuantizeConfig(scheme=scheme, dense_scales="channel", calibration_samples=32)
    whole = quantized(trained, tmp_path, scheme=scheme, dense_scales="channel").tflite
    assert len(run(config, context).tflite or b"") == len(whole)


def test_schemes_are_those_that_a_recipe_can_name() -> None:
    assert {*SCHEMES, "mixed"} == set(SCHEME_TRAITS)


def test_run_leaves_zeros_out_of_kernels(trained: Path, tmp_path: Path) -> None:
    model = keras.models.load_model(trained / "model.keras", compile=False)
    for weight in model.trainable_weights:
        if len(weight.shape) > 1:
            values = weight.numpy()
            weight.assign(values * (np.abs(values) > np.quantile(np.abs(values), 0.8)))
    model.save(tmp_path / "model.keras")
    plain, sparse = (
        quantized(tmp_path, tmp_path, scheme="float16", sparse=sparse) for sparse in (False, True)
    )
    assert len(sparse.tflite) < 0.6 * len(plain.tflite)
    sizes = f"{len(plain.tflite):,} bytes became {len(sparse.tflite):,}"
    assert any(sizes in note for note in sparse.notes)
    x = np.random.default_rng(0).normal(size=(3, 8, 8, 1)).astype(np.float32)
    outputs = [load(one).predict(x)[0] for one in (plain.tflite, sparse.tflite)]
    np.testing.assert_array_equal(outputs[0], outputs[1])


def test_run_takes_a_tflite_file_without_its_zeros_as_the_dense_one(
    trained: Path, tmp_path: Path
) -> None:
    model = keras.models.load_model(trained / "model.keras", compile=False)
    kernel = model.layers[2].kernel
    kernel.assign(kernel.numpy() * (np.arange(kernel.shape[-1]) % 8 == 0))
    dense = convert(model, "float32").content
    made = []
    for content in (dense, with_sparse_constants(dense)):
        (tmp_path / "model.tflite").write_bytes(content)
        made.append(quantized(tmp_path, tmp_path, "tflite", scheme="dynamic_wi8_afp32").tflite)
    x = np.random.default_rng(0).normal(size=(3, 8, 8, 1)).astype(np.float32)
    outputs = [load(one).predict(x)[0] for one in made]
    np.testing.assert_array_equal(outputs[0], outputs[1])


def test_run_says_that_zeros_are_too_few_to_be_left_out(trained: Path, tmp_path: Path) -> None:
    result = quantized(trained, tmp_path, scheme="float32", sparse=True)
    assert any("would not shrink the file" in note for note in result.notes)
    assert result.tflite == quantized(trained, tmp_path, scheme="float32").tflite


def accuracy(content: bytes, folder: Path) -> float:
    test = context_for(folder / "none.keras", "keras", folder).dataset.test
    x, y = test.arrays(np.arange(len(test)))
    return float(np.mean(load(content).predict(np.asarray(x, np.float32))[0].argmax(1) == y))


def weight_types(content: bytes) -> set[str]:
    return {t.dtype for t in read(content)[0].tensors if t.constant and len(t.shape) > 1}


@pytest.mark.parametrize(
    ("form", "scheme", "types"),
    [
        ("keras", "float32", {"FLOAT32"}),
        ("keras", "float16", {"FLOAT16"}),
        ("keras", "dynamic_wi8_afp32", {"INT8"}),
        ("keras", "weight_only_wi8_afp32", {"INT8"}),
        ("keras", "weight_only_wi4_afp32", {"INT4"}),
        ("keras", "static_wi8_ai8", {"INT8"}),
        ("keras", "static_wi8_ai16", {"INT8"}),
        ("tflite", "float16", {"FLOAT16"}),
        ("tflite", "dynamic_wi4_afp32", {"INT4"}),
        ("tflite", "static_wi8_ai8", {"INT8"}),
        ("tflite", "static_wi8_ai16", {"INT8"}),
    ],
)
def test_run_keeps_accuracy_under_every_scheme(
    trained: Path, tmp_path: Path, form: ModelKind, scheme: str, types: set[str]
) -> None:
    content = quantized(trained, tmp_path, form, scheme=scheme, calibration_samples=200).tflite
    assert weight_types(content) == types
    float_accuracy = accuracy((trained / "model.tflite").read_bytes(), trained)
    assert accuracy(content, trained) > float_accuracy - 0.03


@pytest.mark.parametrize("activations", ["int8", "float32"])
def test_run_mixed_keeps_the_file_within_its_bytes(
    trained: Path, tmp_path: Path, activations: str
) -> None:
    wide = quantized(trained, tmp_path, scheme="dynamic_wi8_afp32").tflite
    limit = len(wide) - 800
    result = quantized(trained, tmp_path, scheme="mixed", file_bytes=limit, activations=activations)
    assert len(result.tflite) <= limit
    assert "INT4" in weight_types(result.tflite)
    assert {row.weight_bits for row in result.details.mixed.operators} == {4, 8}


def test_run_mixed_keeps_the_accuracy_of_the_validation_split(
    trained: Path, tmp_path: Path
) -> None:
    context = context_for(trained / "model.keras", "keras", tmp_path)
    result: Any = run(QuantizeConfig(scheme="mixed", accuracy_drop=0.05), context)
    assert all(one.code != "limit-below-resolution" for one in context.warnings)
    drop = result.details.mixed.validation_drop
    assert drop <= 0.05
    (told,) = [note for note in result.notes if note.startswith("mixed: ")]
    points = float(told.partition("accuracy on validation ")[2].partition(" points")[0])
    assert points == pytest.approx(-100 * drop, abs=0.005)
    float_accuracy = accuracy((trained / "model.tflite").read_bytes(), trained)
    assert accuracy(result.tflite, trained) > float_accuracy - 0.08


def test_run_mixed_warns_of_a_limit_below_one_validation_example(
    trained: Path, tmp_path: Path
) -> None:
    context = context_for(trained / "model.keras", "keras", tmp_path)
    assert 50 < len(context.dataset.validation) < 1000
    run(QuantizeConfig(scheme="mixed", accuracy_drop=0.001, activations="float32"), context)
    (found,) = [one for one in context.warnings if one.code == "limit-below-resolution"]
    assert "at least 1,000 validation examples" in str(found.hint)


def test_run_refuses_a_tflite_file_that_is_quantized_already(trained: Path, tmp_path: Path) -> None:
    content = quantized(trained, tmp_path).tflite
    (tmp_path / "model.tflite").write_bytes(content)
    with pytest.raises(ModelError, match="quantized already"):
        quantized(tmp_path, tmp_path, "tflite")


@pytest.mark.parametrize(("keys", "noted"), [({}, True), ({"output_type": "int8"}, False)])
def test_outputs_that_become_float_with_a_masked_softmax_are_noted(
    tmp_path: Path, keys: dict[str, Any], noted: bool
) -> None:
    scores = keras.Input((ROWS, WIDTH), name="scores")
    model = keras.Model(scores, added_by_hand(L.ReLU()(scores)))
    context = context_on(tmp_path, model, scores_of())
    notes = run(QuantizeConfig(**keys), context).notes
    assert any(note.startswith("outputs become float32") for note in notes) is noted


def test_a_conversion_on_which_a_kernel_aborts_is_an_error_that_names_the_operator(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    inputs = L.Input((4,))
    model = keras.Model(inputs, L.Add()([inputs, L.Dense(4)(inputs)]))
    x = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)

    def aborting(*arguments: Any, **options: Any) -> Conversion:
        made = unpacked(convert(*arguments, **options).content)
        (graph,) = made.subgraphs
        add = next(o for o in graph.operators if len(o.inputs) == 2)
        graph.tensors[add.outputs[0]].quantization.scale = np.array([1e-12], np.float32)
        return Conversion(packed(made), ())

    monkeypatch.setattr(schemes, "convert", aborting)
    monkeypatch.setattr(schemes, "_by_quantizer", lambda *_: StageError("refused"))
    context = context_on(tmp_path, model, x)
    with pytest.raises(StageError, match=r"LiteRT cannot run the converted file: died by SIGABRT"):
        run(QuantizeConfig(scheme="static_wi8_ai8"), context)


def test_read_float_tflite_refuses_a_file_of_several_models(tmp_path: Path) -> None:
    class Two(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec((1, 4), tf.float32)])
        def one(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
            return {"y": x + 1}

        @tf.function(input_signature=[tf.TensorSpec((1, 4), tf.float32)])
        def two(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
            return {"y": x * 2}

    module, folder, path = Two(), tmp_path / "saved", tmp_path / "two.tflite"
    tf.saved_model.save(module, folder, signatures={"one": module.one, "two": module.two})
    converter = tf.lite.TFLiteConverter.from_saved_model(str(folder), ["one", "two"])
    path.write_bytes(converter.convert())
    with pytest.raises(ModelError, match=r"holds 2 models.*: one, two") as caught:
        read_float_tflite(path)
    assert "a file of its own" in str(caught.value.hint)


def test_run_refuses_unsigned_borders_from_a_tflite_file(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(StageError, match="uint8"):
        quantized(trained, tmp_path, "tflite", input_type="uint8")


def test_run_embeds_labels_on_request(trained: Path, tmp_path: Path) -> None:
    plain = quantized(trained, tmp_path, "tflite", scheme="dynamic_wi8_afp32").tflite
    told = quantized(
        trained, tmp_path, "tflite", scheme="dynamic_wi8_afp32", embed_metadata=True
    ).tflite
    assert read_metadata(plain, METADATA_ENTRY) == []
    found = json.loads(read_metadata(told, METADATA_ENTRY)[0])
    assert found["labels"] == [str(digit) for digit in range(10)]
    assert found["inputs"][0]["shape"] == [1, 8, 8, 1]
    assert accuracy(told, trained) == accuracy(plain, trained)


@pytest.mark.parametrize("input_type", ["int8", "uint8"])  # by either quantizer
def test_run_gives_dense_layers_one_scale_on_request(
    trained: Path, tmp_path: Path, input_type: str
) -> None:
    found = quantized(trained, tmp_path, dense_scales="tensor", input_type=input_type).tflite
    graph = read(found or b"")[0]
    scales = {
        operator.name: len(graph.tensors[operator.inputs[1]].scales)
        for operator in graph.operators
        if operator.name in ("CONV_2D", "FULLY_CONNECTED")
    }
    assert scales == {"CONV_2D": 32, "FULLY_CONNECTED": 1}


def test_run_aware_trains_for_the_artifact_and_keeps_zeros_and_clusters(
    trained: Path, tmp_path: Path
) -> None:
    model = keras.models.load_model(trained / "model.keras")
    for layer in model.layers[1:3]:
        kernel, bias = layer.get_weights()
        kernel[np.abs(kernel) < np.quantile(np.abs(kernel), 0.3)] = 0
        layer.set_weights([cluster(kernel, 32, 0, keep_zeros=True).kernel, bias])
    model.save(tmp_path / "model.keras")
    preserves = ("sparsity", "clusters")
    context = context_for(tmp_path / "model.keras", "keras", tmp_path, preserves=preserves)
    preserved = Preserved.of(context)
    assert preserved.zeros is not None
    assert preserved.zeros.fraction > 0.2
    assert len(preserved.clustered) == 2
    result: Any = run(QuantizeConfig(aware=True, epochs=1), context)
    assert result.training.exact
    assert result.training.updates > 0
    preserved.check(result, context)
    assert float_operators(result.tflite) == []
    float_accuracy = accuracy((trained / "model.tflite").read_bytes(), trained)
    assert accuracy(result.tflite, trained) > float_accuracy - 0.03


@pytest.mark.parametrize(
    ("layer", "keys", "words"),
    [
        (L.Activation("gelu"), {"target": "tflm"}, "TFLite Micro cannot run .*GELU"),
        (L.Embedding(17, 2), {"input_type": "int8"}, "would change the whole numbers"),
    ],
)
def test_run_aware_refuses_before_it_trains(
    layer: Any, keys: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = L.Input((8, 8, 1))
    x = L.Flatten()(layer(inputs))
    keras.Model(inputs, L.Dense(10)(x)).save(tmp_path / "model.keras")
    monkeypatch.setattr(StageContext, "train", lambda *_, **__: pytest.fail("it was trained"))
    with pytest.raises(StageError, match=words):
        quantized(tmp_path, tmp_path, aware=True, epochs=1, **keys)


def test_run_aware_refuses_a_tflite_file(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="needs the Keras model"):
        quantized(trained, tmp_path, "tflite", aware=True, epochs=1)


@pytest.mark.parametrize(
    ("scheme", "form"),
    [
        *((s, "keras") for s, one in SCHEME_TRAITS.items() if not one.calibrates),
        ("dynamic_wi8_afp32", "tflite"),
    ],
)
def test_run_needs_no_data_for_what_the_model_alone_decides(
    tmp_path: Path, scheme: str, form: ModelKind
) -> None:
    keras.utils.set_random_seed(0)
    real, index = L.Input((5,), name="z"), L.Input((4,), dtype="int32", name="a")
    words = L.Flatten()(L.Embedding(20, 8)(index))
    model = keras.Model([real, index], L.Dense(32)(L.Concatenate()([real, words])))
    model.save(tmp_path / "model.keras")
    (tmp_path / "model.tflite").write_bytes(convert(model, "float32").content)
    nothing = {"source": "none"}
    context = context_for(tmp_path / f"model.{form}", form, tmp_path, data=nothing)
    result: Any = run(QuantizeConfig(scheme=scheme), context)
    assert result.details.audit.compared_on == "random inputs"
    told = "agreement of outputs on random inputs"
    assert any(note.startswith(told) for note in result.notes)
    assert not any("examples" in note for note in result.notes)
    rng = np.random.default_rng(0)
    x = {"z": rng.random((9, 5), np.float32), "a": rng.integers(0, 20, (9, 4)).astype(np.float32)}
    outputs, expected = load(result.tflite).predict(x)[0], model([x["z"], x["a"]]).numpy()
    np.testing.assert_allclose(outputs, expected, atol=0.02 * np.abs(expected).max())


def _by_scikit_learn(metric: str, content: bytes, context: StageContext) -> float:
    validation = context.dataset.validation
    x, y = validation.arrays(np.arange(len(validation)))
    (p,) = load(content).predict(np.asarray(x, np.float32))
    p = np.asarray(p, np.float64)
    if metric == "f1_macro":
        return float(sklearn.metrics.f1_score(y, p.argmax(1), average="macro"))
    return -float(sklearn.metrics.log_loss(y, p / p.sum(1, keepdims=True), labels=range(10)))


@pytest.mark.parametrize(("metric", "allowed"), [("f1_macro", 0.01), ("log_loss", 0.02)])
def test_run_mixed_keeps_the_main_metric_whichever_way_is_better(
    metric: str, allowed: float, trained: Path, tmp_path: Path
) -> None:
    task = {"metrics": [metric, "accuracy"]}
    context = context_for(trained / "model.keras", "keras", tmp_path, task=task)
    result: Any = run(QuantizeConfig(scheme="mixed", metric_drop=allowed), context)
    before = (trained / "model.tflite").read_bytes()
    worse = [_by_scikit_learn(metric, one, context) for one in (before, result.tflite)]
    drop = result.details.mixed.validation_drop
    assert drop == pytest.approx(worse[0] - worse[1], abs=1e-6)
    assert drop <= allowed
    assert {4} <= {row.weight_bits for row in result.details.mixed.operators}


@pytest.mark.parametrize("others", [["mean_squared_error"], []])
def test_run_mixed_looks_at_what_validation_can_tell_beside_anomalies(
    others: list[str], tmp_path: Path
) -> None:
    rng = np.random.default_rng(3)
    x, condition = rng.normal(size=(240, 32)).astype(np.float32), ["good", "bad"] * 120
    np.savez(tmp_path / "sounds.npz", x=x, condition=np.array(condition))
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(32, "relu"), keras.layers.Dense(32)]
    model = keras.Sequential([keras.Input((32,)), *layers])
    model.save(tmp_path / "model.keras")
    named = {"path": str(tmp_path / "sounds.npz"), "slices": [{"column": "condition"}]}
    context = context_for(
        tmp_path / "model.keras",
        "keras",
        tmp_path,
        data={"source": "npz", "target": "input", **named},
        task={"metrics": ["anomaly_roc_auc_good", *others]},
    )
    result: Any = run(QuantizeConfig(scheme="mixed", metric_drop=0.02), context)
    validation = context.dataset.validation
    wanted = np.asarray(validation.arrays(np.arange(len(validation)))[0], np.float32)
    errors = [
        np.square(np.asarray(load(content).predict(wanted)[0], np.float64) - wanted).mean()
        for content in (convert(model, "float32").content, result.tflite)
    ]
    assert result.details.mixed.validation_drop == pytest.approx(errors[1] - errors[0], abs=1e-5)
    assert any(f"{(*others, 'loss')[0]} on validation" in note for note in result.notes)


def test_a_class_that_is_hardly_ever_the_answer_is_no_mixed_range_of_probabilities(
    trained: Path, tmp_path: Path
) -> None:
    model = keras.models.load_model(trained / "model.keras")
    kernel, bias = model.layers[-1].get_weights()
    model.layers[-1].set_weights([kernel, np.where(np.arange(10) == 3, bias - 12, bias)])
    model.save(tmp_path / "model.keras")
    context = context_for(tmp_path / "model.keras", "keras", tmp_path)
    run(QuantizeConfig(), context)
    assert [warning.code for warning in context.warnings] == []
