"""The `prune` stage; pruning by magnitude."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from shrink.base.errors import StageError, listed
from shrink.contract.choices import Choice
from shrink.contract.details import Details
from shrink.graph.rebuild import unfrozen_note
from shrink.pruning.masks import (
    GROUP,
    PATTERNS,
    Masks,
    PrunableKernel,
    constant,
    count_zeros,
    polynomial,
    prunable_kernels,
    pruned_count,
    ramp_updates,
    unfreeze,
    updates_between_choices,
)
from shrink.stages.context import StageContext, StageResult
from shrink.stages.prune.channels import prune_channels
from shrink.stages.prune.config import AUTO, PruneConfig
from shrink.stages.prune.layers import prune_layers
from shrink.stages.prune.length import first_epochs, prolong, updates_per_epoch, watched

_UNIT = {"unstructured": "weights", "block": "blocks of 4", "2:4": "groups of 4"}
_LISTED = 8


def prune_magnitude(config: PruneConfig, context: StageContext) -> StageResult:
    """Zero the smallest weights of each kernel, fine-tuning the others.

    Raises:
        StageError: no kernel can be pruned, or a kernel is less sparse than requested.
    """
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
    changed = unfreeze(model, kernels) if config.sparsity > 0 else []
    epochs = first_epochs(config, context)
    updates = epochs * updates_per_epoch(context)
    ramps = config.schedule == "polynomial" and epochs > 0 and config.pattern != "2:4"
    last = ramp_updates(config.ramp, updates) if ramps else 0
    with context.devices.scope():
        masks = Masks(
            [k.kernel for k in kernels],
            polynomial(config.sparsity, last, config.initial_sparsity)
            if ramps
            else constant(config.sparsity),
            last,
            updates_between_choices(last) if config.frequency == "auto" else config.frequency,
            PATTERNS[config.pattern],
        )
        if at_once := config.initial_sparsity if ramps else config.sparsity:
            masks.prune_now(at_once)
    record, choices = None, tuple[Choice, ...]()
    if epochs:
        # While the sparsity rises, so does the loss.
        with contextlib.nullcontext() if ramps else watched(model, context):
            record = context.train(model, context.task(model).objective(), epochs, (masks,))
            if config.epochs == AUTO:
                record, choices = prolong(model, record, epochs, context, masks=(masks,))
    notes = [*_finish(masks, kernels, config, context), *(one.sentence for one in choices)]
    reached = count_zeros(model).fraction
    note = f"{reached:.1%} of the weights in dense and convolutional kernels are zero"
    if grouped:
        note += f", in the pattern {config.pattern}"
    notes = [note, *notes, *([unfrozen_note(changed)] if changed else [])]
    return StageResult(
        model=model,
        training=record,
        skipped=skipped,
        notes=notes,
        details=Details(choices=choices) if choices else None,
    )


def _finish(
    masks: Masks, kernels: Sequence[PrunableKernel], config: PruneConfig, context: StageContext
) -> list[str]:
    """Check that every kernel has the requested sparsity; return sentences for the report.

    Raises:
        StageError: a kernel is less sparse, or no weight became zero.
    """
    notes = []
    if any(_missing(one, config) for one in kernels):
        # In float16 the optimizer skips updates whose gradients overflow, and the ramp with them.
        with context.devices.scope():
            masks.prune_now(config.sparsity)
        notes.append("the masks were completed after training, because updates were skipped")
    for one in kernels:
        if _missing(one, config):
            zeros, of = _units(one, config)
            raise StageError(
                f"{one.layer}: reached sparsity {zeros / of:.4g}, requested {config.sparsity:g}",
                subject=context.name,
                hint="please report this",
            )
    if config.sparsity > 0 and not any(_units(one, config)[0] for one in kernels):
        largest = max((_units(one, config)[1] for one in kernels), default=0)
        raise StageError(
            f"a sparsity of {config.sparsity:g} leaves no weight at zero: the largest of "
            f"{len(kernels)} kernels has {largest} {_UNIT[config.pattern]}",
            subject=context.name,
            hint="raise prune.sparsity",
        )
    more = [
        f"{one.layer} ({zeros / of:.1%})"
        for one in kernels
        for zeros, of in [_units(one, config)]
        if zeros > round(config.sparsity * of)
    ]
    if more and config.pattern != "2:4":
        notes.append(f"sparser than requested before pruning: {listed(more, _LISTED)}")
    return notes


def _missing(one: PrunableKernel, config: PruneConfig) -> int:
    """Return how many more units of the pattern should be zero."""
    zeros, of = _units(one, config)
    wanted = of if config.pattern == "2:4" else round(config.sparsity * of)
    return max(0, wanted - zeros)


def _units(one: PrunableKernel, config: PruneConfig) -> tuple[int, int]:
    return pruned_count(one.kernel.numpy(), config.pattern)


_METHODS = {"magnitude": prune_magnitude, "channels": prune_channels, "layers": prune_layers}


def run(config: PruneConfig, context: StageContext) -> StageResult:
    """Prune weights, channels or layers, then fine-tune."""
    return _METHODS[config.method](config, context)
