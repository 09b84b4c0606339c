"""The stage on a tiny digits model, through the engine's own training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tf_keras as keras

from shrink.base.errors import RecipeError, StageError
from shrink.contract.report import Skipped
from shrink.pruning.masks import prunable_kernels
from shrink.stages.cluster.config import ClusterConfig
from shrink.stages.cluster.run import run
from shrink.stages.context import StageContext
from tests.jobs import context_of

L = keras.layers


def context(tmp_path: Path, *preserves: str) -> StageContext:
    inputs = L.Input((8, 8, 1))
    x = L.ReLU()(L.Conv2D(6, 3, name="conv")(L.Rescaling(1 / 16)(inputs)))
    model = keras.Model(inputs, L.Dense(10, activation="softmax", name="head")(L.Flatten()(x)))
    for one in prunable_kernels(model)[0] if preserves else ():
        one.kernel.assign(np.where(np.abs(one.kernel) < 0.05, 0, one.kernel))
    model.save(tmp_path / "model.keras")
    return context_of(
        tmp_path,
        kind="cluster",
        preserves=preserves,
        training={"global_batch_size": 256, "micro_batch_size": 128},
        inputs={"model": tmp_path / "model.keras"},
    )


@pytest.mark.parametrize("preserves", [(), ("sparsity",)])
def test_run_trains_kernels_of_few_values_and_keeps_zeros(
    preserves: tuple[str, ...], tmp_path: Path
) -> None:
    opened = context(tmp_path, *preserves)
    before = {k.layer: k.kernel.numpy() for k in prunable_kernels(opened.load())[0]}
    result: Any = run(ClusterConfig(clusters=5, epochs=1), opened)
    assert result.training.updates > 1
    for one in prunable_kernels(result.model)[0]:
        kernel = one.kernel.numpy()
        assert len(np.unique(kernel)) == 5
        if preserves:
            np.testing.assert_array_equal(kernel == 0, before[one.layer] == 0)
    assert "each of 2 kernels take at most 5 values" in result.notes[0]


def test_values_shared_within_each_channel_are_not_as_few_in_the_kernel(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    inputs = L.Input((8, 8, 1))
    x = L.Conv2D(40, 3, name="came")(L.Conv2D(8, 3)(inputs))
    model = keras.Model(inputs, L.Dense(10)(L.GlobalAveragePooling2D()(x)))
    each = [random.choice(random.normal(size=9), size=(3, 3, 8)) for _ in range(40)]
    model.get_layer("came").set_weights([np.stack(each, -1), np.zeros(40)])
    model.save(tmp_path / "model.keras")
    opened = context_of(tmp_path, kind="cluster", inputs={"model": tmp_path / "model.keras"})
    made: Any = run(ClusterConfig(clusters=9, epochs=0), opened).model
    assert len(np.unique(made.get_layer("came").kernel)) == 9


def test_run_leaves_excluded_layers_alone_and_refuses_none(tmp_path: Path) -> None:
    opened = context(tmp_path)
    before = opened.load().get_layer("head").kernel.numpy()
    result: Any = run(ClusterConfig(clusters=4, epochs=0, exclude=("head",)), opened)
    np.testing.assert_array_equal(result.model.get_layer("head").kernel.numpy(), before)
    assert result.skipped == [Skipped(layer="head", reason="excluded by the recipe")]
    with pytest.raises(StageError, match=r"no kernel to cluster") as caught:
        run(ClusterConfig(exclude=("*",)), opened)
    assert "cluster.exclude" in str(caught.value)


def test_run_refuses_to_change_nothing(tmp_path: Path) -> None:
    # 54 and 2,160 weights: 100 values are more than the smaller kernel has.
    opened = context(tmp_path)
    result = run(ClusterConfig(clusters=100, epochs=0), opened)
    assert [entry.layer for entry in result.skipped] == ["conv"]
    with pytest.raises(StageError, match="no more than 100 values already") as caught:
        run(ClusterConfig(clusters=100, epochs=0, exclude=("head",)), opened)
    assert caught.value.exit_code == 4


def test_run_refuses_to_exclude_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"cluster\.exclude: 'haed' fits no layer"):
        run(ClusterConfig(clusters=4, epochs=0, exclude=("haed",)), context(tmp_path))
