"""What later stages preserve is measured again: kept is silent, lost is an error."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import tf_keras as keras

from shrink.base.errors import StageError
from shrink.pruning.masks import prunable_kernels
from shrink.pruning.sharing import cluster
from shrink.stages.context import StageContext, StageResult
from shrink.stages.preservation import Preserved
from shrink.tflite.convert import Precision, convert

L = keras.layers


@pytest.fixture
def clustered() -> keras.Model:
    """Two kernels of 6 values and 40 % zeros, with a batch normalization behind the first."""
    inputs = L.Input((8, 8, 3))
    x = L.Conv2D(8, 3, name="conv")(inputs)
    x = L.ReLU()(L.BatchNormalization(name="norm")(x))
    model = keras.Model(inputs, L.Dense(5, name="dense")(L.Flatten()(x)))
    rng = np.random.default_rng(0)
    model.get_layer("norm").set_weights([rng.uniform(0.5, 2, 8) for _ in range(4)])
    for one in prunable_kernels(model)[0]:
        kernel = np.where(rng.random(one.kernel.shape) < 0.4, 0, rng.normal(size=one.kernel.shape))
        one.kernel.assign(cluster(kernel, 6, seed=0, keep_zeros=True).kernel)
    return model


def context(model: keras.Model, *preserves: str) -> StageContext:
    stand_in = SimpleNamespace(
        preserves=preserves, name="later", load=lambda: model, input_path=lambda: Path("m.keras")
    )
    return cast(StageContext, stand_in)


def check(preserved: Preserved, **outcome: Any) -> None:
    preserved.check(StageResult(**outcome), cast(StageContext, SimpleNamespace(name="later")))


@pytest.mark.parametrize("precision", ["float32", "dynamic_int8"])
def test_check_finds_clusters_and_zeros_in_the_converted_file(
    precision: Precision, clustered: keras.Model
) -> None:
    preserved = Preserved.of(context(clustered, "sparsity", "clusters"))
    check(preserved, tflite=convert(clustered, precision).content)
    check(preserved, model=clustered)


@pytest.mark.parametrize("layer", ["conv", "dense"])
@pytest.mark.parametrize("converted", [True, False])
def test_check_names_the_layer_that_lost_its_clusters(
    layer: str, converted: bool, clustered: keras.Model
) -> None:
    preserved = Preserved.of(context(clustered, "clusters"))
    kernel = clustered.get_layer(layer).kernel
    kernel.assign_add(np.random.default_rng(1).normal(size=kernel.shape))
    outcome: dict[str, Any] = {"model": clustered}
    if converted:
        outcome = {"tflite": convert(clustered, "float32").content}
    with pytest.raises(StageError, match=f"clustered the weights of {layer}, and"):
        check(preserved, **outcome)


def test_check_counts_the_zeros_that_are_left(clustered: keras.Model) -> None:
    preserved = Preserved.of(context(clustered, "sparsity"))
    kernel = clustered.get_layer("dense").kernel
    kernel.assign(np.where(kernel.numpy() == 0, 0.5, kernel.numpy()))
    with pytest.raises(StageError, match=r"only .* are zero now"):
        check(preserved, model=clustered)


def test_check_asks_nothing_where_nobody_claimed_anything(clustered: keras.Model) -> None:
    assert Preserved.of(context(clustered)) == Preserved()


def of_file(folder: Path, content: bytes, *preserves: str) -> Preserved:
    """What a stage behind quantize must preserve of its file."""
    path = folder / "model.tflite"
    path.write_bytes(content)
    stand_in = SimpleNamespace(preserves=preserves, name="later", input_path=lambda: path)
    return Preserved.of(cast(StageContext, stand_in))


def test_check_compares_a_file_with_the_file_that_it_was_made_from(
    clustered: keras.Model, tmp_path: Path
) -> None:
    content = convert(clustered, "dynamic_int8").content
    sparse = of_file(tmp_path, content, "sparsity")
    few = of_file(tmp_path, content, "clusters")
    check(sparse, tflite=content)
    check(few, tflite=content)
    for one in prunable_kernels(clustered)[0]:
        one.kernel.assign(np.random.default_rng(1).normal(size=one.kernel.shape))
    lost = convert(clustered, "dynamic_int8").content
    with pytest.raises(StageError, match=r"an earlier stage pruned .* are zero now"):
        check(sparse, tflite=lost)
    with pytest.raises(StageError, match="clustered the weights of a kernel of 216"):
        check(few, tflite=lost)


def test_check_lets_pass_what_was_compiled_for_an_accelerator(
    clustered: keras.Model, tmp_path: Path
) -> None:
    before = of_file(tmp_path, convert(clustered, "dynamic_int8").content, "sparsity", "clusters")
    check(before, tflite=b"compiled", not_run="only an Ethos-U runs it")
