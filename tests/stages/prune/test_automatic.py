"""What `prune` takes where a recipe gives a budget and leaves the rest open."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tf_keras as keras

from shrink.contract.choices import Choice
from shrink.data.dataset import Dataset
from shrink.data.sources.none import no_examples
from shrink.graph.groups import ChannelGraph, find_groups
from shrink.pruning.importance import Curve
from shrink.stages.context import StageContext
from shrink.stages.prune import automatic
from shrink.stages.prune.automatic import Settled, settle, typical_weight
from shrink.stages.prune.config import PruneConfig
from shrink.stages.prune.run import run
from tests.graph.equivalence import randomise
from tests.jobs import context_of

L = keras.layers


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    inputs = L.Input((8, 8, 1))
    x = L.Conv2D(6, 3, activation="relu", name="first")(L.Rescaling(1 / 16)(inputs))
    x = L.Conv2D(8, 3, strides=2, activation="relu", name="second")(x)
    model = keras.Model(inputs, L.Dense(10, name="head")(L.Flatten()(x)))
    randomise(model)
    path = tmp_path_factory.mktemp("model") / "model.keras"
    model.save(path)
    return path


@pytest.fixture
def context(model_path: Path, tmp_path: Path) -> StageContext:
    return context_with(model_path, tmp_path)


def context_with(path: Path, work: Path, **fields: Any) -> StageContext:
    # What groups cost is measured once for all tests.
    folder = path.parent / "sensitivities"
    return context_of(work, kind="prune", inputs={"model": path}, sensitivities=folder, **fields)


def config_of(**settings: Any) -> PruneConfig:
    return PruneConfig.model_validate({"method": "channels", "samples": 50, **settings})


def settled(context: StageContext, **settings: Any) -> Settled:
    return settle(graph_of(context), config_of(**settings), context)


def graph_of(context: StageContext) -> ChannelGraph:
    return find_groups(context.load())


def by_key(found: Settled) -> Mapping[str, Choice]:
    return {one.key: one for one in found.choices}


def validation_loss(model: Any, dataset: Dataset) -> float:
    x, y = dataset.validation.arrays(np.arange(len(dataset.validation)))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return float(loss(y, model(np.asarray(x, np.float32))))


def test_a_ratio_leaves_everything_as_it_was(context: StageContext) -> None:
    found = settled(context, ratio=0.5)
    config = found.config
    assert (config.importance, config.allocation, config.teacher) == ("l2", "uniform", None)
    assert (config.epochs, found.choices, found.training) == ("auto", (), context.training)


@pytest.mark.parametrize("budget", [{"parameters": 0.5}, {"file_bytes": 5000}])
def test_a_budget_takes_what_loses_least_on_validation_examples(
    context: StageContext, model_path: Path, tmp_path: Path, budget: dict[str, float]
) -> None:
    found = settled(context, **budget, epochs=0)
    (choice,) = found.choices
    losses = {one.value: one.figures["validation_loss"] for one in choice.options}
    assert list(losses) == ["least_squares, uniform", "least_squares, sensitivity", "l2, uniform"]
    assert choice.value == min(losses, key=lambda value: losses[value])
    assert choice.value == f"{found.config.importance}, {found.config.allocation}"
    for value in ("least_squares, uniform", "l2, uniform"):
        importance, _, allocation = value.partition(", ")
        by_hand = config_of(**budget, epochs=0, importance=importance, allocation=allocation)
        other = context_with(model_path, tmp_path)
        pruned = run(by_hand, other).model
        assert validation_loss(pruned, other.dataset) == pytest.approx(losses[value], rel=1e-3)


def test_every_budget_prunes_first_where_its_own_figure_falls_most(context: StageContext) -> None:
    graph = graph_of(context)
    curves = [Curve(group.name, len(group), (0.0, 1.0), (1.0, 2.0)) for group in graph.groups]
    # By arithmetic on all channels of a group, at one loss: `first` takes 3,672 of the
    # multiply-accumulates and 492 parameters, `second` 2,048 and 760.
    for budget, first in (({"arena_bytes": 900}, True), ({"parameters": 0.5}, False)):
        config = config_of(**budget, importance="l2", allocation="sensitivity")
        allocate = automatic._sharing(graph, curves, config, context)
        begins = next(c for t in np.linspace(0, 0.99, 400) if any(c := allocate(float(t))))
        assert [count > 0 for count in begins] == [first, not first]


def test_only_what_is_open_is_tried(context: StageContext) -> None:
    found = settled(context, parameters=0.5, importance="l1", epochs=0)
    (choice,) = found.choices
    assert choice.key == "allocation"
    assert [one.value for one in choice.options] == ["uniform", "sensitivity"]
    assert found.config.importance == "l1"


def test_what_is_set_by_hand_is_no_choice(context: StageContext) -> None:
    found = settled(
        context,
        macs=0.5,
        importance="l2",
        allocation="uniform",
        teacher=None,
        epochs=2,
        fine_tuning="training",
    )
    assert found.choices == ()
    assert found.training == context.training


def test_global_allocation_goes_without_solving(context: StageContext) -> None:
    found = settled(context, parameters=0.5, allocation="global", epochs=0)
    assert found.config.importance == "l2"


def test_fine_tuning_has_a_teacher_and_a_rate(context: StageContext) -> None:
    found = settled(context, parameters=0.5, importance="l2", allocation="uniform")
    choices = by_key(found)
    assert list(choices) == ["teacher", "fine_tuning"]
    assert (found.config.teacher, found.config.epochs) == ("self", "auto")
    typical = typical_weight(graph_of(context))
    optimizer = found.training.optimizer
    assert optimizer.learning_rate == pytest.approx(np.clip(0.016 * typical, 2e-4, 5e-3), rel=0.05)
    assert optimizer.schedule == "cosine"
    assert choices["fine_tuning"].options[1].figures["learning_rate"] == 1e-3


def test_an_optimizer_of_the_recipe_stays(model_path: Path, tmp_path: Path) -> None:
    training = {"optimizer": {"name": "sgd", "learning_rate": 0.1}, "global_batch_size": 2}
    context = context_with(model_path, tmp_path, training=training)
    found = settled(context, parameters=0.5, importance="l2", allocation="uniform")
    assert found.training == context.training


@pytest.mark.parametrize(
    ("losses", "value", "why"),
    [
        ([math.nan, 2.0, 1.0], "l2, uniform", "least loss"),
        ([math.inf, math.nan, 3.0], "l2, uniform", "least loss"),
        ([3.1e-6, 2.2e-6, 1.2e-6], "l2, uniform", "least loss"),
        ([math.inf, math.nan, math.nan], "least_squares, uniform", "no combination has"),
    ],
)
def test_what_has_no_loss_is_not_called_the_best(
    losses: list[float],
    value: str,
    why: str,
    context: StageContext,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left = iter(losses)
    monkeypatch.setattr(automatic, "_loss_of", lambda *_: next(left))
    choice = by_key(settled(context, macs=0.5))["importance, allocation"]
    assert choice.value == value
    assert choice.why.startswith(why)
    measured = [option.figures for option in choice.options]
    known = [loss for loss in losses if math.isfinite(loss)]
    assert [figures["validation_loss"] for figures in measured if figures] == known


def test_nothing_is_tried_on_many_channels(
    context: StageContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(automatic, "MOST_CHANNELS", 5)
    found = settled(context, parameters=0.5, epochs=0)
    (choice,) = found.choices
    assert (found.config.importance, found.config.allocation) == ("l2", "uniform")
    assert "2 groups of 14 channels would take long" in choice.sentence
    none = replace(context.dataset, validation=no_examples().validation)
    monkeypatch.setitem(vars(context), "dataset", none)
    assert settled(context, parameters=0.5, epochs=0).config.importance == "l2"
    solved = settled(context, parameters=0.5, epochs=0, importance="least_squares")
    assert solved.config.importance == "least_squares"


def test_typical_weight_is_the_median_root_mean_square() -> None:
    inputs = L.Input((3,))
    x = L.Dense(2, name="a")(inputs)
    model = keras.Model(inputs, L.Dense(2, name="c")(L.Dense(2, name="b")(x)))
    for layer, value in zip(model.layers[1:], (0.1, -0.3, 5.0), strict=True):
        kernel, bias = layer.get_weights()
        layer.set_weights([np.full_like(kernel, value), bias + 100])
    assert typical_weight(find_groups(model)) == pytest.approx(0.3)
