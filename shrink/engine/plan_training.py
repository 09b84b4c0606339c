"""The plan of a stage's training and validation under a memory limit, from measured steps."""

from __future__ import annotations

import math
from dataclasses import replace

import tensorflow as tf

from shrink.base.errors import ResourceError
from shrink.contract.job import MicroBatchPlan
from shrink.data.dataset import Dataset
from shrink.data.examples import Examples
from shrink.data.pipeline import evaluation_batches
from shrink.engine.batch_norm import batch_norm_mode
from shrink.engine.class_weights import class_weights_of
from shrink.engine.devices import distribute_batches
from shrink.engine.microbatch import TrainingSetup
from shrink.engine.objective import masked_outputs
from shrink.engine.planner import cannot_fit, choose, plan_batches, predict, search, usable
from shrink.engine.probe import TrainingStep, counted_bytes
from shrink.engine.recompute import recomputed

_MICRO_BATCHES = 16
"""Larger batches would hardly be faster, and each probe takes time."""


def plan_validation(step: TrainingStep, examples: Examples, plan: MicroBatchPlan) -> int:
    """Return how many examples to validate on at once, over all replicas.

    As many as take no more memory than training in the plan's micro-batches, while the next
    global batches of training wait, as they do between two epochs.

    Args:
        step: the training step.
        examples: the validation examples.
        plan: of the training.
    """
    replicas, trainer = step.devices.replicas, step.trainer
    if plan.micro_batch_size < step.plan.most_rows:
        step.use_loop(plan.micro_batch_size)  # which holds accumulators during validation, too
    waiting = step.batches(step.plan.most_rows)
    next(waiting)
    test = trainer.make_test_function(force=True)

    def peak(size: int) -> int:
        def validate() -> None:
            batches = evaluation_batches(examples, size * replicas, share=step.devices.share)
            test(iter(distribute_batches(batches, step.devices)))

        trainer.set_validation_size(size)
        try:
            validate()
            return step.peak_of(validate)
        except tf.errors.ResourceExhaustedError as error:
            raise ResourceError("out of memory in validation", subject="training") from error

    most = min(math.ceil(len(examples) / replicas), _MICRO_BATCHES * plan.micro_batch_size)
    probed = search(peak, most, plan.verified_bytes, tolerance=step.tolerance)
    best = choose(probed, plan.verified_bytes)
    return replicas * (best.micro_batch_size if best is not None else 1)


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
    rows, within = step.plan.most_rows, None if limit is None else usable(limit, step.margin)
    least = step.static_bytes + step.gradient_bytes
    if limit is not None and within is not None and least > within:
        raise cannot_fit(limit, least, memory_savings(step), step.margin)
    # A batch that is one micro-batch needs no loop: its peak is another curve, below this one.
    largest = 1 << max(0, (rows - 1).bit_length() - 1) if step.never_empty else rows
    probed = search(step.looped_peak, largest, within, tolerance=step.tolerance)
    held = step.held()
    plan = choose(probed, within)
    if step.never_empty and (plan is None or plan.micro_batch_size == largest):
        plan = _plan_whole(step, within, predict(probed, rows)) or plan
    if plan is None:
        least = min(probed.values(), default=least)
        raise cannot_fit(limit or 0, least, memory_savings(step, least, held), step.margin)
    return plan


def _plan_whole(
    step: TrainingStep, limit: int | None, looped_peak: int | None
) -> MicroBatchPlan | None:
    """Return the plan of one micro-batch per step, if it fits.

    Args:
        step: the training step.
        limit: bytes; None for none.
        looped_peak: predicted peak of one micro-batch per step in a loop, which is no lower.
    """
    rows = step.plan.most_rows
    probed = {size: step.whole_peak(size) for size in (rows // 4, rows // 2) if size > 0}
    expected = predict(probed, rows) or looped_peak
    if limit is not None and expected is not None and expected > limit * (1 + step.tolerance):
        return None
    try:
        probed[rows] = step.whole_peak(rows)
    except ResourceError:
        return None
    plan = choose(probed, limit)
    return plan if plan is not None and plan.micro_batch_size == rows else None


def memory_savings(step: TrainingStep, least: int = 0, held: int | None = None) -> dict[str, int]:
    """Return changes that would save memory, with the bytes of each, about.

    Args:
        step: the training step.
        least: its peak at a micro-batch of one example, in bytes; 0 if unknown.
        held: bytes between its steps, with accumulators; None if unknown.
    """
    held = step.static_bytes if held is None else held - step.gradient_bytes
    slots = counted_bytes(step.trainer.optimizer.variables, counts_all=step.counts_all)
    return {
        "training.optimizer.name: sgd": slots,
        "training.precision: mixed_bfloat16": (least - held - 2 * step.gradient_bytes) // 2,
        "half of training.global_batch_size": (held - step.static_bytes) // 2,
        "a model with half the weights": (step.static_bytes + step.gradient_bytes) // 2,
    }
