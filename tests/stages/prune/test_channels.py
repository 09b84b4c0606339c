"""The stage on a tiny digits model: it is smaller, it is right, and it refuses what it cannot."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tf_keras as keras

from shrink.base.errors import RecipeError, StageError
from shrink.compact.compact import compact
from shrink.graph.groups import find_groups
from shrink.graph.rebuild import weights_of
from shrink.pruning.importance import Evidence, lamp
from shrink.stages.context import StageContext
from shrink.stages.prune.config import PruneConfig
from shrink.stages.prune.run import run
from shrink.stages.quantize.config import QuantizeConfig
from shrink.stages.quantize.run import run as quantize
from shrink.tflite.arena import arena_of
from shrink.tflite.convert import convert
from shrink.tflite.model import read
from tests.graph.equivalence import randomise
from tests.jobs import context_of

L = keras.layers
IMPORTANCES = (
    "l2", "l1", "lamp", "bn_scale", "taylor", "random", "least_squares",
)  # fmt: skip


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    inputs = L.Input((8, 8, 1), name="picture")
    x = L.Rescaling(1 / 16)(inputs)
    stem = L.Conv2D(10, 3, padding="same", name="stem")(x)
    x = L.ReLU()(L.BatchNormalization(name="stem_bn")(stem))
    x = L.Conv2D(12, 3, padding="same", use_bias=False, name="inner")(x)
    x = L.ReLU()(L.BatchNormalization(name="inner_bn")(x))
    x = L.Add()([stem, L.Conv2D(10, 3, padding="same", name="outer")(x)])
    x = L.Flatten()(L.MaxPooling2D(4)(x))
    model = keras.Model(inputs, L.Dense(10, activation="softmax", name="head")(x))
    randomise(model)
    path = tmp_path_factory.mktemp("model") / "model.keras"
    model.save(path)
    return path


def context(model_path: Path, tmp_path: Path) -> StageContext:
    training = {"global_batch_size": 128, "micro_batch_size": 128}
    return context_of(tmp_path, kind="prune", inputs={"model": model_path}, training=training)


BY_HAND = {"importance": "l2", "allocation": "uniform"}
"""What a budget would else choose by trying."""


def prune(model_path: Path, tmp_path: Path, **settings: Any) -> Any:
    config = PruneConfig.model_validate({"method": "channels", "epochs": 0, **settings})
    return run(config, context(model_path, tmp_path))


def widths(result: Any) -> dict[str, int]:
    return {name: result.model.get_layer(name).filters for name in ("stem", "inner", "outer")}


@pytest.mark.parametrize("importance", IMPORTANCES)
def test_prune_removes_the_ratio_by_every_importance(
    importance: str, model_path: Path, tmp_path: Path
) -> None:
    result = prune(model_path, tmp_path, ratio=0.5, importance=importance, samples=50)
    assert widths(result) == {"stem": 5, "inner": 6, "outer": 5}
    assert {entry.layer for entry in result.skipped} == {"head"}


def test_prune_reconstructs_better_than_it_ranks(model_path: Path, tmp_path: Path) -> None:
    original = keras.models.load_model(model_path, compile=False)
    x = np.random.default_rng(0).uniform(0, 16, (64, 8, 8, 1)).astype(np.float32)
    errors = {}
    for importance in ("l2", "least_squares"):
        result = prune(
            model_path, tmp_path, ratios={"inner": 0.3}, importance=importance, samples=200
        )
        difference = _features(result.model, x) - _features(original, x)
        errors[importance] = float(np.mean(difference**2))
    assert errors["least_squares"] < 0.5 * errors["l2"]


def test_prune_solves_for_the_layers_after_those_that_read_the_group(
    model_path: Path, tmp_path: Path
) -> None:
    original = keras.models.load_model(model_path, compile=False)
    unseen = context(model_path, tmp_path).dataset.test
    x = np.asarray(unseen.arrays(np.arange(len(unseen)))[0], np.float32)
    result = prune(
        model_path, tmp_path, ratios={"inner": 0.5}, importance="least_squares", samples=200
    )
    features, before = _features(result.model, x), original.get_layer("head").get_weights()
    wanted = _features(original, x) @ before[0] + before[1]
    errors = [
        float(np.mean((features @ kernel + bias - wanted) ** 2))
        for kernel, bias in (result.model.get_layer("head").get_weights(), before)
    ]
    assert errors[0] < 0.9 * errors[1]


def _features(model: keras.Model, x: np.ndarray) -> np.ndarray:
    return np.asarray(keras.Model(model.inputs, model.get_layer("head").input)(x))


def test_prune_without_rebuild_keeps_shapes_and_zeros_through_training(
    model_path: Path, tmp_path: Path
) -> None:
    result = prune(model_path, tmp_path, ratio=0.5, rebuild=False, epochs=1)
    assert widths(result) == {"stem": 10, "inner": 12, "outer": 10}
    kernel = result.model.get_layer("inner").get_weights()[0]
    assert np.sum(np.any(kernel != 0, axis=(0, 1, 2))) == 6
    assert np.sum(np.any(kernel != 0, axis=(0, 1, 3))) == 5
    before = keras.models.load_model(model_path, compile=False).get_layer("inner").get_weights()[0]
    assert np.any(kernel[kernel != 0] != before[kernel != 0])


def test_prune_fine_tunes_under_the_unpruned_model(model_path: Path, tmp_path: Path) -> None:
    result = prune(model_path, tmp_path, ratio=0.3, teacher="self", epochs=1)
    assert result.training.epochs == 1
    assert widths(result) == {"stem": 7, "inner": 9, "outer": 7}
    assert result.model.layers[-1].activation is keras.activations.softmax


def test_prune_takes_the_lowest_of_all_groups_by_lamp(model_path: Path, tmp_path: Path) -> None:
    result = prune(model_path, tmp_path, ratio=0.3, importance="lamp", allocation="global")
    graph = find_groups(keras.models.load_model(model_path, compile=False))
    evidence = Evidence(weights_of(graph), dict)
    stem, inner = (lamp(group, evidence) for group in graph.groups)
    lowest = np.sort([*stem, *inner])[:6]
    left = {"stem": 10 - np.isin(stem, lowest).sum(), "inner": 12 - np.isin(inner, lowest).sum()}
    assert widths(result) == {**left, "outer": left["stem"]}


def test_prune_meets_a_budget_of_macs(model_path: Path, tmp_path: Path) -> None:
    result = prune(model_path, tmp_path, macs=0.5, **BY_HAND)
    original = keras.models.load_model(model_path, compile=False)
    left, before = (_macs(model) for model in (result.model, original))
    assert 0.35 * before < left <= 0.5 * before


def _macs(model: keras.Model) -> int:
    graph = find_groups(model)
    return graph.macs(graph.keep(np.array([])))


def _tflite_macs(model: keras.Model) -> int:
    """Multiply-accumulates by hand, from the operators of the file."""
    (graph,) = read(convert(model, "float32").content)[:1]
    total = 0
    for operator in graph.operators:
        sides = [graph.tensors[i].shape if i >= 0 else () for i in operator.inputs]
        out = graph.tensors[operator.outputs[0]].shape
        if operator.name in ("CONV_2D", "FULLY_CONNECTED"):
            total += math.prod(out) * math.prod(sides[1][1:])
        elif operator.name == "BATCH_MATMUL":
            total += math.prod(sides[0]) * math.prod(out) // math.prod(out[:-1])
    return total


def _saved(model: keras.Model, folder: Path) -> Path:
    randomise(model)
    model.save(folder / "other.keras")
    return folder / "other.keras"


def _with_attention() -> keras.Model:
    inputs = L.Input((8, 8, 1), name="picture")
    x = L.Dense(16, name="words")(L.Reshape((16, 4))(inputs))
    x = L.MultiHeadAttention(8, 4, name="attention")(x, x)
    x = L.Dense(12, activation="relu", name="wide")(x)
    return keras.Model(inputs, L.Dense(10, name="head")(L.GlobalAveragePooling1D()(x)))


def _with_wrapped() -> keras.Model:
    inputs = L.Input((8, 8, 1), name="picture")
    x = L.Conv2D(8, 3, padding="same", name="conv")(inputs)
    x = L.TimeDistributed(L.Dense(16), name="wrapped")(x)
    x = L.Conv2D(8, 3, padding="same", name="after")(x)
    return keras.Model(inputs, L.Dense(10, name="head")(L.GlobalAveragePooling2D()(x)))


@pytest.mark.parametrize(
    "build", [pytest.param(_with_attention, marks=pytest.mark.slow), _with_wrapped]
)
def test_prune_meets_macs_by_the_count_of_the_file(
    build: Callable[[], keras.Model], tmp_path: Path
) -> None:
    model = build()
    path, before = _saved(model, tmp_path), _tflite_macs(model)
    result = prune(path, tmp_path, macs=0.6, **BY_HAND)
    left = _tflite_macs(result.model)
    assert 0.5 * before < left <= 0.6 * before
    met = result.details.budget
    assert (met.figure, met.before, met.after) == ("macs", before, left)
    assert any(f"macs: {before:,} to {left:,}" in note for note in result.notes)


def test_prune_says_so_where_a_budget_is_met_already(model_path: Path, tmp_path: Path) -> None:
    with pytest.raises(StageError, match="there is nothing to prune"):
        prune(model_path, tmp_path, file_bytes=10**6)


def test_prune_refuses_to_exclude_what_is_not_there(model_path: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="'stemm' fits no layer"):
        prune(model_path, tmp_path, ratio=0.5, exclude=["stemm"])


def test_prune_says_how_much_less_goes_for_multiples(model_path: Path, tmp_path: Path) -> None:
    result = prune(model_path, tmp_path, ratio=0.5, round_to=8)
    assert widths(result) == {"stem": 8, "inner": 8, "outer": 8}
    text = " ".join(result.notes)
    assert "27.3% of the channels are removed, less than requested: in stem, inner" in text


def test_prune_in_rounds_fine_tunes_after_each(model_path: Path, tmp_path: Path) -> None:
    result = prune(model_path, tmp_path, ratio=0.5, steps=2, epochs=3, importance="taylor")
    assert widths(result) == {"stem": 5, "inner": 6, "outer": 5}
    assert result.training.epochs == 3
    assert len(result.training.history["val_loss"]) == 3
    updates = [update or 0 for update in result.training.memory_timeline["update"]]
    assert updates == sorted(updates)
    assert result.training.updates == updates[-1]
    assert "in 2 rounds" in result.notes[0]


@pytest.mark.parametrize(
    ("precision", "epochs"),
    [
        pytest.param("float32", 1, marks=pytest.mark.slow),
        ("float32", 0),
        pytest.param("int8", 0, marks=pytest.mark.slow),
    ],
)
def test_prune_meets_a_file_size(
    precision: str, epochs: int, model_path: Path, tmp_path: Path
) -> None:
    limit = 9_000 if precision == "float32" else 6_000
    settings = {"file_bytes": limit, "file_precision": precision, "epochs": epochs}
    result = prune(model_path, tmp_path, **settings, **BY_HAND)
    size = _file_bytes(result.model, precision, tmp_path)
    assert 0.93 * limit < size <= limit
    assert result.details.budget.precision == precision
    assert abs(result.details.budget.after - size) <= 32
    assert any(f"file_bytes of the {precision} file: " in note for note in result.notes)


def _file_bytes(model: keras.Model, precision: str, folder: Path) -> int:
    """Return the size of the file that the `quantize` stage makes, or a plain conversion's."""
    if precision == "float32":
        return len(_converted(model))
    quantized = folder / "quantized.keras"
    model.save(quantized)
    config = QuantizeConfig(scheme="static_wi8_ai8", dense_scales="channel")
    content = quantize(config, context(quantized, folder)).tflite
    assert content is not None
    return len(content)


