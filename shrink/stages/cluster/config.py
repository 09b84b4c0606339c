"""Configuration of the `cluster` stage."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from shrink.base.fields import NonNegative
from shrink.stages.base import StageConfig


class ClusterConfig(StageConfig):
    """Let the weights of each kernel share a few values, which compress well (Han et al. 2016)."""

    kind: ClassVar[str] = "cluster"
    preserves: ClassVar[tuple[str, ...]] = ("clusters",)

    clusters: Annotated[int, Field(ge=2, le=256)] = 16
    """Distinct values that the weights of one kernel may take; zero counts where it is kept."""
    exclude: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Layers to leave alone, by name; `*` and `?` match as in a shell."""
    epochs: NonNegative = 5
    """Passes of fine-tuning; 0 clusters at once and does not train."""

    @property
    def needs_examples(self) -> str | None:
        """What it does with examples; without fine-tuning it needs none."""
        return super().needs_examples if self.epochs else None

    @property
    def keeps_layers(self) -> bool:
        """Training changes weights alone."""
        return True
