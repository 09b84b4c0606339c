"""Configuration of the `train` stage."""

from __future__ import annotations

from typing import ClassVar

from shrink.base.fields import Count
from shrink.stages.base import StageConfig


class TrainConfig(StageConfig):
    """Train the model on the training split; on a model file, continue from its weights."""

    kind: ClassVar[str] = "train"

    epochs: Count = 10
    """Passes over the training split."""

    @property
    def keeps_layers(self) -> bool:
        """Training changes weights alone."""
        return True
