"""The plan of a stage's training under a memory limit, from measured steps."""

from __future__ import annotations

from shrink.base.errors import ResourceError
from shrink.contract.job import MicroBatchPlan
from shrink.data.dataset import Dataset
from shrink.engine.batch_norm import batch_norm_mode
from shrink.engine.class_weights import class_weights_of
from shrink.engine.microbatch import TrainingSetup
from shrink.engine.planner import cannot_fit, choose, plan_batches, predict, search, usable
from shrink.engine.probe import TrainingStep
from shrink.engine.recompute import recomputed


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
            return plan_step(step, config.memory_limit)


def plan_step(step: TrainingStep, limit: int | None) -> MicroBatchPlan:
    """Return the plan of a training step; see `plan_training`."""
    rows, within = step.plan.most_rows, None if limit is None else usable(limit, step.margin)
    least = step.static_bytes + step.gradient_bytes
    if limit is not None and within is not None and least > within:
        raise cannot_fit(limit, least, step.config, step.margin)
    # A batch that is one micro-batch needs no loop: its peak is another curve, below this one.
    largest = 1 << max(0, (rows - 1).bit_length() - 1) if step.never_empty else rows
    probed = search(step.looped_peak, largest, within, tolerance=step.tolerance)
    plan = choose(probed, within)
    if step.never_empty and (plan is None or plan.micro_batch_size == largest):
        plan = _plan_whole(step, within, predict(probed, rows)) or plan
    if plan is None:
        least = min(probed.values(), default=least)
        raise cannot_fit(limit or 0, least, step.config, step.margin)
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
