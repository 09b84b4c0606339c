"""Callback that samples the small tensors, which the allocator of a CPU does not count."""

from __future__ import annotations

import time
from collections.abc import Callable

import tf_keras as keras

from shrink.engine.progress import Logs
from shrink.measure.small_tensors import SmallTensorsPeak

_LEAST_STEPS, _LEAST_S = 3, 0.5


class SmallTensorsWatch(keras.callbacks.Callback):
    """Samples the first steps after the one that builds the graph.

    All steps hold as much, validation holds less, and sampling takes a part of a processor. A
    step that ran out of memory builds another graph: the samples before it are discarded. The
    first callback of all.

    Args:
        small: samples.
        out_of_memory: returns how often a step ran out of memory.
    """

    _supports_tf_logs = True

    def __init__(self, small: SmallTensorsPeak, out_of_memory: Callable[[], int]) -> None:
        super().__init__()
        self._small, self._out_of_memory = small, out_of_memory
        self._events = out_of_memory()
        self._steps = 0
        self._trained = bool(small.note)
        self._began = 0.0

    def on_train_batch_begin(self, batch: int, logs: Logs | None = None) -> None:
        """Sample this step, unless it builds the graph or there are enough samples."""
        if self._trained or self._steps == 0:
            return
        if not self._small.running:
            self._began = time.perf_counter()
        self._small.begin()
        self._small.mark()

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Pause."""
        if self._trained:
            return
        self._small.rest()
        if self._out_of_memory() != self._events:
            self._events, self._steps = self._out_of_memory(), 0
            self._small.discard()
        self._steps += 1
        long_enough = time.perf_counter() - self._began >= _LEAST_S
        if self._steps > _LEAST_STEPS and long_enough:
            self._trained = True
            self._small.end()

    def on_train_end(self, logs: Logs | None = None) -> None:
        """End the last window."""
        self._small.end()
