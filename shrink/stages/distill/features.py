"""Features inside the student, and what makes them as wide as the teacher's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tf_keras as keras

from shrink.base.errors import ModelError
from shrink.graph.losses import with_losses
from shrink.stages.distill.rows import Shape, shapes_of

L = keras.layers


def with_features(model: keras.Model, features: Sequence[Any], wanted: Sequence[Shape]) -> Any:
    """Return the model with features after its outputs, each projected to the wanted width.

    A projection is a 1x1 convolution or a dense layer without bias, trained beside the student
    and thrown away afterwards (Romero et al. 2015, "FitNets", section 2.2).

    Args:
        model: the student.
        features: tensors of it.
        wanted: shape of each feature of the teacher, without the batch.

    Raises:
        ModelError: a feature has other positions than the teacher's.
    """
    pairs = zip(features, wanted, strict=True)
    fitted = [_fit(f, shape) for f, shape in pairs]
    return with_losses(model, keras.Model(model.inputs, [*model.outputs, *fitted]))


def check_positions(feature: Any, wanted: Shape) -> None:
    """Raise `ModelError` unless two features differ in their channels alone."""
    (own,) = shapes_of([feature])
    if own[:-1] != wanted[:-1]:
        raise ModelError(
            f"the student's feature has shape {own}, the teacher's {wanted}; they may differ in "
            "their last axis alone",
            subject="distill.feature_layers",
            hint="name a pair of layers at the same resolution",
        )


def _fit(feature: Any, wanted: Shape) -> Any:
    check_positions(feature, wanted)
    if feature.shape[-1] == wanted[-1]:
        return feature
    # A dense layer works on the last axis, as a 1x1 convolution does.
    return L.Dense(wanted[-1], use_bias=False, dtype="float32")(feature)
