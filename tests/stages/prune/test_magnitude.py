"""Pruning by magnitude in a pattern, through the engine's own training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tf_keras as keras

from shrink.stages.context import StageContext
from shrink.stages.prune.config import PruneConfig
from shrink.stages.prune.masks import prunable_kernels
from shrink.stages.prune.run import run

L = keras.layers


@pytest.fixture
def context(tmp_path: Path) -> StageContext:
    inputs = L.Input((8, 8, 1))
    x = L.ReLU()(L.Conv2D(8, 3, name="stem")(L.Rescaling(1 / 16)(inputs)))
    x = L.ReLU()(L.Conv2D(4, 3, name="conv")(x))
    x = L.Dense(10, activation="softmax", name="head")(L.Flatten()(x))
    keras.Model(inputs, x).save(tmp_path / "model.keras")
    training = {"global_batch_size": 256, "micro_batch_size": 128}
    source = {"kind": "keras", "path": str(tmp_path / "model.keras")}
    step = {"name": "p", "kind": "prune", "claims": [], "training": training}
    job: dict[str, Any] = {"step": {**step, "inputs": {"model": source}}, "task": {}}
    job |= {"data": {"source": "digits"}, "split_seed": 0}
    return StageContext(job, lambda *args, **fields: None, tmp_path)


@pytest.mark.parametrize(("pattern", "zeros"), [("2:4", {2}), ("block", {0, 4})])
def test_prune_keeps_the_pattern_through_fine_tuning(
    pattern: str, zeros: set[int], context: StageContext
) -> None:
    result = run(PruneConfig.model_validate({"pattern": pattern, "epochs": 1}), context)
    assert result.model is not None
    assert result.skipped == [
        {"layer": "stem", "reason": "its 1 input channels are no multiple of 4"}
    ]
    for one in prunable_kernels(result.model, multiple_of=4)[0]:
        groups = np.moveaxis(one.kernel.numpy(), -2, -1).reshape(-1, 4)
        assert {int(n) for n in (groups == 0).sum(axis=1)} == zeros
        assert np.mean(groups == 0) == 0.5
    assert f"in the pattern {pattern}" in result.notes[0]
