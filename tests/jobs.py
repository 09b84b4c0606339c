"""Jobs of stages, and what a stage is given of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from shrink.contract.job import StepJob
from shrink.contract.model_source import ModelKind, ModelSource
from shrink.engine.config import TrainingConfig
from shrink.stages.context import StageContext

_KINDS: dict[str, ModelKind] = {".keras": "keras", ".h5": "h5", ".tflite": "tflite"}


def quiet(*args: Any, **fields: Any) -> None:
    """Hear of nothing."""


def source(path: Path, **fields: Any) -> ModelSource:
    """Return a model of a kind that its name tells."""
    return ModelSource(_KINDS.get(path.suffix, "savedmodel"), path, **fields)


def step_job(
    work: Path = Path(),
    *,
    kind: str = "train",
    inputs: Mapping[str, Path | ModelSource] | None = None,
    data: Mapping[str, Any] | None = None,
    training: Mapping[str, Any] | None = None,
    **fields: Any,
) -> StepJob:
    """Return the job of one stage; `data`, `training` and `task` as a recipe has them."""
    given = {role: source(m) if isinstance(m, Path) else m for role, m in (inputs or {}).items()}
    data = {"source": "digits"} if data is None else data
    settings = TrainingConfig.model_validate(training or {}).model_dump(mode="json")
    defaults: dict[str, Any] = {"name": kind, "task": {}, "split_seed": 0}
    told = {**defaults, **fields}
    return StepJob(kind=kind, work=work, inputs=given, data=data, training=settings, **told)


def context_of(work: Path, send: Callable[..., None] = quiet, **fields: Any) -> StageContext:
    """Return what a stage works with; see `step_job`."""
    return StageContext(step_job(work, **fields), send)