def _converted(model: keras.Model) -> bytes:
    return convert(model, "float32").content


@pytest.mark.slow
def test_prune_meets_an_arena_and_no_more(model_path: Path, tmp_path: Path) -> None:
    original = keras.models.load_model(model_path, compile=False)

    def arena(model: keras.Model) -> int:
        path = tmp_path / "model.tflite"
        path.write_bytes(_converted(model))
        found = arena_of(path)
        assert found.value is not None
        return found.value

    limit = int(0.7 * arena(original))
    result = prune(model_path, tmp_path, arena_bytes=limit, exclude=["inner"], **BY_HAND)
    assert 0.8 * limit < arena(result.model) <= limit
    with pytest.raises(StageError, match=r"arena_bytes: 1,000 is out of reach"):
        prune(model_path, tmp_path, arena_bytes=1000, **BY_HAND)


def wide_path(folder: Path) -> Path:
    """A model whose middle is wide enough for bands."""
    x = inputs = L.Input((8, 8, 1))
    x = L.Conv2D(4, 3, padding="same", activation="relu")(L.UpSampling2D(4)(x))
    x = L.Conv2D(32, 1, activation="relu", name="wide")(x)
    x = L.DepthwiseConv2D(3, padding="same", activation="relu")(x)
    x = L.GlobalAveragePooling2D()(L.Conv2D(8, 1, name="narrow")(x))
    model = keras.Model(inputs, L.Dense(10, activation="softmax")(x))
    randomise(model)
    path = folder / "wide.keras"
    model.save(path)
    return path


