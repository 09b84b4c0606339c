"""The `prune` stage."""

from __future__ import annotations

from shrink.stages.context import StageContext, StageResult
from shrink.stages.prune.channels import prune_channels
from shrink.stages.prune.config import PruneConfig
from shrink.stages.prune.magnitude import prune_magnitude


def run(config: PruneConfig, context: StageContext) -> StageResult:
    """Prune weights or channels, then fine-tune."""
    method = prune_channels if config.method == "channels" else prune_magnitude
    return method(config, context)
