"""One room per stage; the registry below is all that the rest of shrink knows of them."""

from __future__ import annotations

from shrink.stages.base import StageConfig
from shrink.stages.cluster.config import ClusterConfig
from shrink.stages.distill.config import DistillConfig
from shrink.stages.prune.config import PruneConfig
from shrink.stages.quantize.config import QuantizeConfig
from shrink.stages.train.config import TrainConfig

STAGES: dict[str, type[StageConfig]] = {
    config.kind: config
    for config in (TrainConfig, DistillConfig, PruneConfig, ClusterConfig, QuantizeConfig)
}
"""Every stage that a recipe can name, by its kind."""
