"""The `task` section of a recipe: losses and metrics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator

from shrink.base.fields import Config, Positive, SchemaOf
from shrink.base.figures import LOSS
from shrink.base.losses import is_loss_mapping, key_of_loss, loss_of, losses_json_schema
from shrink.base.metrics import check_metric, key_of_mapping, metrics_json_schema, needs_slices
from shrink.base.user_metric import (
    UserMetric,
    key_of_entry,
    user_metric_of,
    user_metric_of_mapping,
)
from shrink.detection.config import DecodeConfig


class TaskConfig(Config):
    """What is minimised and measured; what is left out follows from model and data.

    First from what the model was compiled with, as its file says; else integer labels mean
    `sparse_categorical_crossentropy`, labels 0 and 1 for a single output `binary_crossentropy`,
    real targets `mean_squared_error`. The report names what was taken.
    """

    loss: Annotated[str | dict[str, str], SchemaOf(losses_json_schema)] | None = None
    """The loss on the labels or targets: one of tf-keras, with its arguments as
    {name: huber, delta: 2}, or `file.py:function`; of several outputs also by output,
    {digit: sparse_categorical_crossentropy, angle: mean_squared_error}."""
    loss_weights: dict[str, Positive] | None = None
    """Factor of an output's loss in their sum, by the output's name; by default 1."""
    from_logits: bool | dict[str, bool] | None = None
    """Whether the outputs are logits, not probabilities; by output's name where they differ. By
    default it follows from what the model computes."""
    metrics: (
        Annotated[tuple[str, ...], Field(strict=False), SchemaOf(metrics_json_schema)] | None
    ) = None
    """What the report measures beside the loss; the first is the main one. Of several outputs it is
    the mean over those whose loss it goes with."""
    decode: DecodeConfig | None = None
    """How the outputs of a detector become boxes; targets are boxes then."""
    monitor: str | None = None
    """The validation metric that decides which epoch is best; by default the main one."""

    @field_validator("loss", mode="before")
    @classmethod
    def _as_loss_keys(cls, given: object) -> object:
        """Return losses by their keys, those that are written as mappings too."""
        if isinstance(given, str):
            return key_of_loss(given)
        if not isinstance(given, dict):
            return given
        if is_loss_mapping(given):
            return key_of_loss(given)
        return {
            output: key_of_loss(one) if isinstance(one, str | dict) else one
            for output, one in given.items()
        }

    @field_validator("metrics", mode="before")
    @classmethod
    def _as_keys(cls, given: object) -> object:
        """Return metrics by their keys, those that are written as mappings too.

        Functions of a user's are entries, `file.py:function(better=lower, unit=none)`.
        """
        if not isinstance(given, list | tuple):
            return given
        return tuple(_entry(one) for one in given)

    @field_validator("metrics")
    @classmethod
    def _known_metrics(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        seen = set[str]()
        for name in names or ():
            own = user_metric_of(name)
            if own is None:
                check_metric(name)
            key = name if own is None else own.key
            if key in seen:
                raise ValueError(f"{key} is listed twice")
            seen.add(key)
        return names

    @field_validator("monitor")
    @classmethod
    def _known_monitor(cls, name: str | None, info: ValidationInfo) -> str | None:
        if name is not None and needs_slices(name):
            raise ValueError(f"{name} is of slices, which only test examples have")
        if name not in (None, LOSS, *map(key_of_entry, info.data.get("metrics") or ())):
            check_metric(str(name))
        return name

    def files(self) -> tuple[str, ...]:
        """Return the Python files whose functions are named."""
        losses = self.loss.values() if isinstance(self.loss, dict) else [self.loss]
        named = (loss_of(one).function for one in losses if one is not None)
        metrics = filter(None, map(user_metric_of, self.metrics or ()))
        files = [*(one[0] for one in named if one is not None), *(one.file for one in metrics)]
        files += [] if self.decode is None else self.decode.files()
        return tuple(dict.fromkeys(files))

    def with_files(self, place: Callable[[str], str]) -> TaskConfig:
        """Return the same with another text for each Python file that is named.

        Args:
            place: of a file.
        """

        def placed(key: str) -> str:
            loss = loss_of(key)
            if loss.function is None:
                return key
            return loss.renamed(f"{place(loss.function[0])}:{loss.function[1]}").key

        def metric_placed(entry: str) -> str:
            own = user_metric_of(entry)
            return entry if own is None else replace(own, file=place(own.file)).entry

        if not self.files():
            return self
        loss = placed(self.loss) if isinstance(self.loss, str) else self.loss
        if isinstance(loss, dict):
            loss = {output: placed(key) for output, key in loss.items()}
        metrics = None if self.metrics is None else tuple(map(metric_placed, self.metrics))
        decode = None if self.decode is None else self.decode.with_files(place)
        return self.model_copy(update={"loss": loss, "metrics": metrics, "decode": decode})

    def functions(self) -> dict[str, UserMetric]:
        """Return the metrics that are a user's functions, by key."""
        found = filter(None, map(user_metric_of, self.metrics or ()))
        return {one.key: one for one in found}


def _entry(given: object) -> object:
    if isinstance(given, dict):
        own = user_metric_of_mapping(given)
        return key_of_mapping(given) if own is None else own.entry
    if isinstance(given, str):
        own = user_metric_of(given)
        return given if own is None else own.entry
    return given
