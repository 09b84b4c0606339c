from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import RecipeError, StageError
from shrink.base.measured import Measured
from shrink.distillation.losses import softened_bernoulli_kl
from shrink.graph.groups import ChannelGraph, find_groups
from shrink.pruning.allocation import any_channels, uniform
from shrink.stages.context import StageContext
from shrink.stages.prune.channels import _hold_to_peak
from shrink.stages.prune.config import PruneConfig
from shrink.stages.prune.fine_tuning import by_training_peak, fine_tuning, outputs, step_peak
from shrink.stages.prune.run import run
from tests.graph.equivalence import randomise
from tests.jobs import context_of

L = keras.layers


def yes_or_no(width: int) -> keras.Model:
    inputs = L.Input((6,), name="x")
    hidden = L.Dense(width, activation="relu", name="hidden")(inputs)
    model = keras.Model(inputs, L.Dense(1, activation="sigmoid", name="answer")(hidden))
    randomise(model)
    return model


def test_fine_tuning_follows_answers_of_yes_and_no(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(40, 6)).astype(np.float32)
    y = random.integers(0, 2, (40, 1))
    np.savez(tmp_path / "data.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    data = {"source": "npz", "path": str(tmp_path / "data.npz")}
    task = {"loss": "binary_crossentropy", "metrics": ["binary_accuracy"]}
    context = context_of(tmp_path, kind="prune", data=data, task=task)
    config = PruneConfig.model_validate(
        {"method": "channels", "ratio": 0.5, "epochs": 1, "teacher": "self", "alpha": 0.0}
    )
    teacher, student = yes_or_no(8), yes_or_no(4)
    logits = [
        keras.Model(m.inputs, m.get_layer("hidden").output)(x) @ m.layers[-1].kernel
        + m.layers[-1].bias
        for m in (student, teacher)
    ]
    with fine_tuning(student, find_groups(teacher), config, context) as (learning, objective):
        loss = objective.loss(tf.constant(y), learning(x), objective.targets(x))
    own, other = logits
    wanted = softened_bernoulli_kl(own, other, 4.0)
    assert np.min(wanted) >= 0 < np.max(wanted)
    np.testing.assert_allclose(loss, np.reshape(wanted, -1), rtol=1e-4, atol=1e-6)


def model() -> keras.Model:
    inputs = L.Input((8, 8, 1))
    x = inputs
    for name in ("one", "two", "three"):
        x = L.ReLU()(L.BatchNormalization()(L.Conv2D(24, 3, padding="same", name=name)(x)))
    return keras.Model(inputs, L.Dense(10)(L.GlobalAveragePooling2D()(x)))


@pytest.fixture(scope="module")
def graph() -> ChannelGraph:
    return find_groups(model())


def test_outputs_are_those_of_layers_that_make_channels(graph: ChannelGraph) -> None:
    everything = graph.keep(np.array([]))
    assert outputs(graph, everything) == 3 * 24 * 64 + 10
    half = graph.keep(any_channels(graph, [12, 0, 6]))
    assert outputs(graph, half) == (12 + 24 + 18) * 64 + 10


@pytest.mark.parametrize("constant", [0, 400_000])
def test_by_training_peak_comes_close_whatever_else_is_held(
    constant: int, graph: ChannelGraph
) -> None:
    tried = []

    def measure(smaller: keras.Model) -> int:
        tried.append(smaller)
        filters = sum(smaller.get_layer(name).filters for name in ("one", "two", "three"))
        return constant + 16 * smaller.count_params() + 10_000 * filters

    before = constant + 16 * model().count_params() + 720_000
    budget = 0.7 * before
    found = by_training_peak(graph, int(budget), measure, uniform(graph.groups))
    assert found.before == before
    assert 0.9 * budget <= found.after <= budget
    assert len(tried) <= 5


def test_by_training_peak_raises_where_no_channel_would_help(graph: ChannelGraph) -> None:
    with pytest.raises(StageError, match="training_peak_bytes"):
        by_training_peak(graph, 1000, lambda smaller: 10**6, uniform(graph.groups))


def test_by_training_peak_raises_where_the_allocator_counts_nothing(graph: ChannelGraph) -> None:
    with pytest.raises(StageError, match=r"training_peak_bytes: a step .* cannot be measured"):
        by_training_peak(graph, 1000, lambda smaller: 0, uniform(graph.groups))


def context(folder: Path, **training: Any) -> StageContext:
    path = folder / "model.keras"
    model().save(path)
    training = {"global_batch_size": 256, **training}
    return context_of(folder, kind="prune", inputs={"model": path}, training=training)


@pytest.mark.parametrize("peaks", [(900, 1000), ()])
def test_prune_takes_a_training_within_its_budget(peaks: tuple[int, ...]) -> None:
    records: Any = [SimpleNamespace(training_peak_bytes=Measured(peak)) for peak in peaks]
    _hold_to_peak(1000, records, SimpleNamespace(name="p"))  # type: ignore[arg-type]


def test_prune_refuses_a_training_above_its_budget() -> None:
    records: Any = [SimpleNamespace(training_peak_bytes=Measured(peak)) for peak in (900, 1100)]
    with pytest.raises(StageError, match="peaked at 1,100 bytes, and at most 1,000") as caught:
        _hold_to_peak(1000, records, SimpleNamespace(name="p"))  # type: ignore[arg-type]
    assert "fits 1,100; for less, ask for 900" in str(caught.value.hint)


@pytest.mark.slow
def test_prune_trains_within_the_budget(tmp_path: Path) -> None:
    opened = context(tmp_path)
    graph = find_groups(opened.load())
    config = PruneConfig(method="channels", ratio=0.5, epochs=0)
    with opened.devices.scope():
        before = step_peak(graph, config, opened)(model())
    settings = {"training_peak_bytes": int(0.6 * before), "epochs": 1}
    result = run(PruneConfig.model_validate({"method": "channels", **settings}), opened)
    assert result.training is not None
    peak = result.training.training_peak_bytes.value
    assert peak is not None
    assert 0.45 * before < peak <= 0.6 * before
    assert any("training_peak_bytes: steps of" in note for note in result.notes)


def test_step_peak_refuses_a_memory_limit(graph: ChannelGraph, tmp_path: Path) -> None:
    config = PruneConfig(method="channels", training_peak_bytes=1000)
    with pytest.raises(RecipeError, match="makes the model smaller"):
        step_peak(graph, config, context(tmp_path, memory_limit=10**9))
