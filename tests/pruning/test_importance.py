"""Each importance against its formula on a small model; curves are measured once and read again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tf_keras as keras

from shrink.base.errors import StageError
from shrink.graph.groups import ChannelGraph, find_groups
from shrink.graph.rebuild import Weights, weights_of
from shrink.pruning.importance import (
    IMPORTANCES,
    Curve,
    Evidence,
    bn_scale,
    cached_curves,
    least_important,
    taylor,
)
from shrink.stages.prune.config import IMPORTANCES as NAMES
from tests.graph.equivalence import randomise

L = keras.layers


def model() -> keras.Model:
    inputs = L.Input((6,))
    x = L.ReLU()(L.BatchNormalization(name="norm")(L.Dense(5, name="a")(inputs)))
    return keras.Model(inputs, L.Dense(3, name="b")(x))


@pytest.fixture(scope="module")
def graph() -> ChannelGraph:
    built = model()
    randomise(built)
    return find_groups(built)


def evidence(graph: ChannelGraph, gradients: Weights | None = None, seed: int = 0) -> Evidence:
    weights = weights_of(graph)
    return Evidence(weights, lambda: gradients or weights, seed)


def test_importances_are_those_that_a_recipe_can_name() -> None:
    assert {*IMPORTANCES, "least_squares"} == set(NAMES)


@pytest.mark.parametrize(("name", "power"), [("l1", 1), ("l2", 2)])
def test_norms_are_those_of_the_slices(graph: ChannelGraph, name: str, power: int) -> None:
    weights = weights_of(graph)
    makes, reads = np.abs(weights["a"][0]) ** power, np.abs(weights["b"][0]) ** power
    expected = makes.sum(0) / makes.sum(0).mean() + reads.sum(1) / reads.sum(1).mean()
    got = IMPORTANCES[name](graph.groups[0], evidence(graph))
    np.testing.assert_allclose(got, expected ** (1 / power), rtol=1e-6)


def test_bn_scale_is_the_size_of_gamma(graph: ChannelGraph) -> None:
    gamma = weights_of(graph)["norm"][0]
    np.testing.assert_allclose(bn_scale(graph.groups[0], evidence(graph)), np.abs(gamma), rtol=1e-6)


def test_bn_scale_raises_without_a_batch_norm() -> None:
    inputs = L.Input((4,))
    bare = find_groups(keras.Model(inputs, L.Dense(2)(L.Dense(3, name="bare")(inputs))))
    with pytest.raises(StageError, match="no batch norm") as caught:
        bn_scale(bare.groups[0], evidence(bare))
    assert caught.value.subject == "bare"


def test_taylor_is_the_square_of_gradient_times_weight(graph: ChannelGraph) -> None:
    weights = weights_of(graph)
    random = np.random.default_rng(0)
    gradients = {k: [random.normal(size=a.shape) for a in v] for k, v in weights.items()}
    expected = (weights["a"][0] * gradients["a"][0]).sum(0) ** 2
    got = taylor(graph.groups[0], evidence(graph, gradients))
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_lamp_is_the_share_of_what_is_not_smaller(graph: ChannelGraph) -> None:
    group = graph.groups[0]
    squared = IMPORTANCES["l2"](group, evidence(graph)) ** 2
    expected = [value / squared[squared >= value].sum() for value in squared]
    np.testing.assert_allclose(IMPORTANCES["lamp"](group, evidence(graph)), expected, rtol=1e-6)
    assert max(expected) == 1.0


def test_random_is_decided_by_the_seed(graph: ChannelGraph) -> None:
    group, score = graph.groups[0], IMPORTANCES["random"]
    one, again, other = (score(group, evidence(graph, seed=seed)) for seed in (1, 1, 2))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_least_important_takes_the_lowest(graph: ChannelGraph) -> None:
    group = graph.groups[0]
    chosen = least_important(group, np.array([3.0, 1.0, 2.0, 1.0, 5.0]), 3)
    assert list(chosen) == list(group.channels[[1, 3, 2]])


CURVES = [Curve("a+b", 8, (0.0, 0.25), (1.0, 1.5)), Curve("c", 3, (0.0,), (1.0,))]


class Measured:
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> list[Curve]:
        self.times += 1
        return CURVES


def test_cached_curves_measures_once(tmp_path: Path) -> None:
    measure = Measured()
    assert cached_curves(tmp_path / "new", {"model": "m"}, measure) == (CURVES, False)
    assert cached_curves(tmp_path / "new", {"model": "m"}, measure) == (CURVES, True)
    assert measure.times == 1


def test_cached_curves_measures_again_for_anything_else(tmp_path: Path) -> None:
    measure = Measured()
    for identity in ({"model": "m", "seed": 0}, {"model": "m", "seed": 1}, {"model": "n"}):
        assert cached_curves(tmp_path, identity, measure)[1] is False
    assert measure.times == 3


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.replace("1.5", "1.4"),
        lambda text: "[]",
        lambda text: json.dumps({**json.loads(text), "key": "another"}),
    ],
)
def test_cached_curves_measures_again_where_the_file_is_damaged(
    damage: Callable[[str], str], tmp_path: Path
) -> None:
    measure = Measured()
    cached_curves(tmp_path, {}, measure)
    (file,) = tmp_path.glob("*.json")
    file.write_text(damage(file.read_text()))
    assert cached_curves(tmp_path, {}, measure) == (CURVES, False)
    assert cached_curves(tmp_path, {}, measure) == (CURVES, True)
