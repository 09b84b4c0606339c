"""What models of tfmot bring along is recognised by its weights, and kept by later stages."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_model_optimization as tfmot
import tf_keras as keras

from shrink.base.errors import StageError
from shrink.data.arrays import ArrayExamples
from shrink.model.load import load_model
from shrink.pruning.masks import prunable_kernels
from shrink.pruning.sharing import MOST_VALUES, Few, few_values, keep_shared
from shrink.quantization.calibration import CalibrationExamples
from shrink.quantization.source import FloatModel
from shrink.stages.context import StageContext, StageResult
from shrink.stages.from_tfmot import metadata_from_tfmot
from shrink.stages.preservation import Preserved
from shrink.stages.quantize.config import QuantizeConfig
from shrink.stages.quantize.schemes import static_int8
from tests.model.tfmot import zoo


def _context(model: keras.Model, *preserves: str) -> StageContext:
    stand_in = SimpleNamespace(
        preserves=preserves, name="later", load=lambda: model, input_path=lambda: Path("m.keras")
    )
    return cast(StageContext, stand_in)


@pytest.mark.parametrize("pruned", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_clusters_of_each_channel_are_recognised_and_kept(pruned: bool, tmp_path: Path) -> None:
    keras.utils.set_random_seed(0)
    start = tfmot.sparsity.keras.strip_pruning(zoo.pruned(zoo.wide())) if pruned else zoo.wide()
    # tfmot's clusters of each channel take ten seconds to train one step: its centroids will do.
    fit = zoo.fitted if pruned else (lambda model, _: model)
    made = zoo.clustered_per_channel(start, fit, keep_zeros=pruned)
    model = load_model(zoo.saved(made, tmp_path, ".keras"))
    kernel = model.get_layer("conv").kernel
    assert len(np.unique(kernel)) > MOST_VALUES
    few = few_values(kernel.numpy())
    assert few is not None
    assert few.per_channel
    assert few.values <= zoo.CLUSTERS + pruned

    imported, notes = metadata_from_tfmot(model)
    assert imported.traits == (*(("sparsity",) if pruned else ()), "clusters")
    assert "1 of them in each output channel" in notes[-1]
    context = _context(model, *imported.traits)
    preserved = Preserved.of(context)

    hook, rng = keep_shared(model), np.random.default_rng(0)
    moved = kernel.numpy() + rng.normal(size=kernel.shape) * (kernel.numpy() != 0)
    kernel.assign(moved)
    hook(tf.distribute.get_strategy(), tf.constant(1))
    preserved.check(StageResult(model=model), context)
    x = zoo.examples(model)
    rows = ArrayExamples(x, np.zeros(len(x)), np.arange(len(x)))
    calibration = CalibrationExamples(rows, 16, 0, ("picture",))
    content = static_int8(FloatModel(model), calibration, QuantizeConfig()).content
    preserved.check(StageResult(tflite=content), context)

    kernel.assign(moved)
    with pytest.raises(StageError, match="clustered the weights of conv, and"):
        preserved.check(StageResult(model=model), context)


def test_weights_of_their_own_are_no_clusters() -> None:
    """Pruned to few weights, or with few in each channel, or in 8 bits by training for it."""
    keras.utils.set_random_seed(0)
    model = zoo.wide()
    for one in prunable_kernels(model)[0]:
        kernel = one.kernel.numpy()
        least = np.quantile(np.abs(kernel), 0.8)
        one.kernel.assign(np.where(np.abs(kernel) < least, 0, kernel))
    assert metadata_from_tfmot(model)[0].traits == ("sparsity",)
    assert few_values(np.random.default_rng(0).normal(size=(2, 300))) is None


def test_a_kernel_of_few_values_in_all_must_not_take_more_in_all() -> None:
    model = zoo.wide()
    kernel = model.get_layer("conv").kernel
    rng = np.random.default_rng(0)
    kernel.assign(rng.integers(1, 9, kernel.shape))
    context = _context(model, "clusters")
    preserved = Preserved.of(context)
    assert preserved.clustered[0].few == Few(8)
    kernel.assign(kernel * rng.normal(size=44))
    with pytest.raises(StageError, match="clustered the weights of conv, and"):
        preserved.check(StageResult(model=model), context)
