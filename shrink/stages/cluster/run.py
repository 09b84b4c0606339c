"""The `cluster` stage."""

from __future__ import annotations

import numpy as np

from shrink.errors import StageError
from shrink.stages.cluster.config import ClusterConfig
from shrink.stages.cluster.sharing import Shared, SharedKernels, cluster
from shrink.stages.context import StageContext, StageResult
from shrink.stages.prune.masks import prunable_kernels


def run(config: ClusterConfig, context: StageContext) -> StageResult:
    """Cluster the weights of each kernel, then fine-tune the shared values.

    Raises:
        StageError: no kernel is left to cluster.
    """
    model = context.load()
    kernels, skipped = prunable_kernels(model, config.exclude)
    if not kernels:
        raise StageError(
            "there is no kernel to cluster: no dense or convolutional layer is left",
            subject=context.name,
            hint="loosen cluster.exclude",
        )
    context.phase("clustering")
    keep_zeros = "sparsity" in context.claims
    found: list[Shared] = []
    for one in kernels:
        shared = cluster(one.kernel.numpy(), config.clusters, context.training.seed, keep_zeros)
        one.kernel.assign(shared.kernel)
        found.append(shared)
    record = None
    if config.epochs:
        with context.devices.scope():
            pairs = [(k.kernel, shared) for k, shared in zip(kernels, found, strict=True)]
            hook = SharedKernels(pairs)
        objective = context.task(model).objective()
        record = context.train(model, objective, config.epochs, after_update=(hook,))
    most = max(len(np.unique(one.kernel.numpy())) for one in kernels)
    note = (
        f"the weights of each of {len(kernels)} kernels take at most {most} values: that makes a "
        "compressed file smaller, and the stored one not"
    )
    return StageResult(model=model, training=record, skipped=skipped, notes=[note])
