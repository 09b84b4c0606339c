"""Accuracy of an artifact: LiteRT on every example of the test split."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shrink.data.dataset import Examples
from shrink.errors import StageError
from shrink.measure.accuracy import scores as metric_scores
from shrink.stages.task import Task
from shrink.tflite.interpreter import load

_BATCH = 250


@dataclass(frozen=True)
class Evaluation:
    """Metrics of an artifact on the test split.

    Attributes:
        metrics: mean of each metric; `loss` is the task's loss.
        scores: each example's score by metric, in the split's order, float64 (n,).
        examples: number of examples.
    """

    metrics: dict[str, float]
    scores: dict[str, np.ndarray]
    examples: int


def evaluate_artifact(tflite: Path, examples: Examples, task: Task) -> Evaluation:
    """Run the artifact on every example and score it.

    Args:
        tflite: the artifact; integer inputs and outputs are quantized and dequantized.
        examples: the test split.
        task: metrics, loss, and whether outputs are logits.

    Raises:
        StageError: it has several inputs or outputs.
    """
    runner = load(tflite)
    if len(runner.input_details) > 1 or len(runner.output_details) > 1:
        raise StageError(
            "artifacts with several inputs or outputs cannot be measured yet", subject=tflite
        )
    collected: dict[str, list[np.ndarray]] = {name: [] for name in ("loss", *task.metrics)}
    for start in range(0, len(examples), _BATCH):
        indices = np.arange(start, min(start + _BATCH, len(examples)))
        x, y = examples.arrays(indices)
        outputs = runner.predict(np.asarray(x, np.float32), batch_size=_BATCH)[0]
        for name, parts in collected.items():
            metric = task.loss if name == "loss" else name
            parts.append(metric_scores(outputs, y, metric, from_logits=task.from_logits))
    scores = {name: np.concatenate(parts) for name, parts in collected.items()}
    means = {name: float(np.mean(values)) for name, values in scores.items()}
    return Evaluation(means, scores, len(examples))
