"""The plan of a stage's training and validation: what its probes say about a memory limit."""

from __future__ import annotations

import math
from dataclasses import replace

import tensorflow as tf

from shrink.base.errors import ResourceError
from shrink.contract.job import MicroBatchPlan
from shrink.data.dataset import Dataset
from shrink.data.examples import Examples
from shrink.engine.batch_norm import batch_norm_mode
from shrink.engine.class_weights import class_weights_of
from shrink.engine.objective import masked_outputs
from shrink.engine.planner import (
    Floor,
    cannot_fit,
    choose,
    plan_batches,
    predict,
    search,
    usable,
)
from shrink.engine.probe import MicroBatchProbe, TrainingStep, WholeBatchProbe, counted_bytes
from shrink.engine.recompute import recomputed
from shrink.engine.trainer import TrainingSetup

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


def plan_training(setup: TrainingSetup, dataset: Dataset) -> MicroBatchPlan:
    """Return the largest micro-batch that fits the memory limit, with the peak to expect.

    Args:
        setup: what is trained; the weights change.
        dataset: what shall be trained and validated on.

    Raises:
        ResourceError: not even a micro-batch of one example fits.
        DataError: class weights do not suit the targets.
        RecipeError: a class weight is of no class.
    """
    model, config = setup.model, setup.config
    if config.class_weights is not None:
        class_weights_of(config.class_weights, dataset)  # refused before minutes of probes
    examples, checks = len(dataset.train), len(dataset.validation)
    batches = plan_batches(config, setup.devices.replicas, examples, checks)
    with batch_norm_mode(model, config.batch_norm):
        step = TrainingStep(setup, dataset.train, never_empty=batches.never_empty)
        with recomputed(model, config.recompute, step.trainer.seeds):
            plan = plan_step(step, config.memory_limit)
            # Masked losses are means over the valid elements of a batch: its size decides them.
            ignored = setup.objective.ignored(len(getattr(model, "outputs", None) or ()))
            if checks == 0 or masked_outputs(model, ignored):
                return plan
            size = plan_validation(step, dataset.validation, plan)
            return replace(plan, validation_batch_size=size)


def plan_step(step: TrainingStep, limit: int | None) -> MicroBatchPlan:
    """Return the plan of a training step; see `plan_training`."""
    least, whole_limit = step.static_bytes + step.gradient_bytes, limit or 0
    limit = None if limit is None else usable(limit, step.margin)
    if limit is not None and least > limit:
        raise cannot_fit(whole_limit, least, memory_savings(step), step.margin)
    probe, rows = MicroBatchProbe(step), step.plan.most_rows
    # A batch that is taken whole needs no loop: its peak is another curve, below this one.
    largest = _power_below(rows) if step.never_empty and rows > 1 else rows
    probed = search(probe, largest, limit, doubt=step.doubt)
    plan = choose(probed, probe.floor, limit)
    if step.never_empty and (plan is None or plan.micro_batch_size == largest):
        plan = _plan_whole(step, limit, predict(probed, rows, probe.floor)) or plan
    if plan is None:
        least = min(probed.values(), default=least)
        raise cannot_fit(whole_limit, least, memory_savings(step, least, probe.floor), step.margin)
    return plan


def _power_below(rows: int) -> int:
    """Return the largest power of two below a number of rows, at least 1."""
    return 1 << max(0, (rows - 1).bit_length() - 1)


def _plan_whole(
    step: TrainingStep, limit: int | None, in_loop: int | None
) -> MicroBatchPlan | None:
    """Return the plan of one micro-batch per step, if it fits.

    Args:
        step: the training step.
        limit: bytes; None for none.
        in_loop: what one micro-batch per step would take in a loop, at most.
    """
    probe, rows = WholeBatchProbe(step), step.plan.most_rows
    half = _power_below(rows // 2 + 1)
    probed = {size: probe.peak(size) for size in sorted({half // 2, half}) if 0 < 2 * size <= rows}
    expected = predict(probed, rows, probe.floor) or in_loop
    if limit is not None and expected is not None and expected > limit * (1 + step.doubt):
        return None
    try:
        probed[rows] = probe.peak(rows)
    except ResourceError:
        return None
    plan = choose(probed, probe.floor, limit)
    return plan if plan is not None and plan.micro_batch_size == rows else None


def memory_savings(
    step: TrainingStep, least: int = 0, floor: Floor | None = None
) -> dict[str, int]:
    """Return what would save memory, with the bytes that it would save, about.

    Args:
        step: the training step.
        least: its peak at a micro-batch of one example, in bytes; 0 if unknown.
        floor: what it holds beside activations, if known.
    """
    held = floor.low - step.gradient_bytes if floor else step.static_bytes
    slots = counted_bytes(step.trainer.optimizer.variables, counts_all=step.counts_all)
    return {
        "training.optimizer.name: sgd": slots,
        "training.precision: mixed_bfloat16": round(least - held - 2 * step.gradient_bytes) // 2,
        "half of training.global_batch_size": round(held - step.static_bytes) // 2,
        "a model with half the weights": (step.static_bytes + step.gradient_bytes) // 2,
    }
