"""An end to training that no longer gets better on the validation split, and its best epoch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tf_keras as keras


def epochs_since_best(values: Sequence[float], *, higher_is_better: bool) -> int:
    """Return how many epochs came after the best one, the first of equals; 0 without epochs."""
    if not values:
        return 0
    best = max(values) if higher_is_better else min(values)
    return len(values) - 1 - list(values).index(best)


def first_settled_epoch(hooks: Iterable[Any], *, steps: int, epochs: int) -> int:
    """Return the first epoch, from 0, whose weights are what was asked for; the last at the latest.

    While a mask still becomes sparser an epoch may well be the best, and its weights are not the
    ones that were asked for.

    Args:
        hooks: what follows every update; those that change have `settles_after`, an update.
        steps: updates of an epoch.
        epochs: of the training.
    """
    settled = max((getattr(hook, "settles_after", 0) for hook in hooks), default=0)
    return max(0, min(math.ceil(settled / steps), epochs) - 1)


class EarlyStop(keras.callbacks.Callback):
    """Ends training after some epochs without a better one; stands before the checkpoints.

    Args:
        monitor: a metric's name in the epoch's logs, such as `val_loss`.
        patience: epochs.
        higher_is_better: the metric's direction.
        history: metrics by name, one number per finished epoch, of earlier processes too.
        first_epoch: the first one that counts, from 0; training does not end before it.
    """

    _supports_tf_logs = True

    def __init__(
        self,
        monitor: str,
        patience: int,
        *,
        higher_is_better: bool,
        history: Mapping[str, Sequence[float]],
        first_epoch: int = 0,
    ) -> None:
        super().__init__()
        self._monitor = monitor
        self._patience = patience
        self._higher_is_better = higher_is_better
        self._history = history
        self._first_epoch = first_epoch

    def is_over(self, *more: float) -> bool:
        """Whether training has ended, after the epochs of the history and `more`."""
        values = [*self._history.get(self._monitor, ()), *more]
        counted = values[self._first_epoch :]
        since = epochs_since_best(counted, higher_is_better=self._higher_is_better)
        return since >= self._patience

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """End training if this epoch is one too many."""
        if self.is_over(float((logs or {})[self._monitor])):
            self.model.stop_training = True
