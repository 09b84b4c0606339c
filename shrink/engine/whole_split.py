"""Measures after an epoch what is no mean over batches: all validation examples at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import tensorflow as tf

from shrink.base.errors import DataError
from shrink.base.types import Array, Tensors
from shrink.data.examples import Examples


class Collector(Protocol):
    """Takes outputs batch by batch, and gives metrics of them all."""

    def add(
        self, outputs: Sequence[Array], targets: Sequence[Array], masks: Sequence[Array | None]
    ) -> None:
        """Take a batch: an array (n, ...) for each output."""

    def values(self) -> Mapping[str, float | None]:
        """Return each metric, None where it is not defined."""


@dataclass(frozen=True)
class WholeSplit:
    """What is measured on the validation split after every epoch.

    Attributes:
        examples: with the targets of the task alone.
        collector: makes a new one for each epoch.
        outputs: how many of the model's outputs are the task's own; others follow them.
        names: of the metrics.
    """

    examples: Examples
    collector: Callable[[], Collector]
    outputs: int
    names: tuple[str, ...]

    def measure(self, call: Callable[[Tensors], Tensors], batch_size: int) -> dict[str, float]:
        """Return each metric of a model.

        Args:
            call: the model in inference mode, on inputs as the data set stores them.
            batch_size: examples at a time.

        Raises:
            DataError: a metric is not defined on these examples.
        """
        collector = self.collector()
        for start in range(0, len(self.examples), batch_size):
            indices = np.arange(start, min(start + batch_size, len(self.examples)))
            x, y = self.examples.arrays(indices)
            outputs = tf.nest.flatten(call(x))[: self.outputs]
            masks = [getattr(output, "_keras_mask", None) for output in outputs]
            collector.add(
                [np.asarray(tf.cast(output, tf.float32)) for output in outputs],
                [np.asarray(part) for part in tf.nest.flatten(y)],
                [None if mask is None else np.asarray(mask, bool) for mask in masks],
            )
        return {name: _defined(name, value) for name, value in collector.values().items()}


def _defined(name: str, value: float | None) -> float:
    if value is None:
        raise DataError(
            f"{name} is not defined on the validation examples, and cannot say which epoch is best",
            subject="task.monitor",
            hint="raise data.validation_split, or set task.monitor to loss",
        )
    return value
