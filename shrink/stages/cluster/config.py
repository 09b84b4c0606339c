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
    """Number of different values in each kernel; zero is one of them if zeros are kept."""
    exclude: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Layers to leave unchanged, by name; `*` and `?` match as in a shell."""
    epochs: NonNegative = 5
    """Epochs of fine-tuning; 0 clusters without training."""

    @property
    def needs_examples(self) -> str | None:
        """What it does with examples; without fine-tuning it needs none."""
        return super().needs_examples if self.epochs else None

    @property
    def keeps_layers(self) -> bool:
        """Training changes weights alone."""
        return True
