"""Pruning by magnitude: the smallest weights become zero while the others are fine-tuned."""

from __future__ import annotations

import math

from shrink.errors import StageError
from shrink.stages.context import StageContext, StageResult
from shrink.stages.prune.config import PruneConfig
from shrink.stages.prune.masks import Masks, count_zeros, prunable_kernels
from shrink.stages.prune.patterns import GROUP, PATTERNS
from shrink.stages.prune.schedule import constant, polynomial, ramp_updates


def prune_magnitude(config: PruneConfig, context: StageContext) -> StageResult:
    """Zero the smallest weights of each kernel, fine-tuning the others."""
    model = context.load()
    grouped = config.pattern != "unstructured"
    kernels, skipped = prunable_kernels(model, config.exclude, GROUP if grouped else 1)
    if not kernels and config.sparsity > 0:
        raise StageError(
            "there is no kernel to prune: no dense or convolutional layer is left",
            subject=context.name,
            hint="loosen prune.exclude, or take another pattern"
            if grouped
            else "loosen prune.exclude",
        )
    updates = config.epochs * math.ceil(
        len(context.dataset.train) / context.training.global_batch_size
    )
    ramps = config.schedule == "polynomial" and config.epochs > 0 and config.pattern != "2:4"
    last = ramp_updates(config.ramp, updates) if ramps else 0
    with context.devices.scope():
        masks = Masks(
            [k.kernel for k in kernels],
            polynomial(config.sparsity, last) if ramps else constant(config.sparsity),
            last,
            config.frequency,
            PATTERNS[config.pattern],
        )
        if not ramps:
            masks.prune_now(config.sparsity)
    record = None
    if config.epochs:
        task = context.task(model)
        objective = task.objective()
        record = context.train(model, objective, config.epochs, after_update=(masks,))
    reached = count_zeros(model).fraction
    if config.sparsity > 0 and reached == 0:
        raise StageError("pruning left no weight at zero", subject=context.name)
    note = f"{reached:.1%} of the weights in dense and convolutional kernels are zero"
    if grouped:
        note += f", in the pattern {config.pattern}"
    return StageResult(model=model, training=record, skipped=skipped, notes=[note])
