"""The first step of a recipe whose model comes trained: it is evaluated, nothing else."""

from __future__ import annotations

from shrink.stages.base import StageConfig
from shrink.stages.context import StageContext, StageResult


def run(config: StageConfig | None, context: StageContext) -> StageResult:
    """Return the model as it came."""
    path = context.input_path()
    if path.suffix == ".tflite":
        return StageResult(tflite=path.read_bytes())
    return StageResult(model=context.load())
