"""The `cluster` stage."""

from __future__ import annotations

import numpy as np

from shrink.base.errors import StageError
from shrink.contract.report import Skipped
from shrink.graph.rebuild import unfrozen_note
from shrink.pruning.masks import PrunableKernel, prunable_kernels, unfreeze
from shrink.pruning.sharing import Shared, SharedKernels, cluster
from shrink.stages.cluster.config import ClusterConfig
from shrink.stages.context import StageContext, StageResult
from shrink.stages.prune.length import watched


def run(config: ClusterConfig, context: StageContext) -> StageResult:
    """Cluster the weights of each kernel, then fine-tune the shared values.

    Raises:
        StageError: no kernel is left to cluster, all of them have few values already, or one ends
            with more than `clusters`.
    """
    model = context.load()
    kernels, skipped = prunable_kernels(model, config.exclude, key="cluster.exclude")
    if not kernels:
        raise StageError(
            "there is no kernel to cluster: no dense or convolutional layer is left",
            subject=context.name,
            hint="loosen cluster.exclude",
        )
    few = [one for one in kernels if _most_values(one) <= config.clusters]
    if len(few) == len(kernels):
        raise StageError(
            f"each of {len(kernels)} kernels has no more than {config.clusters} values already",
            subject=context.name,
            hint="ask for fewer clusters, or leave the stage out",
        )
    reason = f"its weights take no more than {config.clusters} values already"
    skipped += [Skipped(layer=one.layer, reason=reason) for one in few]
    context.phase("clustering")
    keep_zeros = "sparsity" in context.preserves
    clustered: list[Shared] = []
    for one in kernels:
        shared = cluster(one.kernel.numpy(), config.clusters, context.training.seed, keep_zeros)
        one.kernel.assign(shared.kernel)
        clustered.append(shared)
    changed = unfreeze(model, kernels)
    record = None
    if config.epochs:
        with context.devices.scope():
            pairs = [(k.kernel, shared) for k, shared in zip(kernels, clustered, strict=True)]
            hook = SharedKernels(pairs)
        objective = context.task(model).objective()
        with watched(model, context):
            record = context.train(model, objective, config.epochs, after_update=(hook,))
    counts = {one.layer: _most_values(one) for one in kernels}
    most = max(counts.values())
    if most > config.clusters:
        layer = max(counts, key=lambda name: counts[name])
        raise StageError(
            f"{layer}: its weights take {most} values, and {config.clusters} were requested",
            subject=context.name,
            hint="please report this",
        )
    note = (
        f"the weights of each of {len(kernels)} kernels take at most {most} values: that makes a "
        "compressed file smaller, but not the stored one"
    )
    notes = [note, *([unfrozen_note(changed)] if changed else [])]
    return StageResult(model=model, training=record, skipped=skipped, notes=notes)


def _most_values(one: PrunableKernel) -> int:
    """Return how many values a kernel takes, in all its output channels together."""
    return len(np.unique(one.kernel.numpy()))
