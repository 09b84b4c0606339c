"""Validation in batches of a size of its own, which take no more memory than training does."""

from __future__ import annotations

import math

import tensorflow as tf

from shrink.base.errors import ResourceError
from shrink.contract.job import MicroBatchPlan
from shrink.data.examples import Examples
from shrink.engine.planner import Floor, search
from shrink.engine.probe import TrainingStep

_MICRO_BATCHES = 16
"""Larger batches would hardly be faster, and each probe takes time."""


class ValidationProbe:
    """Validates while the next global batches of training wait, as it is between two epochs.

    Args:
        step: the training step.
        examples: the validation examples.
    """

    def __init__(self, step: TrainingStep, examples: Examples) -> None:
        self.floor = Floor(low=step.static_bytes)
        self._step, self._examples = step, examples
        self._waiting = step.batches(step.plan.most_rows)
        next(self._waiting)
        self._function = step.trainer.make_test_function(force=True)

    def peak(self, size: int) -> int:
        """Return the peak, in bytes, of validation with `size` examples per replica at once.

        Raises:
            ResourceError: out of memory.
        """
        self._step.trainer.set_validation_size(size)
        try:
            self._validate(size)
            return self._step.peak_of(lambda: self._validate(size))
        except tf.errors.ResourceExhaustedError as error:
            raise ResourceError("out of memory in validation", subject="training") from error

    def _validate(self, size: int) -> None:
        self._function(self._step.validation_batches(self._examples, size))


def plan_validation(step: TrainingStep, examples: Examples, plan: MicroBatchPlan) -> int:
    """Return how many examples to validate on at once, over all replicas.

    As many as take no more memory than training in the plan's micro-batches.

    Args:
        step: the training step.
        examples: the validation examples.
        plan: what training was planned to do.
    """
    replicas = step.replicas
    if plan.micro_batch_size < step.plan.most_rows:
        step.use_loop(plan.micro_batch_size)  # which holds accumulators during validation, too
    most = min(math.ceil(len(examples) / replicas), _MICRO_BATCHES * plan.micro_batch_size)
    probe = ValidationProbe(step, examples)
    probed = search(probe, most, plan.verified_bytes, doubt=step.doubt)
    fitting = [s for s, peak in probed.items() if peak <= (plan.verified_bytes or math.inf)]
    return replicas * max(fitting, default=1)
