"""Pruning by magnitude in a pattern, through the engine's own training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tf_keras as keras

from shrink.base.errors import StageError
from shrink.contract.report import Skipped
from shrink.pruning.masks import prunable_kernels
from shrink.stages.context import StageContext
from shrink.stages.prune.config import PruneConfig
from shrink.stages.prune.run import run
from tests.jobs import context_of

L = keras.layers


@pytest.fixture
def context(tmp_path: Path) -> StageContext:
    return _context(tmp_path)


def _context(tmp_path: Path, kernel: float | None = None, **training: Any) -> StageContext:
    keras.utils.set_random_seed(0)
    inputs = L.Input((8, 8, 1))
    x = L.ReLU()(L.Conv2D(8, 3, name="stem")(L.Rescaling(1 / 16)(inputs)))
    x = L.ReLU()(L.Conv2D(4, 3, name="conv")(x))
    x = L.Dense(10, activation="softmax", name="head")(L.Flatten()(x))
    model = keras.Model(inputs, x)
    if kernel is not None:
        signs = np.random.default_rng(0)
        for one in prunable_kernels(model)[0]:
            one.kernel.assign(signs.choice([-kernel, kernel], one.kernel.shape))
    model.save(tmp_path / "model.keras")
    training = {"global_batch_size": 256, "micro_batch_size": 128, **training}
    return context_of(
        tmp_path,
        kind="prune",
        inputs={"model": tmp_path / "model.keras"},
        training=training,
        checkpoints=tmp_path / "checkpoints",
    )


@pytest.mark.parametrize(("pattern", "zeros"), [("2:4", {2}), ("block", {0, 4})])
def test_prune_keeps_the_pattern_through_fine_tuning(
    pattern: str, zeros: set[int], context: StageContext
) -> None:
    result: Any = run(PruneConfig.model_validate({"pattern": pattern, "epochs": 1}), context)
    assert result.skipped == [
        Skipped(layer="stem", reason="its 1 input channels are no multiple of 4")
    ]
    for one in prunable_kernels(result.model, multiple_of=4)[0]:
        groups = np.moveaxis(one.kernel.numpy(), -2, -1).reshape(-1, 4)
        assert {int(n) for n in (groups == 0).sum(axis=1)} == zeros
        assert np.mean(groups == 0) == 0.5
    assert f"in the pattern {pattern}" in result.notes[0]


def exactly(sparsity: float, model: Any) -> bool:
    """Whether each kernel has as many zeros."""
    kernels = [model.get_layer(name).get_weights()[0] for name in ("stem", "conv", "head")]
    return all(np.sum(kernel == 0) == round(sparsity * kernel.size) for kernel in kernels)


@pytest.mark.parametrize("sparsity", [0.3, 0.5, 0.95])
def test_prune_meets_the_sparsity_when_all_weights_are_equal(
    sparsity: float, tmp_path: Path
) -> None:
    config = PruneConfig.model_validate({"sparsity": sparsity, "epochs": 0})
    result = run(config, _context(tmp_path, kernel=0.1))
    assert exactly(sparsity, result.model)


# With a learning rate that spoils the model an early epoch may be the best, while the ramp ends in
# the third; tests/engine/test_resume.py has one that surely is.
SPOILING: dict[str, Any] = {
    "optimizer": {"name": "sgd", "learning_rate": 100.0, "global_clipnorm": 1.0}
}


@pytest.mark.parametrize(
    "choice", [{"restore_best": True}, pytest.param({"patience": 1}, marks=pytest.mark.slow)]
)
def test_prune_meets_the_sparsity_when_an_earlier_epoch_was_best(
    choice: dict[str, Any], tmp_path: Path
) -> None:
    config = PruneConfig.model_validate({"sparsity": 0.95, "epochs": 4, "frequency": 1})
    result: Any = run(config, _context(tmp_path, **choice, **SPOILING))
    losses = result.training.history["val_loss"]
    assert len(losses) >= 3
    assert exactly(0.95, result.model)
    assert "completed" not in " ".join(result.notes)


def test_prune_says_so_when_no_weight_is_left_to_prune(tmp_path: Path) -> None:
    config = PruneConfig.model_validate(
        {"sparsity": 0.001, "epochs": 0, "exclude": ["conv", "head"]}
    )
    with pytest.raises(StageError, match="the largest of 1 kernels has 72 weights"):
        run(config, _context(tmp_path))


@pytest.mark.parametrize(
    ("settings", "changed"),
    [
        ({"sparsity": 0.5, "exclude": ["a"]}, {"b", "c"}),
        ({"method": "channels", "ratio": 0.5}, {"a", "norm", "b", "c"}),
        ({"method": "layers", "blocks": 1}, {"c"}),
    ],
    ids=["magnitude", "channels", "layers"],
)
def test_frozen_layers_that_were_pruned_are_fine_tuned(
    settings: dict[str, Any], changed: set[str], tmp_path: Path
) -> None:
    keras.utils.set_random_seed(0)
    widths = {"a": 6, "b": 6, "c": 5}
    first, *others = (L.Conv2D(n, 3, padding="same", name=name) for name, n in widths.items())
    base = keras.Sequential(
        [L.Input((8, 8, 1)), first, L.BatchNormalization(name="norm"), L.ReLU(), *others],
        name="base",
    )
    base.trainable = False
    pooled = [L.Rescaling(1 / 16), base, L.GlobalAveragePooling2D()]
    model = keras.Sequential([L.Input((8, 8, 1)), *pooled, L.Dense(10, name="head")])
    model.save(tmp_path / "model.keras")
    stage = context_of(
        tmp_path,
        kind="prune",
        inputs={"model": tmp_path / "model.keras"},
        training={"global_batch_size": 256},
        checkpoints=tmp_path / "checkpoints",
    )
    result: Any = run(PruneConfig.model_validate({"epochs": 1, **settings}), stage)
    layers = [x for x in result.model._flatten_layers() if x.name in {"a", "norm", "b", "c"}]
    trainable = {layer.name for layer in layers if layer.trainable}
    assert trainable == changed
    (note,) = [n for n in result.notes if "frozen layers became trainable" in n] or [""]
    assert {name for name in note.partition(": ")[2].split(", ") if name} == changed
    for layer in layers:
        own, before = layer.get_weights()[0], base.get_layer(layer.name).get_weights()[0]
        assert np.isin(own[own != 0], before).all() == (layer.name not in changed)


@pytest.mark.parametrize(
    "settings", [{"sparsity": 0.5, "schedule": "constant"}, {"method": "channels", "ratio": 0.25}]
)
@pytest.mark.parametrize(("rate", "codes"), [(1.0, ["fine-tuning-harmed"]), (1e-3, [])])
def test_fine_tuning_that_raises_the_validation_loss_is_a_warning(
    settings: dict[str, Any], rate: float, codes: list[str], tmp_path: Path
) -> None:
    context = _context(tmp_path, optimizer={"name": "adam", "learning_rate": rate})
    run(PruneConfig.model_validate({**settings, "epochs": 1}), context)
    assert [one.code for one in context.warnings] == codes
    assert all("epochs: auto" in str(one.hint) for one in context.warnings)
