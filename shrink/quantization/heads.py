"""Outputs that hold numbers of different sizes, and what one scale does to the small ones.

An int8 tensor has one scale. Where boxes in pixels and scores between 0 and 1 stand in one output,
its steps are those of the boxes, and few are left to tell scores apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tf_keras as keras

from shrink.base.errors import StageError, listed
from shrink.base.keras_internals import made_by, node_of
from shrink.base.types import Array

FEW_STEPS = 16
"""Values of an integer output that a channel takes at most, where that is worth a warning."""
_MOST_NAMED = 10
_UNLIKE = 4
"""How many times as many values another channel takes: else the output is coarse as a whole."""


@dataclass(frozen=True)
class MixedRanges:
    """An output that one scale does not suit.

    Attributes:
        output: its name.
        channels: the places on its last axis that few values are left for.
        values: how many values the widest of these has.
        low, high: of these channels, real numbers.
        scale: of the output.
    """

    output: str
    channels: tuple[int, ...]
    values: int
    low: float
    high: float
    scale: float

    def __str__(self) -> str:
        return (
            f"the output {self.output!r} has one scale, {self.scale:.3g}, for numbers of different "
            f"sizes: channels {places(self.channels)} lie between {self.low:.3g} and "
            f"{self.high:.3g}, and at most {self.values} values are left for each"
        )


def places(channels: Sequence[int]) -> str:
    """Return places on an axis as text: 3 to 7, or 0, 2."""
    straight = list(channels) == list(range(channels[0], channels[-1] + 1))
    if straight and len(channels) > 2:
        return f"{channels[0]} to {channels[-1]}"
    return listed(list(map(str, channels)), _MOST_NAMED)


def mixed_ranges(output: str, values: Array, scale: float) -> MixedRanges | None:
    """Return what one scale does to an output's channels; None where it suits all of them.

    Args:
        output: name of it.
        values: what the float model gives on examples, (n, ..., channels).
        scale: of the integer output; 0 for a float one.
    """
    if not scale or values.ndim < 2 or values.shape[-1] < 2:
        return None
    rows = values.reshape(-1, values.shape[-1])
    low, high = rows.min(axis=0), rows.max(axis=0)
    steps = np.floor((high - low) / scale).astype(np.int64) + 1
    # What is the same for all examples needs no second value.
    few = np.flatnonzero((steps <= FEW_STEPS) & (high > low))
    if not len(few) or steps.max() < _UNLIKE * steps[few].max():
        return None
    return MixedRanges(
        output,
        tuple(few.tolist()),
        int(steps[few].max()),
        float(low[few].min()),
        float(high[few].max()),
        scale,
    )


def split_outputs(model: keras.Model) -> keras.Model:
    """Return the model with the parts of its last concatenation as outputs of their own.

    Raises:
        StageError: it does not end in one output that a Concatenate layer makes of its last axis.
    """
    layer = made_by(model.outputs[0])[0] if len(model.outputs) == 1 else None
    rank = None if layer is None else len(model.outputs[0].shape)
    if not isinstance(layer, keras.layers.Concatenate) or layer.axis not in (-1, (rank or 0) - 1):
        raise StageError(
            "split_outputs needs a model that ends in one Concatenate layer over its last axis",
            hint="leave split_outputs out, or build the model with an output for each part",
        )
    parts = node_of(model.outputs[0]).keras_inputs
    return keras.Model(model.inputs, list(parts), name=model.name)
