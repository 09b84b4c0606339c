"""Trained quantization ranges of an imported model, kept in its file."""

from __future__ import annotations

import math
from dataclasses import dataclass

from shrink.base.foreign import Json
from shrink.contract.codec import ContractError, from_plain

TRAITS = ("sparsity", "clusters")
"""What a stage may have to preserve."""


@dataclass(frozen=True)
class TrainedRange:
    """The range in which one activation was rounded to 8 bits while the model was trained.

    Attributes:
        layer: the name of the layer, or of the input, that gives the activation.
        before_activation: whether it is what the layer's own activation function is given.
        low: least value.
        high: largest value.
    """

    layer: str
    before_activation: bool
    low: float
    high: float


@dataclass(frozen=True)
class ModelMetadata:
    """What a model brings along.

    Attributes:
        ranges: of activations, for a quantization of the very weights beside them.
        traits: of `TRAITS`, what every stage preserves as if an earlier one had made it.
    """

    ranges: tuple[TrainedRange, ...] = ()
    traits: tuple[str, ...] = ()


def metadata_to_plain(imported: ModelMetadata) -> dict[str, Json]:
    """Return it as JSON takes it."""
    ranges = [[one.layer, one.before_activation, one.low, one.high] for one in imported.ranges]
    return {"ranges": ranges, "traits": list(imported.traits)}


def metadata_from_plain(value: Json) -> ModelMetadata:
    """Return what a file says, of anybody's making; what makes no sense is as if it were not there.

    Args:
        value: any JSON.
    """
    if not isinstance(value, dict):
        return ModelMetadata()
    ranges, traits = value.get("ranges"), value.get("traits")
    found = [_range(item) for item in ranges] if isinstance(ranges, list) else []
    named = traits if isinstance(traits, list) else []
    return ModelMetadata(
        tuple(one for one in found if one is not None),
        tuple(trait for trait in TRAITS if trait in named),
    )


def _range(item: Json) -> TrainedRange | None:
    try:
        row = from_plain(tuple[str, bool, float, float], item)
    except ContractError:
        return None
    one = TrainedRange(*row)
    return one if -math.inf < one.low < one.high < math.inf else None
