"""The check of every run passes for a right rebuild and refuses a wrong one."""

from __future__ import annotations

import numpy as np
import pytest
import tf_keras as keras

from shrink.base.errors import StageError
from shrink.graph.groups import find_groups
from shrink.graph.rebuild import masked, rebuild, weights_of
from shrink.pruning.reconstruct import TOLERANCE, check_same
from tests.graph.equivalence import choose, examples, load, randomise

L = keras.layers


@pytest.fixture(scope="module")
def pruned() -> tuple[keras.Model, keras.Model, list[np.ndarray]]:
    inputs = L.Input((8, 8, 3))
    x = L.ReLU()(L.BatchNormalization()(L.Conv2D(8, 3, padding="same", name="first")(inputs)))
    x = L.Conv2D(8, 3, padding="same", name="second")(x)
    x = L.GlobalAveragePooling2D()(x)
    model = keras.Model(inputs, L.Dense(4, activation="softmax", name="head")(x))
    randomise(model)
    graph = find_groups(model)
    keep = graph.keep(choose(graph, 0.5))
    weights = weights_of(graph)
    same_size = rebuild(graph, graph.keep(np.array([])), weights)
    load(same_size, graph, masked(graph, keep, weights))
    return same_size, rebuild(graph, keep, weights), examples(model)


def test_check_same_passes_for_a_right_rebuild(
    pruned: tuple[keras.Model, keras.Model, list[np.ndarray]],
) -> None:
    assert 0 <= check_same(*pruned) <= TOLERANCE


@pytest.mark.parametrize("name", ["first", "second"])
def test_check_same_refuses_a_layer_that_differs(
    name: str,
    pruned: tuple[keras.Model, keras.Model, list[np.ndarray]],
) -> None:
    layer = pruned[1].get_layer(name)
    before = layer.get_weights()
    kernel = before[0].copy()
    kernel[..., 0] = 0.0
    layer.set_weights([kernel, *before[1:]])
    try:
        with pytest.raises(StageError, match="outputs differ from the masked"):
            check_same(*pruned)
    finally:
        layer.set_weights(before)
