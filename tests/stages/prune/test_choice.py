"""Who loses how much: curves against interpolation by hand, and a model with channels to spare."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tf_keras as keras
from sklearn.datasets import load_digits

from shrink.graph.groups import ChannelGraph, find_groups
from shrink.pruning.importance import Curve
from shrink.stages.context import StageContext
from shrink.stages.prune.choice import allocator
from shrink.stages.prune.config import PruneConfig
from shrink.stages.prune.run import run
from tests.jobs import context_of

L = keras.layers


@pytest.fixture
def graph() -> ChannelGraph:
    inputs = L.Input((8, 8, 1))
    x = L.Conv2D(20, 3, name="first")(inputs)
    x = L.Conv2D(10, 3, name="second")(x)
    return find_groups(keras.Model(inputs, L.Dense(4, name="head")(L.Flatten()(x))))


def quadratic(graph: ChannelGraph, weights: tuple[float, ...]) -> list[Curve]:
    ratios = (0.0, 0.25, 0.5, 0.75, 0.9)
    return [
        Curve("+".join(group.layers), len(group), ratios, tuple(1 + w * r**2 for r in ratios))
        for group, w in zip(graph.groups, weights, strict=True)
    ]


def test_losses_at_meets_the_points_and_never_falls() -> None:
    curve = Curve("conv", 10, (0.0, 0.3, 0.6, 0.9), (2.0, 1.9, 2.5, 4.0))
    found = curve.losses_at(np.arange(10))
    assert found[[0, 3, 6, 9]] == pytest.approx([2.0, 2.0, 2.5, 4.0])
    assert np.all(np.diff(found) >= 0)


@pytest.mark.parametrize("name", ["parameters", "macs"])
@pytest.mark.parametrize("extent", [0.2, 0.5, 0.7])
def test_allocator_is_the_best_sharing_of_all(
    name: str, extent: float, graph: ChannelGraph
) -> None:
    curves, cost = quadratic(graph, (1.0, 5.0)), getattr(graph, name)
    chosen = allocator(graph, curves, cost, 1)(extent)
    losses = [c.losses_at(np.arange(len(g))) for c, g in zip(curves, graph.groups, strict=True)]
    everything = cost(graph.keep(np.array([])))

    def saving(group: int, count: int) -> float:
        return everything - cost(graph.keep(graph.groups[group].channels[:count]))

    def figures(counts: tuple[int, ...]) -> tuple[float, float]:
        loss = sum(losses[n][count] for n, count in enumerate(counts))
        return sum(saving(n, count) for n, count in enumerate(counts)), loss

    most, loss = figures(tuple(chosen))
    others = [figures(both) for both in np.ndindex(20, 10)]
    # The charge for removing anything at all moves the optimum by at most a percent.
    assert loss <= min(other for kept, other in others if kept >= most) * 1.01
    assert 0 < sum(chosen) < 28


def test_allocator_begins_with_nothing_and_ends_with_one_channel(graph: ChannelGraph) -> None:
    allocate = allocator(graph, quadratic(graph, (1.0, 1.0)), graph.parameters, 1)
    assert allocate(0.0) == [0, 0]
    assert allocate(1.0) == [19, 9]
    steps = [allocate(extent) for extent in np.linspace(0, 1, 50)]
    assert all(a <= b for one, two in pairwise(steps) for a, b in zip(one, two, strict=True))
    assert allocator(graph, [], graph.parameters, 1)(0.5) == [10, 5]


def test_allocator_meets_a_budget_by_a_channel_where_losses_saturate(graph: ChannelGraph) -> None:
    steep = [
        Curve("first", 20, (0.0, 0.25, 0.95), (1.0, 2.9, 3.0)),
        Curve("second", 10, (0.0, 0.2, 0.9), (1.0, 3.5, 3.6)),
    ]
    allocate = allocator(graph, steep, graph.parameters, 1)
    totals = [sum(allocate(extent)) for extent in np.linspace(0, 1, 20_000)]
    assert set(totals) == set(range(29))


def test_allocator_takes_free_channels_one_by_one(graph: ChannelGraph) -> None:
    free = [Curve("a", 20, (0.0, 0.95), (1.0, 1.0)), Curve("b", 10, (0.0, 0.9), (1.0, 9.0))]
    allocate = allocator(graph, free, graph.parameters, 1)
    found = {allocate(extent)[0] for extent in np.linspace(0, 0.1, 1000)}
    assert found >= set(range(10))


def prune(settings: dict[str, Any], context: StageContext) -> Any:
    return run(PruneConfig.model_validate(settings), context)


def test_prune_takes_channels_where_they_are_not_missed(tmp_path: Path) -> None:
    keras.utils.set_random_seed(1)
    inputs = L.Input((8, 8, 1))
    x = L.ReLU()(L.Conv2D(8, 3, name="needed")(L.Rescaling(1 / 16)(inputs)))
    x = L.ReLU()(L.Conv2D(8, 3, name="spare")(x))
    features = L.Flatten()(x)
    model = keras.Model(inputs, L.Dense(10, activation="softmax", name="head")(features))
    digits = load_digits()
    seen = keras.Model(inputs, features)(digits.images[..., None]).numpy()
    seen.reshape(-1, 16, 8)[..., 2:] = 0  # six of the channels of `spare` reach nothing
    head, *_ = np.linalg.lstsq(seen, 10 * np.eye(10)[digits.target], rcond=None)
    model.get_layer("head").kernel.assign(head)
    model.save(tmp_path / "model.keras")
    settings = {"method": "channels", "ratio": 0.25, "allocation": "sensitivity", "epochs": 0}
    context = context_of(tmp_path, kind="prune", inputs={"model": tmp_path / "model.keras"})
    result = prune(settings, context)
    assert not any("known from" in note for note in result.notes)
    assert result.model.get_layer("needed").filters == 8
    assert result.model.get_layer("spare").filters == 4
    needed, spare = result.details.sensitivity
    assert needed.layers == "needed"
    assert spare.ratios[:3] == (0.0, 0.25, 0.5)
    lost = [[loss or 0.0 for loss in one.losses] for one in (needed, spare)]
    assert lost[0][2] > lost[1][2] == pytest.approx(lost[1][0])
    assert any("cache of an earlier run" in note for note in prune(settings, context).notes)
