"""The `task` section of a recipe: what is minimised and what is measured."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from shrink.recipe.fields import Config, Positive
from shrink.recipe.metrics import METRICS
from shrink.recipe.suggest import hint_for

LossName = Literal[
    "sparse_categorical_crossentropy",
    "categorical_crossentropy",
    "binary_crossentropy",
    "mean_squared_error",
    "mean_absolute_error",
]


class TaskConfig(Config):
    """What is minimised and what is measured; whatever is left out follows from the data.

    Integer labels mean `sparse_categorical_crossentropy` and `accuracy`; real targets mean
    `mean_squared_error`. Logits and probabilities are told apart from the model.
    """

    loss: LossName | dict[str, LossName] | None = None
    """The loss on the labels or targets; of several outputs also by output,
    {digit: sparse_categorical_crossentropy, angle: mean_squared_error}."""
    loss_weights: dict[str, Positive] | None = None
    """Factor of an output's loss in their sum, by the output's name; by default 1."""
    metrics: Annotated[tuple[str, ...], Field(strict=False)] | None = None
    """What the report measures beside the loss; the first is the main one. Of several outputs it is
    the mean over those whose loss it goes with."""
    monitor: str | None = None
    """The validation metric that decides which epoch is best; by default the main one."""

    @field_validator("metrics")
    @classmethod
    def _known_metrics(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for name in names or ():
            _check_metric(name)
        return names

    @field_validator("monitor")
    @classmethod
    def _known_monitor(cls, name: str | None) -> str | None:
        if name not in (None, "loss"):
            _check_metric(str(name))
        return name


def _check_metric(name: str) -> None:
    if name not in METRICS:
        raise ValueError(f"unknown metric {name!r}; {hint_for(name, METRICS)}")
