"""Training steps on synthetic batches, whose peak is measured."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

import numpy as np
import tensorflow as tf

from shrink.base.errors import ResourceError
from shrink.base.types import Array, Spec, Specs, Tensors
from shrink.data.examples import Examples
from shrink.data.pipeline import batches_waiting, training_batches
from shrink.engine.devices import distribute_batches
from shrink.engine.microbatch import TrainingSetup
from shrink.engine.planner import MARGIN, PREDICTION_TOLERANCE, BatchPlan, plan_batches
from shrink.engine.recovery import Retries
from shrink.engine.trainer import build_trainer
from shrink.measure.small_tensors import IN_PROBES, SMALL_BYTES, small_variables_bytes
from shrink.measure.training_peak import TrainingPeak


class ZeroExamples(Examples):
    """Examples of zeros: they take the memory of real ones, and every classifier has a class 0.

    Args:
        input_spec: `Spec` of one example's input, or a structure of them.
        target_spec: the same of its target.
        count: how many examples.
    """

    def __init__(self, input_spec: Specs, target_spec: Specs, count: int) -> None:
        self.input_spec = input_spec
        self.target_spec = target_spec
        self._count = count

    def __len__(self) -> int:
        return self._count

    def arrays(self, indices: Array) -> tuple[Tensors, Tensors]:
        """Return a batch of zeros as arrays."""

        def zeros(spec: Spec) -> Array:
            return np.zeros((len(indices), *spec.shape), spec.dtype)

        return tf.nest.map_structure(zeros, (self.input_spec, self.target_spec))


_STEPS = 3
_MORE_STEPS = 12
_SECONDS = 1.0
_PER_STEP = 2
_MORE_PER_STEP = 8
_ENDLESS = 1 << 40


class TrainingStep:
    """The real training step of a stage, on its own examples, to measure its peak.

    Args:
        setup: what is trained.
        examples: the training examples: where they are loaded to decides what is counted.
        never_empty: whether every replica has an example in every batch.

    Raises:
        ResourceError: the allocator keeps no statistics.
    """

    def __init__(
        self, setup: TrainingSetup, examples: Examples, *, never_empty: bool = True
    ) -> None:
        self.config = setup.config
        self.devices = devices = setup.devices
        self.plan = plan_batches(setup.config, devices.replicas, len(examples), 0)
        self.never_empty = never_empty
        self._examples = examples
        self.memory = TrainingPeak(devices.device_names, IN_PROBES)
        if self.memory.note:
            raise ResourceError(self.memory.note, subject="training.memory_limit")
        # As in a real run, each step keeps what is needed to repeat it; but it is not repeated.
        self.trainer = build_trainer(
            setup,
            BatchPlan(1, self.plan.most_rows, 1, never_empty),
            total_updates=_ENDLESS,
            retries=Retries(replay=_give_up),
        )
        with devices.scope():
            # Micro-batches after the first few hold as much.
            self._most = tf.Variable(_PER_STEP, dtype=tf.int64, trainable=False)
        self.trainer.most_micro_batches = self._most
        self._function = self.trainer.make_train_function()
        self._loops = True
        # The accumulators are no part of it: a batch that is one micro-batch needs none.
        counted = self.memory.counts_all or not self.counts_all
        held = (self.memory.held() or 0) + (0 if counted else small_variables_bytes())
        self.static_bytes = max(0, held - self.gradient_bytes)
        self._waiting: list[Tensors] = []
        self._whole: Iterator[Tensors] | None = None

    @property
    def margin(self) -> float:
        """Fraction of a limit that has to stay free, because another step may peak higher."""
        return 0.0 if self.devices.in_order else MARGIN

    @property
    def tolerance(self) -> float:
        """Sizes predicted up to this fraction over the limit are measured, too.

        An allocator with a limit lends a tensor all that is free where half of it would leave too
        little to split off. A peak near the limit then does not predict the next size's, which
        is measured: it costs the 10 s that the allocator takes to give up. Not so on a GPU, which
        may not work any more after that.
        """
        if self.devices.on_gpu:
            return 0.0
        return math.inf if self.devices.enforced else PREDICTION_TOLERANCE

    @property
    def gradient_bytes(self) -> int:
        """Bytes of one gradient of each weight, as far as they are counted."""
        weights = self.trainer.model.trainable_variables
        return counted_bytes(weights, counts_all=self.counts_all)

    @property
    def counts_all(self) -> bool:
        """Whether peaks include all tensors; on a CPU perhaps only those of 256 KiB and more."""
        return self.memory.is_complete

    def batches(self, rows: int) -> Iterator[Tensors]:
        """Return an endless iterator over one global batch of `rows` examples per replica.

        As many others are held as wait in training.
        """
        size = min(rows * self.devices.replicas, len(self._examples))
        batches = training_batches(
            self._examples,
            global_batch_size=size,
            seed=0,
            first_step=0,
            last_step=_ENDLESS,
            share=self.devices.share,
        )
        self._waiting.clear()
        self._waiting += batches.take(batches_waiting(self._examples, size))
        one = batches.take(1).cache().repeat()
        return iter(distribute_batches(one, self.devices))

    def use_loop(self, micro_batch_size: int) -> None:
        """Take micro-batches of this size from now on."""
        self._loops = True
        self.trainer.set_micro_batch_size(micro_batch_size)

    def use_no_loop(self) -> None:
        """Make each batch one micro-batch from now on."""
        if self._loops:
            self._loops = False
            self.trainer.take_batches_whole()
            self._function = self.trainer.make_train_function(force=True)

    def make_update(self, batches: Iterator[Tensors]) -> None:
        """Make one update on the next batch."""
        self._function(batches)

    def looped_peak(self, size: int) -> int:
        """Return the peak, in bytes, of steps in micro-batches of `size`, with the whole batch."""
        if self._whole is None:
            self._whole = self.batches(self.plan.most_rows)
        self.use_loop(size)
        return self._measure(self._whole)

    def whole_peak(self, size: int) -> int:
        """Return the peak, in bytes, of steps on batches of `size` per replica, without a loop."""
        self.use_no_loop()
        self._whole = None
        return self._measure(self.batches(size))

    def _measure(self, batches: Iterator[Tensors]) -> int:
        """Return the peak, in bytes, of a few steps after one that may trace.

        Where steps are fast there are more of them, of more micro-batches: what is left over of a
        chunk of memory differs from one to the next, and training meets them all.

        Raises:
            ResourceError: out of memory.
        """
        self.make_update(batches)
        began = time.perf_counter()
        peak = self.peak_of(lambda: self.make_update(batches))
        if not self._loops:
            return peak
        spent = time.perf_counter() - began
        affordable = (_SECONDS - spent) * _STEPS / spent * _PER_STEP / _MORE_PER_STEP
        self._most.assign(_MORE_PER_STEP)
        self._watched(lambda: self.make_update(batches), min(_MORE_STEPS, int(affordable)))
        self._most.assign(_PER_STEP)
        return max(peak, self.memory.parts().total or 0)

    def peak_of(self, step: Callable[[], object]) -> int:
        """Return the peak, in bytes, of calling `step` a few times."""
        self.memory.reset()
        self._watched(step, _STEPS)
        return self.memory.parts().total or 0

    def _watched(self, step: Callable[[], object], count: int) -> None:
        """Call `step` so often, and count small tensors."""
        with self.memory.small.window():
            for _ in range(count):
                self.memory.small.mark()
                step()


def _give_up(step: int) -> NoReturn:
    raise ResourceError("out of memory in a probe", subject="training.micro_batch_size")


def counted_bytes(tensors: Sequence[tf.Tensor | tf.Variable], *, counts_all: bool) -> int:
    """Return the bytes of tensors or variables that are counted: of all, or of the large ones."""
    sizes = [tensor.shape.num_elements() * tensor.dtype.size for tensor in tensors]
    return sum(size for size in sizes if counts_all or size >= SMALL_BYTES)
