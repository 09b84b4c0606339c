"""Configuration of the `distill` stage."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import model_validator

from shrink.recipe.fields import Config, Count, Fraction, Positive
from shrink.stages.base import StageConfig


class StudentScale(Config):
    """A narrower or shallower copy of the recipe's model, built anew."""

    width: Positive | None = None
    """Factor on the channels, given to the builder as `width`."""
    depth: Positive | None = None
    """Given to the builder as `depth`."""

    @model_validator(mode="after")
    def _check(self) -> StudentScale:
        if self.width is None and self.depth is None:
            raise ValueError("a scaled student needs width, depth or both")
        return self


class DistillConfig(StageConfig):
    """Train a student on the teacher's softened outputs (Hinton et al. 2015)."""

    kind: ClassVar[str] = "distill"
    summary: ClassVar[str] = "train a smaller student to follow a teacher"
    trains: ClassVar[bool] = True

    teacher: str | None = None
    """A stage's name or a model; by default the baseline."""
    student: str | StudentScale | None = None
    """A stage, a model, or a scale; by default the stage before, unless it is the teacher."""
    temperature: Positive = 4.0
    """T, by which both models' logits are divided."""
    alpha: Fraction = 0.1
    """Weight of the loss on the hard labels; the softened loss has 1 - alpha."""
    epochs: Count = 10
    """Passes over the training split."""
    loss: Literal["kl"] = "kl"
    """kl: Kullback-Leibler divergence of the softened outputs, times T squared."""
    teacher_cache: Literal["auto", "off"] = "auto"
    """off: the teacher runs on every batch; auto: as saves time (at present the same)."""
