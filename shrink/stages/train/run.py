"""The `train` stage."""

from __future__ import annotations

from shrink.stages.context import StageContext, StageResult
from shrink.stages.train.config import TrainConfig


def run(config: TrainConfig, context: StageContext) -> StageResult:
    """Train the model on the labels or targets."""
    model = context.load()
    task = context.task(model)
    objective = task.objective()
    record = context.train(model, objective, config.epochs)
    return StageResult(model=model, training=record)
