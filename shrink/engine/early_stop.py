"""An end to training that no longer gets better on the validation split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tf_keras as keras


def epochs_since_best(values: Sequence[float], *, higher_is_better: bool) -> int:
    """Return how many epochs came after the best one, the first of equals; 0 without epochs."""
    if not values:
        return 0
    best = max(values) if higher_is_better else min(values)
    return len(values) - 1 - list(values).index(best)


class EarlyStop(keras.callbacks.Callback):
    """Ends training after some epochs without a better one; stands before the checkpoints.

    Args:
        monitor: a metric's name in the epoch's logs, such as `val_loss`.
        patience: epochs.
        higher_is_better: the metric's direction.
        history: metrics by name, one number per finished epoch, of earlier processes too.
    """

    _supports_tf_logs = True

    def __init__(
        self,
        monitor: str,
        patience: int,
        *,
        higher_is_better: bool,
        history: Mapping[str, Sequence[float]],
    ) -> None:
        super().__init__()
        self._monitor = monitor
        self._patience = patience
        self._higher_is_better = higher_is_better
        self._history = history

    def is_over(self, *more: float) -> bool:
        """Whether training has ended, after the epochs of the history and `more`."""
        values = [*self._history.get(self._monitor, ()), *more]
        since = epochs_since_best(values, higher_is_better=self._higher_is_better)
        return since >= self._patience

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """End training if this epoch is one too many."""
        if self.is_over(float((logs or {})[self._monitor])):
            self.model.stop_training = True
