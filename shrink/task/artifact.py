"""Scores of an artifact, masked as in Keras, and of the best constant answer."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from shrink.base.errors import DataError
from shrink.base.figures import LOSS
from shrink.base.keras_internals import mask_of, parts_of
from shrink.base.metrics import is_mean
from shrink.base.scores.output import Sums, pool
from shrink.base.types import Array, Tensors, leaves
from shrink.contract.report import Guess
from shrink.data.dataset import Dataset
from shrink.data.examples import Examples, reading_batch
from shrink.data.slices import Slicing
from shrink.task.combination import Term, Terms, means_within
from shrink.task.confusion_tables import ConfusionTables
from shrink.task.evaluation import Evaluation
from shrink.task.losses import loss_sums, without_ignored
from shrink.task.means import count_ties, sums
from shrink.task.metrics.whole import WholeSplit
from shrink.task.slices import ClassCounts, Sliced, groups_of, measure_slices
from shrink.task.task import Task
from shrink.tflite.interpreter import Runner, TensorDetail, load
from shrink.tflite.lazy import keras, tf
from shrink.tflite.model import Operator, Subgraph
from shrink.tflite.names import named, ordered

_SEQUENCE_AXES = 3
Masks: TypeAlias = "list[Array | None]"
Batch: TypeAlias = "tuple[list[Array], list[Array], Masks]"
"""Outputs, targets and masks, an array (n, ...) for each output of a model."""


def masks_of(model: keras.Model | None) -> Callable[[Tensors], Masks] | None:
    """Return what computes the masks of a model's outputs; None where no output has one.

    A converted artifact has the outputs but not the masks, such as those of
    `Embedding(mask_zero=True)`: they come from the Keras model.

    Returns:
        From inputs (n, ...), nested as the model takes them, to the mask of each output, bool
        (n, ...); None for an output without one.
    """
    if model is None:
        return None
    from shrink.engine.objective import masked_outputs

    if not masked_outputs(model):
        return None

    # Only the masks are fetched, so that TensorFlow computes nothing else of the model.
    @tf.function(reduce_retracing=True)
    def compute(x: Tensors) -> list[tf.Tensor | None]:
        return [mask_of(output) for output in tf.nest.flatten(model(x, training=False))]

    def masks(x: Tensors) -> Masks:
        found = compute(tf.nest.map_structure(tf.convert_to_tensor, x))
        return [None if mask is None else np.asarray(mask, bool) for mask in found]

    return masks


def unmasked_notes(model: keras.Model | None, graph: Subgraph) -> list[str]:
    """Return a sentence where an artifact may have had masks that nobody can know any more.

    Args:
        model: the Keras model behind the artifact; None where the artifact is all there is.
        graph: of the artifact. Masks are of outputs with an axis of steps, (1, steps, ...).
    """
    steps = any(len(graph.tensors[index].shape) == _SEQUENCE_AXES for index in graph.outputs)
    if model is not None or not steps:
        return []
    return [
        "metrics count every element of the outputs: an artifact alone does not tell padding from "
        "steps; evaluate the Keras model, or what a run made of it, where the model has masks"
    ]


_BATCH = 250


def ties_note(evaluation: Evaluation) -> list[str]:
    """Return a sentence on elements for which several classes have the highest output."""
    tied, elements = evaluation.ties
    if not tied:
        return []
    noun = "examples" if elements == evaluation.examples else "elements of examples"
    return [
        f"accuracy: for {tied:,} of {elements:,} {noun} several classes tie for the highest "
        "output; the first of them is counted, as argmax does"
    ]


def evaluate_artifact(
    tflite: Path | Runner,
    examples: Examples,
    task: Task,
    masks: Callable[[Tensors], Masks] | None = None,
    slicings: Sequence[Slicing] | None = None,
    *,
    with_intervals: bool = True,
) -> Evaluation:
    """Run the artifact on every example and score it.

    Args:
        tflite: the artifact, or what runs it; integer inputs and outputs are quantized and
            dequantized.
        examples: the test split.
        task: metrics, loss, and whether outputs are logits.
        masks: see `masks_of`, of the Keras model that the artifact is, or was made from: only the
            elements of an output that its mask leaves count, pooled over all examples.
        slicings: of the examples; they are then measured by class, too. None for no slices.
        with_intervals: whether intervals can be computed of metrics that are no means, which costs
            hundreds of resamples of them.

    Raises:
        DataError: the examples do not match its inputs or outputs, or no element counts.
    """
    batches = _run(tflite, examples, task, masks)
    return evaluate_batches(batches, len(examples), task, slicings, with_intervals=with_intervals)


def evaluate_batches(
    batches: Iterable[Batch],
    examples: int,
    task: Task,
    slicings: Sequence[Slicing] | None = None,
    *,
    with_intervals: bool = True,
) -> Evaluation:
    """Score outputs, wherever they come from.

    Args:
        batches: outputs, targets and masks, by output each.
        examples: how many there are in all.
        task, slicings, with_intervals: as in `evaluate_artifact`.
    """
    if task.detector is not None:
        from shrink.task.detector_scores import score_detector

        return score_detector(
            batches, examples, task, task.detector, slicings, with_intervals=with_intervals
        )
    whole_names = [n for n in task.metrics if n in task.functions or not is_mean(n)]
    means = [LOSS, *(name for name in task.metrics if name not in whole_names)]
    terms = {name: _terms(task, name) for name in means}
    parts: dict[Term, list[Sums]] = {term: [] for many in terms.values() for term in many.factors}
    whole, confusion = WholeSplit(task, whole_names), ConfusionTables(task)
    whole.groups = groups_of(slicings or ())
    classes = ClassCounts(task)
    ties = [(0, 0)]
    for outputs, own_targets, own_masks in batches:
        targets, present = without_ignored(task.losses, own_targets, own_masks)
        for (metric, i), sums_of in parts.items():
            sums_of.append(_sums(task, metric, i, outputs[i], targets[i], present[i]))
        ties += [
            count_ties(outputs[i], present[i])
            for name, i in parts
            if name == "accuracy" and outputs[i].ndim > 1 and outputs[i].shape[-1] > 1
        ]
        whole.add(outputs, targets, present)
        confusion.add(outputs, targets, present)
        if slicings is not None:
            classes.add(outputs, targets, present)
    pooled = {term: pool(sums_of) for term, sums_of in parts.items()}
    means_of = {name: one for name, many in terms.items() if (one := many.combined(pooled))}
    metrics: dict[str, float | None] = {name: one.value for name, one in means_of.items()}
    scores = {name: one.scores for name, one in means_of.items()}
    resampled = whole.resampled() if with_intervals else {}
    values = {name: None if one is None else one.value for name, one in resampled.items()}
    metrics |= values if with_intervals else whole.values()
    return Evaluation(
        {name: metrics[name] for name in (LOSS, *task.metrics)},
        scores,
        examples,
        {name: one for name, one in resampled.items() if one is not None},
        {name: whole.undefined(name) for name in whole_names if metrics[name] is None},
        Sliced()
        if slicings is None
        else measure_slices(task, slicings, classes, means_within(terms, parts), whole),
        confusion.described(),
        _by_output({term: one.value for term, one in pooled.items()} | whole.by_output(), task),
        (sum(tied for tied, _ in ties), sum(elements for _, elements in ties)),
    )


def _by_output(values: Mapping[Term, float], task: Task) -> dict[int, dict[str, float | None]]:
    """Return figures of single outputs by output; none where there is one output."""
    if len(task.losses) == 1:
        return {}
    found: dict[int, dict[str, float | None]] = {i: {} for i in range(len(task.losses))}
    for (name, i), value in values.items():
        found[i][name] = None if np.isnan(value) else float(value)
    return found


def _sums(
    task: Task, metric: str, index: int, outputs: Array, targets: Array, mask: Array | None
) -> Sums:
    """Return what a batch adds to a metric, or to the loss, of one output."""
    logits, loss = task.from_logits[index], task.losses[index]
    if metric == LOSS:
        return loss_sums(outputs, targets, loss, from_logits=logits, mask=mask)
    return sums(outputs, targets, metric, from_logits=logits, mask=mask, loss=loss)


def _run(
    tflite: Path | Runner, examples: Examples, task: Task, masks: Callable[[Tensors], Masks] | None
) -> Iterator[Batch]:
    """Yield outputs, targets and masks of all examples, batch by batch."""
    runner = load(tflite) if isinstance(tflite, Path) else tflite
    for start in range(0, len(examples), _BATCH):
        indices = np.arange(start, min(start + _BATCH, len(examples)))
        x, y = examples.arrays(indices)
        inputs = [np.asarray(part, np.float32) for part in leaves(x)]
        outputs = runner.predict(named(inputs, task.input_names), batch_size=_BATCH)
        targets = leaves(y)
        if task.detector is None:
            _check_count(outputs, targets)
        yield outputs, targets, masks(x) if masks else [None] * len(outputs)


def _terms(task: Task, name: str) -> Terms:
    if name == LOSS:
        return Terms({(LOSS, i): weight for i, weight in enumerate(task.loss_weights)})
    chosen = task.measured(name)
    return Terms({(name, i): 1.0 for i in chosen}, len(chosen))


def sample_inputs(
    names: Sequence[str], examples: Examples, fed: Sequence[str], count: int
) -> list[Array]:
    """Return the inputs of a few examples, spread evenly, to run an artifact with.

    Args:
        names: of the artifact's inputs, in its order.
        examples: any split; none of it gives no arrays.
        fed: names of the artifact's inputs, in the order of the examples' inputs.
        count: how many at most.

    Returns:
        A float32 array (n, ...) for each input, in the artifact's order.
    """
    if not len(examples):
        return []
    indices = np.unique(np.linspace(0, len(examples) - 1, count).astype(np.int64))
    x, _ = examples.arrays(indices)
    inputs = [np.asarray(part, np.float32) for part in leaves(x)]
    return ordered(named(inputs, fed), names)


_NOTICEABLE = 0.01
_QUANTIZED = ("INT8", "UINT8", "INT16")
_RESHAPING = ("RESHAPE", "EXPAND_DIMS", "SQUEEZE", "TRANSPOSE")


def clipped_inputs(
    graph: Subgraph, details: Sequence[TensorDetail], arrays: Sequence[Array]
) -> Iterator[tuple[str, str]]:
    """Yield message and hint for each input of which over 1 % of the values are clipped.

    A value counts where it is more than a step outside the range of the quantized input, or of the
    QUANTIZE that alone reads a float input, or what reshapes it.

    Args:
        graph: of the artifact.
        details: of its inputs.
        arrays: real values (n, ...) for each input, in this order.
    """
    readers_of = defaultdict[int, list[Operator]](list)
    for operator in graph.operators:
        for tensor in {*operator.inputs}:
            readers_of[tensor].append(operator)
    for index, detail, values in zip(graph.inputs, details, arrays, strict=True):
        stored, readers = graph.tensors[index], readers_of[index]
        for operator in graph.operators:  # in the order in which they run: a file may hold a cycle
            if len(readers) == 1 and readers[0] is operator and operator.name in _RESHAPING:
                readers = readers_of[operator.outputs[0]] if operator.outputs else []
        if readers and all(operator.name == "QUANTIZE" for operator in readers):
            stored = graph.tensors[readers[0].outputs[0]]
        if stored.dtype not in _QUANTIZED or len(stored.scales) != 1 or not values.size:
            continue
        limits, scale = np.iinfo(stored.dtype.lower()), stored.scales[0]
        low, high = ((end - stored.zero_points[0]) * scale for end in (limits.min, limits.max))
        share = np.mean((values < low - scale) | (values > high + scale))
        if share <= _NOTICEABLE:
            continue
        hint = "scale values as in training: data.normalize"
        if values.min() >= 0 and 1 < values.max() <= 255:
            hint += ", such as --normalize-scale 1/255"
        else:
            hint += "; if they are, quantize again with calibration examples of their range"
        whole = np.all(values == np.rint(values))
        if whole and limits.min <= values.min() and values.max() <= limits.max:
            hint += (
                f"; if they are quantized already ({stored.dtype.lower()} as firmware stores it), "
                f"make them real: --normalize-scale {scale:.9g} "
                f"--normalize-offset {low - limits.min * scale:.9g}"
            )
        yield (
            f"{100 * share:.1f} % of the values of the input {detail.name} are clipped: they are "
            f"{values.min():.4g} to {values.max():.4g}, and the quantized input holds {low:.4g} to "
            f"{high:.4g}",
            hint,
        )


def _check_count(outputs: list[Array], targets: list[Array]) -> None:
    if len(outputs) != len(targets):
        raise DataError(
            f"{len(targets)} targets for an artifact with {len(outputs)} outputs",
            subject="data.targets",
            hint="name one array for each output, in the model's order",
        )


_MOST_EXAMPLES_READ = 20_000
"""Targets that are no plain labels are read with their inputs; beyond this it would take long."""
_MOST_NAMES = 20
_RANGE_EXAMPLES = 64


GUESSED = ("accuracy", "binary_accuracy", "mean_squared_error")
"""Metrics for which the best constant answer is known."""


def describe_guess(dataset: Dataset, metric: str, model: keras.Model | None) -> Guess:
    """Return what the report needs to tell whether a model is better than guessing, and why not.

    Args:
        dataset: what the metric was measured on.
        metric: the first of `GUESSED` that was measured, else the main metric.
        model: the Keras model, where there is one.

    Returns:
        it; its value is None where that is not known, and `rescales` without a Keras model.
    """
    # Positions that do not count, which a plain count would count.
    masked = model is not None and any(
        getattr(tensor, "_keras_mask", None) is not None for tensor in model.outputs
    )
    low, high = _input_range(dataset.test)
    return Guess(
        metric=metric,
        value=None if masked else best_constant(dataset.test, metric),
        classes=tuple(dataset.class_names[:_MOST_NAMES]),
        num_classes=dataset.num_classes,
        low=low,
        high=high,
        rescales=None if model is None else _rescales(model),
        only_in_test=_only_in(dataset, dataset.test, dataset.train),
        only_in_train=_only_in(dataset, dataset.train, dataset.test),
    )


def best_constant(examples: Examples, metric: str) -> float | None:
    """Return what the best answer that is the same for every example scores on these.

    For `accuracy` that is the share of the commonest class, over all positions of all examples;
    for `binary_accuracy` the mean over the labels of the share of the commoner value; for
    `mean_squared_error` the mean over the outputs of the variance. None for other metrics, for
    several outputs, and where targets would have to be read from very many examples.
    """
    labels = examples.labels
    if metric == "accuracy" and labels is not None and len(labels):
        return _largest_share(Counter(np.asarray(labels).ravel().tolist()))
    if metric not in GUESSED:
        return None
    one_output = len(leaves(examples.target_spec)) == 1
    if not one_output or not 0 < len(examples) <= _MOST_EXAMPLES_READ:
        return None
    if metric == "accuracy":
        # Count classes: of labels in whole numbers, and of one-hot labels along the last axis.
        counts: Counter[int] = Counter()
        for batch in _targets(examples):
            classes = batch.argmax(axis=-1) if _one_hot(batch) else np.rint(batch).astype(np.int64)
            counts.update(classes.ravel().tolist())
        return _largest_share(counts)
    mean, variance = _moments(examples)
    if metric == "mean_squared_error":
        return float(np.mean(variance))
    return float(np.mean(np.maximum(mean, 1 - mean)))


def _targets(examples: Examples) -> Iterator[Array]:
    step = reading_batch(examples.input_spec, examples.target_spec)
    for start in range(0, len(examples), step):
        indices = np.arange(start, min(start + step, len(examples)))
        yield np.asarray(leaves(examples.arrays(indices)[1])[0])


def _one_hot(batch: Array) -> bool:
    """Whether the last axis is one of classes: labels of sequences do not all add up to 1."""
    if batch.ndim < 2 or batch.shape[-1] < 2:
        return False
    return bool(np.all(batch >= 0) and np.allclose(batch.sum(axis=-1), 1))


def _largest_share(counts: Counter[int]) -> float:
    return max(counts.values()) / sum(counts.values())


def _moments(examples: Examples) -> tuple[Array, Array]:
    """Return mean and variance of each element of the targets, float64.

    Batches are joined by their means and squared deviations (Chan, Golub and LeVeque 1983): sums
    of squares would lose the variance of targets that are far from 0.
    """
    count, mean, squares = 0, np.float64(0), np.float64(0)
    for batch in _targets(examples):
        values = batch.astype(np.float64)
        size, own = len(values), values.mean(axis=0)
        apart = own - mean
        total = count + size
        squares = squares + ((values - own) ** 2).sum(axis=0) + apart**2 * count * size / total
        mean = mean + apart * size / total
        count = total
    return np.asarray(mean), np.asarray(squares / count)


def _input_range(examples: Examples) -> tuple[float | None, float | None]:
    if not len(examples):
        return None, None
    spread = np.unique(np.linspace(0, len(examples) - 1, _RANGE_EXAMPLES).astype(np.int64))
    first = np.asarray(leaves(examples.arrays(spread)[0])[0])
    if first.size == 0 or not np.issubdtype(first.dtype, np.number):
        return None, None
    low, high = float(np.min(first)), float(np.max(first))
    return (low, high) if np.isfinite(low) and np.isfinite(high) else (None, None)


def _rescales(model: keras.Model) -> bool:
    scaling = (keras.layers.Rescaling, keras.layers.Normalization)
    return any(isinstance(layer, scaling) for layer in parts_of(model))


def _only_in(dataset: Dataset, here: Examples, there: Examples) -> tuple[str, ...]:
    if here.labels is None or there.labels is None or not (dataset.class_names and len(there)):
        return ()
    names = dataset.class_names
    missing = sorted(set(np.unique(here.labels).tolist()) - set(np.unique(there.labels).tolist()))
    return tuple(names[i] if 0 <= i < len(names) else str(i) for i in missing)
