"""The stages, a folder for each, and their registry."""

from __future__ import annotations

from shrink.base.packages import Extension, find_extension
from shrink.stages.base import StageConfig
from shrink.stages.cluster.config import ClusterConfig
from shrink.stages.compact.config import CompactConfig
from shrink.stages.distill.config import DistillConfig
from shrink.stages.prune.config import PruneConfig
from shrink.stages.quantize.config import QuantizeConfig
from shrink.stages.train.config import TrainConfig

STAGES: dict[str, type[StageConfig]] = {
    config.kind: config
    for config in (
        TrainConfig,
        DistillConfig,
        PruneConfig,
        ClusterConfig,
        QuantizeConfig,
        CompactConfig,
    )
}
"""Shrink's own stages, by their kind."""


def find_stage(kind: str) -> type[StageConfig] | None:
    """Return the configuration of a stage of shrink's or of an installed package; else None.

    A package adds it by an entry point `kind = "package.config:Class"` of `shrink.stages`.

    Raises:
        RecipeError: the package that adds it cannot be imported, or adds something else.
    """
    added = _added(kind)
    if added is None:
        return STAGES.get(kind)
    config = added.load()
    if not (isinstance(config, type) and issubclass(config, StageConfig) and config.kind == kind):
        raise added.error(f"{added.point.value} is no StageConfig of it")
    return config


def stage_code(kind: str) -> dict[str, str]:
    """Return package, version and hash of the sources of a stage that another package adds.

    Of shrink's own stages nothing: shrink's version and sources tell.
    """
    added = _added(kind)
    return {} if added is None else added.code()


def run_module(kind: str) -> str:
    """Return the module with the `run` of a stage or of the baseline.

    It is `run` beside the module of the configuration; the baseline, which has none, is a module.
    """
    config = find_stage(kind)
    if config is None:
        return f"{__name__}.{kind}"
    return f"{config.__module__.rpartition('.')[0]}.run"


def _added(kind: str) -> Extension | None:
    return None if kind in STAGES else find_extension("stage", kind)
