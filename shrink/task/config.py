"""The `task` section of a recipe: losses and metrics."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator

from shrink.base.fields import Config, Positive, SchemaOf
from shrink.base.figures import LOSS
from shrink.base.foreign import Json
from shrink.base.losses import is_loss_mapping, key_of_loss, losses_json_schema
from shrink.base.metrics import check_metric, key_of_mapping, metrics_json_schema, needs_slices
from shrink.base.user_metric import (
    UserMetric,
    key_of_entry,
    user_metric_of,
    user_metric_of_mapping,
)
from shrink.detection.config import DecodeConfig


class TaskConfig(Config):
    """Loss and metrics; keys that are omitted follow from model and data.

    First from what the model was compiled with, as its file says; else integer labels mean
    `sparse_categorical_crossentropy`, labels 0 and 1 for a single output `binary_crossentropy`,
    real targets `mean_squared_error`. The report says what was chosen.
    """

    loss: Annotated[str | dict[str, str], SchemaOf(losses_json_schema)] | None = None
    """Loss on the labels or targets: a tf-keras loss, with arguments as {name: huber, delta:
    2}, or `file.py:function`; several outputs: a mapping by output, {digit:
    sparse_categorical_crossentropy, angle: mean_squared_error}."""
    loss_weights: dict[str, Positive] | None = None
    """Weight of each output's loss in the sum, by the output's name; 1 by default."""
    from_logits: bool | dict[str, bool] | None = None
    """Whether outputs are logits, not probabilities; a mapping by output if they differ. By
    default it is determined from the model."""
    metrics: (
        Annotated[tuple[str, ...], Field(strict=False), SchemaOf(metrics_json_schema)] | None
    ) = None
    """Metrics of the report besides the loss; the first is the main metric. With several
    outputs a metric is the mean over the outputs that it applies to."""
    decode: DecodeConfig | None = None
    """How a detector's outputs become boxes; targets are boxes then."""
    monitor: str | None = None
    """The validation metric that selects the best epoch; by default the main metric."""

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
        found: dict[str, str] = {}
        _replace_files(self.model_dump(mode="json"), lambda file: found.setdefault(file, file))
        return tuple(found)

    def with_files(self, place: Callable[[str], str]) -> TaskConfig:
        """Return the same with another text for each Python file that is named.

        Args:
            place: of a file.
        """
        section = self.model_dump(mode="json", exclude_unset=True)
        return TaskConfig.model_validate(_replace_files(section, place)) if self.files() else self

    def functions(self) -> dict[str, UserMetric]:
        """Return the metrics that are a user's functions, by key."""
        found = filter(None, map(user_metric_of, self.metrics or ()))
        return {one.key: one for one in found}


_FILE = re.compile(r".+?\.py(?=:[^\W\d]\w*)")


def _replace_files(value: Json, place: Callable[[str], str]) -> Json:
    """Return a value with another text for the file of each `file.py:function` in it."""
    if isinstance(value, str):
        found = _FILE.match(value)
        return value if found is None else place(found[0]) + value[found.end() :]
    if isinstance(value, dict):
        return {key: _replace_files(part, place) for key, part in value.items()}
    return [_replace_files(part, place) for part in value] if isinstance(value, list) else value


def _entry(given: object) -> object:
    if isinstance(given, dict):
        own = user_metric_of_mapping(given)
        return key_of_mapping(given) if own is None else own.entry
    if isinstance(given, str):
        own = user_metric_of(given)
        return given if own is None else own.entry
    return given
