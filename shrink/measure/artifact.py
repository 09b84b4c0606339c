"""Accuracy of an artifact: LiteRT on every example of the test split."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf

from shrink.data.dataset import Examples
from shrink.errors import DataError
from shrink.measure.accuracy import scores as metric_scores
from shrink.recipe.metrics import measured_outputs
from shrink.stages.task import Task
from shrink.tflite.interpreter import Runner, load

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
        DataError: the examples do not match its inputs or outputs.
    """
    runner = load(tflite)
    order = _input_order(runner, task)
    collected: dict[str, list[np.ndarray]] = {name: [] for name in ("loss", *task.metrics)}
    for start in range(0, len(examples), _BATCH):
        indices = np.arange(start, min(start + _BATCH, len(examples)))
        x, y = examples.arrays(indices)
        inputs = [np.asarray(part, np.float32) for part in tf.nest.flatten(x)]
        outputs = runner.predict([inputs[place] for place in order], batch_size=_BATCH)
        targets = tf.nest.flatten(y)
        for name, parts in collected.items():
            parts.append(_scores(outputs, targets, task, name))
    scores = {name: np.concatenate(parts) for name, parts in collected.items()}
    means = {name: float(np.mean(values)) for name, values in scores.items()}
    return Evaluation(means, scores, len(examples))


def _input_order(runner: Runner, task: Task) -> list[int]:
    """Return, for each input of the artifact, the place of the examples' input that it takes."""
    names = [detail.name for detail in runner.input_details]
    if sorted(names) == sorted(task.input_names):
        return [task.input_names.index(name) for name in names]
    return list(range(len(names)))


def _scores(
    outputs: list[np.ndarray], targets: list[np.ndarray], task: Task, name: str
) -> np.ndarray:
    """Return each example's `loss`, or a metric's mean over the outputs, float64 (n,)."""
    if len(outputs) != len(targets):
        raise DataError(
            f"{len(targets)} targets for an artifact with {len(outputs)} outputs",
            subject="data.targets",
            hint="name one array for each output, in the model's order",
        )

    def score(index: int, metric: str) -> np.ndarray:
        logits = task.from_logits[index]
        return metric_scores(outputs[index], targets[index], metric, from_logits=logits)

    if name == "loss":
        weighted = zip(task.losses, task.loss_weights, strict=True)
        each = [weight * score(i, loss) for i, (loss, weight) in enumerate(weighted)]
        return np.sum(each, axis=0)
    return np.mean([score(i, name) for i in measured_outputs(name, task.losses)], axis=0)
