"""One room per stage; the registry below is all that the rest of shrink knows of them."""

from __future__ import annotations

import functools
import importlib.metadata
import sys
from pathlib import Path

from shrink.base.errors import RecipeError
from shrink.base.versions import sources_digest
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
"""Shrink's own stages, by their kind."""
ENTRY_POINTS = "shrink.stages"
"""The group of entry points by which other packages add stages: `kind = "package.config:Class"`."""


def find_stage(kind: str) -> type[StageConfig] | None:
    """Return the configuration of a stage of shrink's or of an installed package; else None.

    Raises:
        RecipeError: the package that adds it cannot be imported, or adds something else.
    """
    added = None if kind in STAGES else _entry_point(kind)
    if added is None:
        return STAGES.get(kind)
    try:
        config = added.load()
    except Exception as error:  # whatever a foreign module raises
        why = f"{type(error).__name__}: {error}"
        raise RecipeError(
            f"{_package_of(added)} adds the stage {kind}, and fails: {why}",
            hint="update or remove the package",
        ) from error
    if not (isinstance(config, type) and issubclass(config, StageConfig) and config.kind == kind):
        raise RecipeError(
            f"{_package_of(added)} adds the stage {kind}, and {added.value} is no StageConfig of it"
        )
    return config


def stage_code(kind: str) -> dict[str, str]:
    """Return package, version and hash of the sources of a stage that another package adds.

    Of shrink's own stages nothing: shrink's version and sources tell.
    """
    config = find_stage(kind)
    added = None if kind in STAGES else _entry_point(kind)
    if added is None or config is None:
        return {}
    folder = Path(str(sys.modules[config.__module__].__file__)).parent
    return {"package": _package_of(added), "sources": sources_digest(folder)}


def run_module(kind: str) -> str:
    """Return the module with the `run` of a stage or of the baseline.

    It is `run` beside the module of the configuration.
    """
    own = f"{__name__}.{kind}"
    config = None if kind in STAGES else find_stage(kind)
    return f"{own if config is None else config.__module__.rpartition('.')[0]}.run"


@functools.cache
def _entry_point(kind: str) -> importlib.metadata.EntryPoint | None:
    # Looked for only where shrink has no such stage: it reads a file of every installed package.
    return next(iter(importlib.metadata.entry_points(group=ENTRY_POINTS, name=kind)), None)


def _package_of(point: importlib.metadata.EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.value
