"""Who loses how much: curves against interpolation by hand, and a model with channels to spare."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tf_keras as keras
from sklearn.datasets import load_digits

from shrink.graph.groups import ChannelGraph, find_groups
from shrink.stages.context import StageContext
from shrink.stages.prune.config import PruneConfig
from shrink.stages.prune.run import run
from shrink.stages.prune.sensitivity import Curve, allocator

L = keras.layers


@pytest.fixture
def graph() -> ChannelGraph:
    inputs = L.Input((8, 8, 1))
    x = L.Conv2D(20, 3, name="first")(inputs)
    x = L.Conv2D(10, 3, name="second")(x)
    return find_groups(keras.Model(inputs, L.Dense(4, name="head")(L.Flatten()(x))))


@pytest.mark.parametrize(
    ("increase", "ratio"),
    [(0.0, 0.0), (0.05, 0.25), (0.1, 0.5), (0.4, 0.7), (1.0, 0.9), (9.0, 0.9)],
)
def test_ratio_at_interpolates(increase: float, ratio: float) -> None:
    curve = Curve("conv", 10, (0.0, 0.5, 0.7, 0.9), (2.0, 2.1, 2.4, 3.0))
    assert curve.ratio_at(increase, 0.0) == pytest.approx(ratio, abs=1e-6)


def test_ratio_at_shares_what_costs_nothing_evenly() -> None:
    curve = Curve("conv", 10, (0.0, 0.3, 0.6, 0.9), (2.0, 1.9, 2.0, 4.0))
    assert [curve.ratio_at(0.01 * n, 0.1) for n in (0, 3, 6)] == pytest.approx([0, 0.3, 0.6])


def test_allocator_gives_every_group_the_same_rise(graph: ChannelGraph) -> None:
    curves = [
        Curve("first", 20, (0.0, 0.5, 0.95), (1.0, 1.2, 2.0)),
        Curve("second", 10, (0.0, 0.5, 0.9), (1.0, 1.6, 2.0)),
    ]
    allocate = allocator(graph, curves, 1)
    # The unit is the median rise at one half, 0.4; an extent of 0.34 is a rise of 0.206.
    assert allocate(0.34) == [10, 1]
    assert allocate(0.0) == [0, 0]
    assert allocate(1.0) == [19, 9]
    assert allocator(graph, [], 1)(0.5) == [10, 5]


def test_prune_takes_channels_where_they_are_not_missed(tmp_path: Path) -> None:
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
    step = {"name": "p", "kind": "prune", "claims": [], "training": {}}
    step["inputs"] = {"model": {"kind": "keras", "path": str(tmp_path / "model.keras")}}
    job: dict[str, Any] = {"step": step, "data": {"source": "digits"}, "task": {}, "split_seed": 0}
    settings = {"method": "channels", "ratio": 0.25, "allocation": "sensitivity", "epochs": 0}
    context = StageContext(job, lambda *args, **fields: None, tmp_path)
    result = run(PruneConfig.model_validate(settings), context)
    assert result.model is not None
    assert result.model.get_layer("needed").filters == 8
    assert result.model.get_layer("spare").filters == 4
    assert result.details is not None
    needed, spare = result.details["sensitivity"]
    assert needed["layers"] == "needed"
    assert spare["ratios"][:3] == (0.0, 0.25, 0.5)
    assert max(needed["losses"]) > max(spare["losses"])
