"""Configuration of the `distill` stage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from shrink.base.fields import Config, Count, Fraction, NameIn, Positive
from shrink.stages.base import StageConfig

LOSSES = ["auto", "kl", "logit_mse", "decoupled", "output_mse"]
"""Names of what `shrink.distillation.losses` has a function for, and `auto`."""
_ONCE = 4.0


class StudentScale(Config):
    """A narrower or shallower copy of the teacher, with new weights or its main channels."""

    width: Positive | None = None
    """Factor on the channels, passed to a builder that takes `width`; else at most 1."""
    depth: Positive | None = None
    """Passed to a builder that takes `depth`; else the fraction to keep of the blocks whose
    input and output have the same shape."""
    inherit: bool = False
    """Cut the student from the trained teacher, and keep its most important channels."""

    @model_validator(mode="after")
    def _check(self) -> StudentScale:
        if self.width is None and self.depth is None:
            raise ValueError("a scaled student needs width, depth or both")
        if self.inherit and max(self.width or 0, self.depth or 0) > 1:
            raise ValueError("a student that inherits weights can only become smaller")
        return self


class DistillConfig(StageConfig):
    """Train a student to reproduce its teacher's outputs (Hinton et al. 2015 and others)."""

    kind: ClassVar[str] = "distill"

    teacher: str | Annotated[tuple[str, ...], Field(strict=False, min_length=1)] | None = None
    """A stage's name or a model, or several of them; by default the baseline."""
    student: str | StudentScale | None = None
    """A stage, a model, or a scale; by default the stage before, unless it is the teacher."""
    temperature: Literal["auto"] | Positive = "auto"
    """T, which divides the logits of both models (kl, decoupled); auto: 4, and 1 for a detector."""
    alpha: Fraction = 0.1
    """Weight of the loss on the labels; the teacher's loss has 1 - alpha."""
    epochs: Count = 10
    """Passes over the training split."""
    loss: Annotated[str, NameIn(LOSSES)] = "auto"
    """auto: kl (divergence of softened outputs) for classes, output_mse for other targets; for
    a detector the divergence of scores, and the overlap of boxes weighted by the teacher's
    scores."""
    beta: Positive = 8.0
    """decoupled: weight of the classes that are not the target (Zhao et al. 2022)."""
    feature_layers: dict[str, str] = Field(default_factory=dict)
    """Also compare the outputs of these layers: `{teacher's layer: student's layer}`."""
    feature_loss: Literal["hint", "attention", "attention_scores", "relational"] = "hint"
    """hint: squared error, through learned projections if widths differ; attention: attention
    maps; attention_scores: what each position of a MultiHeadAttention layer attends to,
    averaged over heads; relational: distances between the examples of a micro-batch."""
    feature_weight: Positive = 1.0
    """Weight of the feature loss; the losses on labels and teacher together have 1."""
    teacher_cache: Literal["auto", "on", "off"] = "auto"
    """on: cache the teacher's outputs, computed once for each example (not with augmentation);
    off: run the teacher on each batch; auto: cache if that saves time and fits."""
    cache_dtype: Literal["float32", "float16"] = "float32"
    """Dtype of cached teacher outputs; more than 1,024 values per example are always float16."""
    control: bool = False
    """Train the student again without its teacher, and report both."""

    def idle_keys(self) -> Mapping[str, str]:
        """Return keys of other losses, of a cache that there is not, and of no features."""
        idle = {}
        if self.loss != "decoupled":
            idle["beta"] = "loss: decoupled"
        # 4 was the default, and stands in the resolved recipes of earlier runs.
        if self.loss in ("logit_mse", "output_mse") and self.temperature != _ONCE:
            idle["temperature"] = "loss: kl or decoupled"
        if self.teacher_cache == "off":
            idle["cache_dtype"] = "teacher_cache: auto or on"
        if not self.feature_layers:
            idle |= dict.fromkeys(("feature_loss", "feature_weight"), "feature_layers")
        return idle
