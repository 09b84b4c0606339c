"""What an artifact scores on examples, masked as Keras does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import DataError
from shrink.base.figures import measured_outputs
from shrink.data.examples import Examples
from shrink.engine.masking import masked_outputs
from shrink.task.accuracy import Sums, pool, sums
from shrink.task.task import Task
from shrink.tflite.interpreter import load
from shrink.tflite.names import named, ordered
from shrink.tflite.structure import Subgraph

_SEQUENCE_AXES = 3
Masks = list[np.ndarray[Any, Any] | None]


class OutputMasks:
    """Computes the masks of a model's outputs, such as those of `Embedding(mask_zero=True)`.

    A converted artifact has the outputs but not the masks: they come from the Keras model.

    Args:
        model: a functional or sequential model.
    """

    def __init__(self, model: keras.Model) -> None:
        # Only the masks are fetched, so that TensorFlow computes nothing else of the model.
        @tf.function(reduce_retracing=True)
        def masks(x: Any) -> list[Any]:
            outputs = tf.nest.flatten(model(x, training=False))
            return [getattr(output, "_keras_mask", None) for output in outputs]

        self._masks = masks

    def of(self, x: Any) -> Masks:
        """Return the mask of each output, bool (n, ...); None for an output without one.

        Args:
            x: the model's inputs, (n, ...) each, nested as the model takes them.
        """
        found = self._masks(tf.nest.map_structure(tf.convert_to_tensor, x))
        return [None if mask is None else np.asarray(mask, bool) for mask in found]


def masks_of(model: keras.Model | None) -> OutputMasks | None:
    """Return what computes a model's masks; None where no output of it has one."""
    return OutputMasks(model) if model is not None and masked_outputs(model) else None


def unmasked_notes(model: keras.Model | None, graph: Subgraph) -> list[str]:
    """Return a sentence where an artifact may have had masks that nobody can know any more.

    Args:
        model: the Keras model behind the artifact; None where the artifact is all there is.
        graph: of the artifact. Masks are of outputs with an axis of steps, (1, steps, ...).
    """
    steps = any(len(graph.tensors[place].shape) == _SEQUENCE_AXES for place in graph.outputs)
    if model is not None or not steps:
        return []
    return [
        "metrics count every element of the outputs: an artifact alone does not tell padding from "
        "steps; evaluate the Keras model, or what a run made of it, where the model has masks"
    ]


_BATCH = 250
_Term = tuple[str, int]
"""A metric or loss, and the place of the output that it is of."""


@dataclass(frozen=True)
class Evaluation:
    """Metrics of an artifact on the test split.

    Attributes:
        metrics: mean of each metric over the elements that count; `loss` is the task's loss.
        scores: each example's part by metric, in the split's order, float64 (n,), the mean of
            which is the metric: see `shrink.task.accuracy.pool`.
        examples: number of examples.
    """

    metrics: dict[str, float]
    scores: dict[str, np.ndarray]
    examples: int


def ties_note(evaluation: Evaluation, outputs: Sequence[tuple[int | None, ...]]) -> list[str]:
    """Return sentences on examples whose score a tie decides, one a metric that has any.

    Args:
        evaluation: of one vector of classes an example: its score of accuracy is 0, 1, or the
            chance that its tie is broken for its own class. Of others nothing is said.
        outputs: shape of each output without the batch.
    """
    if len(outputs) > 1 or len(outputs[0]) != 1:
        return []
    places = {"accuracy": "largest output", "top5_accuracy": "output, for the last of five places"}
    tied = {
        name: int(np.count_nonzero((scores != 0) & (scores != 1)))
        for name in places
        if (scores := evaluation.scores.get(name)) is not None
    }
    return [
        f"{name}: {count} of {evaluation.examples} examples have their own class and others at the "
        f"same {places[name]}; each counts as often as chance would break its tie for its own class"
        for name, count in tied.items()
        if count
    ]


def evaluate_artifact(
    tflite: Path, examples: Examples, task: Task, masks: OutputMasks | None = None
) -> Evaluation:
    """Run the artifact on every example and score it.

    Args:
        tflite: the artifact; integer inputs and outputs are quantized and dequantized.
        examples: the test split.
        task: metrics, loss, and whether outputs are logits.
        masks: of the Keras model that the artifact is, or was made from: only the elements of an
            output that its mask leaves count, pooled over all examples.

    Raises:
        DataError: the examples do not match its inputs or outputs, or no element counts.
    """
    runner = load(tflite)
    terms = {name: _terms(task, name) for name in ("loss", *task.metrics)}
    parts: dict[_Term, list[Sums]] = {term: [] for many in terms.values() for term in many.factors}
    for start in range(0, len(examples), _BATCH):
        indices = np.arange(start, min(start + _BATCH, len(examples)))
        x, y = examples.arrays(indices)
        inputs = [np.asarray(part, np.float32) for part in tf.nest.flatten(x)]
        outputs = runner.predict(named(inputs, task.input_names), batch_size=_BATCH)
        targets = tf.nest.flatten(y)
        _check_count(outputs, targets)
        present: Masks = masks.of(x) if masks else [None] * len(outputs)
        for (metric, i), sums_of in parts.items():
            logits = task.from_logits[i]
            sums_of.append(
                sums(outputs[i], targets[i], metric, from_logits=logits, mask=present[i])
            )
    pooled = {term: pool(sums_of) for term, sums_of in parts.items()}
    metrics = {
        name: float(many.combine({term: found.value for term, found in pooled.items()}))
        for name, many in terms.items()
    }
    scores = {
        name: many.combine({term: found.scores for term, found in pooled.items()})
        for name, many in terms.items()
    }
    return Evaluation(metrics, scores, len(examples))


@dataclass(frozen=True)
class _Terms:
    """What `loss` or a metric adds up of single outputs: factors, and the divisor of the sum."""

    factors: Mapping[_Term, float]
    divisor: int = 1

    def combine(self, values: Mapping[_Term, Any]) -> Any:
        # One division at the end: a third of 1 + 1 + 1 is 1, to the last bit.
        total = sum(factor * values[term] for term, factor in self.factors.items())
        return total / self.divisor


def _terms(task: Task, name: str) -> _Terms:
    if name == "loss":
        weighted = zip(task.losses, task.loss_weights, strict=True)
        return _Terms({(loss, i): weight for i, (loss, weight) in enumerate(weighted)})
    chosen = measured_outputs(name, task.losses)
    return _Terms({(name, i): 1.0 for i in chosen}, len(chosen))


def sample_inputs(
    tflite: Path, examples: Examples, task: Task, count: int
) -> list[np.ndarray[Any, Any]]:
    """Return the inputs of a few examples, spread evenly, to run an artifact with.

    Args:
        tflite: the artifact.
        examples: any split; none of it gives no arrays.
        task: of the model.
        count: how many at most.

    Returns:
        A float32 array (n, ...) for each input, in the artifact's order.
    """
    if not len(examples):
        return []
    indices = np.unique(np.linspace(0, len(examples) - 1, count).astype(np.int64))
    x, _ = examples.arrays(indices)
    inputs = [np.asarray(part, np.float32) for part in tf.nest.flatten(x)]
    return ordered(named(inputs, task.input_names), load(tflite).input_names)


def _check_count(outputs: list[np.ndarray], targets: list[np.ndarray]) -> None:
    if len(outputs) != len(targets):
        raise DataError(
            f"{len(targets)} targets for an artifact with {len(outputs)} outputs",
            subject="data.targets",
            hint="name one array for each output, in the model's order",
        )
