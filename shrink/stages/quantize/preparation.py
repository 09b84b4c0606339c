"""Rewrites of a float model that integers need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shrink.base.errors import ModelError
from shrink.quantization.attention_masks import bounded_masks, scores_of_masks
from shrink.quantization.calibration import (
    Batches,
    CalibrationExamples,
    Ranges,
    extreme_ranges,
)
from shrink.quantization.layer_norm import normalised_twice
from shrink.quantization.source import FloatModel
from shrink.tflite.edit import with_ranges
from shrink.tflite.model import read

BOUND_EXAMPLES = 100
"""Examples to measure bounds and variances on; more of them change little."""


@dataclass(frozen=True)
class Prepared:
    """A float model for integers.

    Attributes:
        source: the rewritten model, of which there is a float .tflite file alone.
        forced: ranges that the rewriting needs, by tensor; they are among those of `source`.
        notes: a sentence for each rewrite.
    """

    source: FloatModel
    forced: Ranges
    notes: tuple[str, ...]


def prepared(
    source: FloatModel, calibration: CalibrationExamples, *, norms: bool = True
) -> Prepared | None:
    """Return a model with bounded masks, and normalisations in two steps; None with neither.

    Args:
        source: the float model.
        calibration: examples to measure bounds and variances on.
        norms: whether normalisations are rewritten; 16 bits hold them as they are.
    """
    batches = calibration.batches(BOUND_EXAMPLES)
    content, notes = source.float32.content, list(source.float32.notes)
    twice = normalised_twice(content, batches, source.ranges) if norms else None
    if twice is not None:
        content = twice.content
        notes += (
            f"{name}: normalised twice, which is the same in float, as its variances differ by a "
            f"factor of {ratio:,.0f}"
            for name, ratio in twice.layers.items()
        )
    bounded = bounded_masks(content, batches)
    if bounded is not None:
        content = bounded.content
        notes += _of_masks(bounded.layers)
    if twice is None and bounded is None:
        return None
    made = FloatModel(content=content)
    forced = bounded.ranges if bounded is not None else {}
    made.ranges, made.bounds = {**source.ranges, **forced}, source.bounds
    made.floats = source.floats
    return Prepared(made, forced, tuple(notes))


@dataclass
class MasksWithinConversion:
    """Bounds the masks of a calibrated float model, while the TFLite converter quantizes it.

    Attributes:
        batches: examples that tell the bounds.
        notes: a sentence for each masked softmax, once it has been called.
    """

    batches: Batches
    notes: list[str] = field(default_factory=list)

    def __call__(self, calibrated: bytes) -> bytes:
        """Return the model with bounded masks and their ranges."""
        try:
            bounded = bounded_masks(calibrated, self.batches)
        except ModelError as error:
            self.notes = [f"masks of attention are not bounded: {error.message}"]
            return calibrated
        if bounded is None:
            return calibrated
        self.notes = _of_masks(bounded.layers)
        # A tensor that the mask is added to in place was calibrated with the mask.
        measured = extreme_ranges(bounded.content, self.batches)
        graph = read(calibrated)[0]
        scores = (graph.tensors[i].name for i in scores_of_masks(graph))
        near = {name: measured[name] for name in scores if name in measured}
        constants = {tensor.name for tensor in graph.tensors if tensor.constant}
        forced = {n: ends for n, ends in bounded.ranges.items() if n not in constants}
        return with_ranges(bounded.content, {**near, **forced})


def _of_masks(layers: Mapping[str, float]) -> list[str]:
    return [
        f"{name}: what its mask leaves out counts as {bound:.1f}, the lowest that integers need"
        for name, bound in layers.items()
    ]