@pytest.mark.slow
def test_prune_cuts_fewer_channels_where_compact_follows(tmp_path: Path) -> None:
    """One limit, 60 % of the arena as converted: bands meet most of it."""
    path = wide_path(tmp_path)

    def int8(model: keras.Model) -> bytes:
        model.save(tmp_path / "pruned.keras")
        own = context(tmp_path / "pruned.keras", tmp_path)
        content = quantize(QuantizeConfig(scheme="static_wi8_ai8", target="tflm"), own).tflite
        assert content is not None
        return content

    def arena(content: bytes) -> int:
        (tmp_path / "model.tflite").write_bytes(content)
        found = arena_of(tmp_path / "model.tflite").value
        assert found is not None
        return found

    limit = int(0.6 * arena(int8(keras.models.load_model(path, compile=False))))
    found = {}
    for kind in ("converted", "compacted"):
        settings = {"arena_bytes": limit, "file_precision": "int8", "arena": kind}
        found[kind] = prune(path, tmp_path, exclude=["narrow"], **settings)
    converted, compacted = (int8(one.model) for one in found.values())
    assert arena(converted) <= limit < arena(compacted)
    small = compact(compacted, arena=limit)
    assert arena(small.content) == small.arena_after <= limit
    assert any("counts on the stage compact" in note for note in found["compacted"].notes)
    widths = [one.model.get_layer("wide").filters for one in found.values()]
    assert widths[1] > widths[0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ratio": 0.05}, "no channel would be removed"),
        ({"ratio": 0.5, "round_to": 16}, "no channel would be removed"),
        ({"ratio": 0.5, "round_to": 16}, "what stays is a multiple of 16"),
        ({"ratio": 0.5, "exclude": ["*"]}, "no layer has channels that can be removed"),
        ({"parameters": 0.001}, "out of reach"),
        ({"ratio": 0.5, "importance": "bn_scale", "exclude": ["inner"]}, None),
    ],
)
def test_prune_refuses_to_change_nothing(
    settings: dict[str, Any], message: str | None, model_path: Path, tmp_path: Path
) -> None:
    if message is None:
        assert widths(prune(model_path, tmp_path, **settings))["inner"] == 12
        return
    with pytest.raises(StageError, match=message) as caught:
        prune(model_path, tmp_path, **settings)
    assert caught.value.exit_code == 4
