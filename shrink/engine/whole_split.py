"""Measure metrics after an epoch that are no means over batches, on the validation split."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import tensorflow as tf

from shrink.base.errors import DataError
from shrink.base.keras_internals import mask_of
from shrink.base.types import Array, Tensors
from shrink.data.examples import Examples

Outputs: TypeAlias = "tuple[list[Array], list[Array], list[Array | None]]"
"""Outputs, targets and masks of a batch, an array (n, ...) for each of the task's outputs."""


@dataclass(frozen=True)
class WholeSplit:
    """What is measured on the validation split after every epoch.

    Attributes:
        examples: with the targets of the task alone.
        score: takes all batches and returns each metric, None where it is not defined.
        outputs: how many of the model's outputs are the task's own; others follow them.
        names: of the metrics.
    """

    examples: Examples
    score: Callable[[Iterator[Outputs]], Mapping[str, float | None]]
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

        def outputs(x: Tensors) -> list[tf.Tensor]:
            return list(tf.nest.flatten(call(x))[: self.outputs])

        found = self.score(outputs_in_batches(self.examples, outputs, batch_size))
        if undefined := [name for name in self.names if found[name] is None]:
            raise DataError(
                f"{undefined[0]} is not defined on the validation examples, and cannot say which "
                "epoch is best",
                subject="task.monitor",
                hint="raise data.validation_split, or set task.monitor to loss",
            )
        return {name: value for name in self.names if (value := found[name]) is not None}


def outputs_in_batches(
    examples: Examples, call: Callable[[Tensors], list[tf.Tensor]], batch_size: int
) -> Iterator[Outputs]:
    """Yield a model's outputs, (n, ...) each, with targets and masks, a batch at a time."""
    for start in range(0, len(examples), batch_size):
        x, y = examples.arrays(np.arange(start, min(start + batch_size, len(examples))))
        outputs = call(x)
        masks = [mask_of(output) for output in outputs]
        yield (
            [np.asarray(tf.cast(output, tf.float32)) for output in outputs],
            [np.asarray(part) for part in tf.nest.flatten(y)],
            [None if mask is None else np.asarray(mask, bool) for mask in masks],
        )
