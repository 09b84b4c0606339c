"""Progress of a training run: reports, throughput, the best epoch, and an early end."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import StageError
from shrink.base.progress import Progress
from shrink.base.types import Array

OnProgress = Callable[[Progress], None]
Logs: TypeAlias = "Mapping[str, float | tf.Tensor]"
"""The loss and metrics of a step or an epoch, as Keras gives them to a callback."""
REPORT_INTERVAL_S = 0.2


class Throughput:
    """Examples per second of training, without validation and without the first step.

    Attributes:
        examples: trained on while the timer ran.
        seconds: the timer's.
    """

    def __init__(self) -> None:
        self.examples = 0
        self.seconds = 0.0
        self._since: float | None = None

    def start(self) -> None:
        """Start the timer."""
        self._since = time.perf_counter()

    def count(self, examples: int) -> None:
        """Add examples trained on since the last call, and the time they took."""
        now = time.perf_counter()
        if self._since is not None:
            self.examples += examples
            self.seconds += now - self._since
        self._since = now

    def pause(self) -> None:
        """Stop the timer until `start`."""
        self._since = None

    @property
    def examples_per_s(self) -> float | None:
        """The rate so far; None before the second step."""
        return self.examples / self.seconds if self.seconds > 0 else None


class ProgressCallback(keras.callbacks.Callback):
    """Reports to `on_progress` and ends training when the loss is NaN or infinite.

    Args:
        on_progress: called at most five times a second, and at each epoch's end.
        stage: name of the stage, for errors.
        epochs: epochs of the run.
        examples: training examples.
        batch_size: examples per update.
        steps: updates of an epoch.
        every_step: whether the loss is checked in every step (cheap on a CPU, where steps are
            synchronous) or only as often as progress is reported.
    """

    # Keras would fetch every metric of every step from the device otherwise.
    _supports_tf_logs = True

    def __init__(
        self,
        on_progress: OnProgress | None,
        *,
        stage: str,
        epochs: int,
        examples: int,
        batch_size: int,
        steps: int,
        every_step: bool,
    ) -> None:
        super().__init__()
        self.throughput = Throughput()
        self._on_progress = on_progress or (lambda progress: None)
        self._stage = stage
        self._epochs = epochs
        self._examples = examples
        self._batch_size = batch_size
        self._steps = steps
        self._every_step = every_step
        self._epoch = 0
        self._before_epoch = (0, 0.0)
        self._built = False
        self._reported_at = -math.inf

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Start the timer, unless the first step has yet to build the graph."""
        self._epoch = epoch
        self._before_epoch = self.throughput.examples, self.throughput.seconds
        if self._built:
            self.throughput.start()

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Count the step's examples, check its loss, and report now and then."""
        step, logs = batch + 1, logs or {}
        due = time.monotonic() - self._reported_at >= REPORT_INTERVAL_S or step == self._steps
        if self._every_step or due:
            loss = float(logs["loss"])
            if not math.isfinite(loss):
                by = "in" if self._every_step else "by"
                self._fail(f"the loss is {loss} {by} step {step} of {self._steps} of epoch", "")
        if not self._built:
            self._built = True
            self.throughput.start()
        else:
            last_rows = self._examples - (self._steps - 1) * self._batch_size
            self.throughput.count(last_rows if step == self._steps else self._batch_size)
        if step == self._steps:
            self.throughput.pause()
        elif due:
            self._report(step, logs)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Check the weights and report the epoch, with its metrics on the validation split."""
        # A ReLU makes 0 of NaN, which leaves the loss finite.
        lost = [
            variable.name
            for variable in self.model.trainable_variables
            if not tf.reduce_all(tf.math.is_finite(variable))
        ]
        if lost:
            self._fail("weights are not finite after epoch", f": {', '.join(lost)}")
        self._report(self._steps, logs or {}, epoch_end=True)

    def _report(self, step: int, logs: Logs, *, epoch_end: bool = False) -> None:
        self._reported_at = time.monotonic()
        examples, seconds = self._before_epoch
        seconds = self.throughput.seconds - seconds
        self._on_progress(
            Progress(
                epoch=self._epoch + 1,
                epochs=self._epochs,
                step=step,
                steps=self._steps,
                examples_per_s=(
                    (self.throughput.examples - examples) / seconds if seconds > 0 else None
                ),
                metrics={name: float(value) for name, value in logs.items()},
                epoch_end=epoch_end,
            )
        )

    def _fail(self, message: str, rest: str) -> None:
        raise StageError(
            f"{message} {self._epoch + 1}{rest}",
            subject=self._stage or None,
            hint="lower training.optimizer.learning_rate, set global_clipnorm: 1,"
            " or look for broken values with `shrink data check`",
        )


class BestEpoch(keras.callbacks.Callback):
    """Restores the weights of the best epoch at the end, and ends training when it is long ago.

    Keras' `EarlyStopping` keeps all variables of what is fitted, the micro-batch size among them,
    and begins anew after a restart. The first of equal epochs is the best. Add it before the
    callback that appends to `history`.

    Args:
        weights_of: the model whose weights are kept, on the host.
        monitor: a metric's name in the epoch's logs, such as `val_loss`.
        higher_is_better: the metric's direction.
        history: metrics by name, one number per finished epoch, of earlier processes too.
        patience: epochs without a better one after which training ends; None for never.
        first_epoch: the first one that may be kept, from 0; training does not end before it.

    Attributes:
        weights: after the best epoch; None before the first.
    """

    _supports_tf_logs = True

    def __init__(
        self,
        weights_of: keras.Model,
        monitor: str,
        *,
        higher_is_better: bool,
        history: Mapping[str, Sequence[float]],
        patience: int | None = None,
        first_epoch: int = 0,
    ) -> None:
        super().__init__()
        self._weights_of = weights_of
        self._monitor = monitor
        self._sign = 1.0 if higher_is_better else -1.0
        self._history = history
        self._patience = math.inf if patience is None else patience
        self._first_epoch = first_epoch
        self.weights: list[Array] | None = None

    def is_over(self, *more: float) -> bool:
        """Whether training has ended after the epochs of the history and `more`."""
        return self._since_best(*more) >= self._patience

    def _since_best(self, *more: float) -> int:
        """Return how many epochs came after the best one; 0 before any may be kept."""
        values = [*self._history.get(self._monitor, ()), *more][self._first_epoch :]
        scores = [-math.inf if math.isnan(value) else self._sign * value for value in values]
        return len(scores) - 1 - scores.index(max(scores)) if scores else 0

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Keep the weights if this epoch is the best so far, or end training."""
        value = float((logs or {})[self._monitor])
        if epoch >= self._first_epoch and self._since_best(value) == 0:
            self.weights = self._weights_of.get_weights()
        if self.is_over(value):
            self.model.stop_training = True

    def on_train_end(self, logs: Logs | None = None) -> None:
        """Put the best weights back."""
        if self.weights is not None:
            self._weights_of.set_weights(self.weights)


def first_settled_epoch(hooks: Iterable[object], *, steps: int, epochs: int) -> int:
    """Return the first epoch, from 0, after which no hook changes any more; at most the last.

    An epoch may be the best while a mask is still becoming sparser, but it is not as sparse as
    the recipe says.

    Args:
        hooks: called after every update; those that change have `settles_after`, an update.
        steps: updates of an epoch.
        epochs: of the training.
    """
    settled = max((getattr(hook, "settles_after", 0) for hook in hooks), default=0)
    return max(0, min(math.ceil(settled / steps), epochs) - 1)
