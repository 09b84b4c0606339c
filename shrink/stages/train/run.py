"""The `train` stage."""

from __future__ import annotations

from shrink.engine.objective import SupervisedObjective
from shrink.stages.context import StageContext, StageResult
from shrink.stages.train.config import TrainConfig


def run(config: TrainConfig, context: StageContext) -> StageResult:
    """Train the model on the labels or targets."""
    model = context.load()
    task = context.task(model)
    objective = SupervisedObjective(task.loss, task.from_logits)
    record = context.train(model, objective, config.epochs)
    return StageResult(model=model, training=record)
