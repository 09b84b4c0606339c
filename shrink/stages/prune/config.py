"""Configuration of the `prune` stage."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from shrink.recipe.fields import Count, Fraction, NonNegative
from shrink.stages.base import StageConfig


class PruneConfig(StageConfig):
    """Set the smallest weights to zero while fine-tuning (Zhu & Gupta 2017)."""

    kind: ClassVar[str] = "prune"
    summary: ClassVar[str] = "remove the weights that matter least, then fine-tune"
    trains: ClassVar[bool] = True
    claims: ClassVar[tuple[str, ...]] = ("sparsity",)

    method: Literal["magnitude"] = "magnitude"
    """magnitude: the weights of smallest absolute value, in each layer."""
    sparsity: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """Fraction of each prunable kernel that becomes zero."""
    schedule: Literal["constant", "polynomial"] = "polynomial"
    """constant: the whole sparsity at once; polynomial: rising cubically over `ramp`."""
    ramp: Fraction = 0.6
    """Fraction of the updates over which a polynomial schedule rises."""
    frequency: Count = 10
    """Updates between two choices of the mask while the sparsity rises."""
    exclude: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Layers to leave alone, by name; `*` and `?` match as in a shell."""
    epochs: NonNegative = 5
    """Passes of fine-tuning; 0 prunes at once and does not train."""
