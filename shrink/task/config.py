"""The `task` section of a recipe: what is minimised and what is measured."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, WithJsonSchema, field_validator

from shrink.base.fields import Config, Positive
from shrink.base.metrics import check_metric, key_of_mapping, metrics_json_schema

LossName = Literal[
    "sparse_categorical_crossentropy",
    "categorical_crossentropy",
    "binary_crossentropy",
    "mean_squared_error",
    "mean_absolute_error",
]


class TaskConfig(Config):
    """What is minimised and measured; what is left out follows from model and data.

    First from what the model was compiled with, as its file says; else integer labels mean
    `sparse_categorical_crossentropy`, labels 0 and 1 for a single output `binary_crossentropy`,
    real targets `mean_squared_error`. The report names what was taken.
    """

    loss: LossName | dict[str, LossName] | None = None
    """The loss on the labels or targets; of several outputs also by output,
    {digit: sparse_categorical_crossentropy, angle: mean_squared_error}."""
    loss_weights: dict[str, Positive] | None = None
    """Factor of an output's loss in their sum, by the output's name; by default 1."""
    from_logits: bool | dict[str, bool] | None = None
    """Whether the outputs are logits, not probabilities; by output's name where they differ. By
    default it is told from what the model computes."""
    metrics: (
        Annotated[tuple[str, ...], Field(strict=False), WithJsonSchema(metrics_json_schema())]
        | None
    ) = None
    """What the report measures beside the loss; the first is the main one. Of several outputs it is
    the mean over those whose loss it goes with."""
    monitor: str | None = None
    """The validation metric that decides which epoch is best; by default the main one."""

    @field_validator("metrics", mode="before")
    @classmethod
    def _as_keys(cls, given: object) -> object:
        """Return metrics by their keys, those that are written as mappings too."""
        if not isinstance(given, list | tuple):
            return given
        return tuple(key_of_mapping(one) if isinstance(one, dict) else one for one in given)

    @field_validator("metrics")
    @classmethod
    def _known_metrics(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for name in names or ():
            check_metric(name)
        return names

    @field_validator("monitor")
    @classmethod
    def _known_monitor(cls, name: str | None) -> str | None:
        if name not in (None, "loss"):
            check_metric(str(name))
        return name
