"""One output of a model on some examples, and how scores of elements are pooled.

All in NumPy and float64: what training minimises is in `shrink.engine.losses`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from shrink.base.errors import DataError, RecipeError, did_you_mean, hint_for
from shrink.base.lazy import np
from shrink.base.losses import kind_of_loss, log_probabilities, takes_logits
from shrink.base.types import Array


@dataclass(frozen=True)
class Sums:
    """What examples hold of one metric of one output.

    Attributes:
        values: sum of the metric over an example's valid elements, (n,).
        valid: how many these are, (n,).
    """

    values: Array
    valid: Array


@dataclass(frozen=True)
class Pooled:
    """A metric of all examples.

    Attributes:
        value: the mean over the valid elements of all examples.
        scores: each example's part, (n,); their mean is `value`.
    """

    value: float
    scores: Array


def sum_up(values: Array, mask: Array | None) -> Sums:
    """Return each example's sum over its valid elements, and their number.

    Args:
        values: of each element, (n, ...).
        mask: bool, of the leading axes of `values`; None where every element counts.

    Raises:
        DataError: the mask has not the shape of the values.
    """
    valid = np.ones(values.shape)
    if mask is not None:
        valid = _spread(mask, values.shape).astype(np.float64)
    count = len(values)
    # What is masked may be anything, also infinite.
    present = np.where(valid > 0, values, 0.0)
    return Sums(present.reshape(count, -1).sum(axis=1), valid.reshape(count, -1).sum(axis=1))


def pool(parts: Sequence[Sums]) -> Pooled:
    """Return the mean over all valid elements of all examples, as Keras' `evaluate` has it.

    Such a ratio of sums is no mean over examples. An example's score is its linearised part,
    `ratio + (sum - ratio * valid) / mean(valid)` (the infinitesimal jackknife): the mean of these
    is the ratio, and their standard error, also that of paired differences, the ratio's own.
    Where all examples have as many elements it is simply the example's own mean.

    Args:
        parts: of the examples, batch by batch.

    Raises:
        DataError: no element of any example counts.
    """
    values = np.concatenate([part.values for part in parts])
    valid = np.concatenate([part.valid for part in parts])
    total = valid.sum()
    if not total:
        raise DataError(
            "no element of any example counts: the model masks all of them",
            hint="shrink data check; look for padding in place of examples",
        )
    if np.all(valid == valid[0]):
        scores = values / valid[0]
        return Pooled(float(np.mean(scores)), scores)
    ratio = values.sum() / total
    scores = ratio + (values - ratio * valid) * (len(valid) / total)
    return Pooled(float(ratio), scores)


@dataclass(frozen=True)
class Output:
    """What one output gave for some examples, and what it should have given.

    Attributes:
        outputs: float64 (n, ..., k), dequantized; (n, 1) for a single number.
        targets: labels (n, ...) or (n, ..., 1), or the outputs' shape for one-hot labels, several
            labels, probabilities and real targets.
        mask: bool, of the leading axes of the outputs; None where every element counts.
        from_logits: whether the outputs of a classifier are logits, not probabilities.
        loss: key of the output's loss; empty where that is not known.
        classes: names of the classes by index; empty where there are none.
        groups: the slices of each example by name, (n,) or (n, slicings); None where the data has
            none.
        arguments: of the loss or metric that is computed.
    """

    outputs: Array
    targets: Array
    mask: Array | None = None
    from_logits: bool = False
    loss: str = ""
    classes: Sequence[str] = ()
    groups: Array | None = None
    arguments: Mapping[str, object] = field(default_factory=dict)

    def given(self, arguments: Mapping[str, object]) -> Output:
        """Return it with the arguments of a loss or metric."""
        return replace(self, arguments=arguments)

    def number(self, name: str) -> float:
        """Return an argument that is a number."""
        return float(str(self.arguments[name]))

    @property
    def count(self) -> int:
        """Number of examples."""
        return len(self.outputs)

    @property
    def is_single(self) -> bool:
        """Whether there is one number for two classes."""
        return self.outputs.shape[-1] == 1

    @property
    def several_labels(self) -> bool:
        """Whether each of several numbers is a label of its own."""
        labels = bool(self.loss) and kind_of_loss(self.loss) == "labels"
        return labels and not self.is_single

    @property
    def is_one_hot(self) -> bool:
        """Whether targets are one-hot labels or probabilities, and no class numbers."""
        return self.targets.shape == self.outputs.shape and not self.is_single

    @property
    def values(self) -> Array:
        """Targets of the outputs' shape, float64."""
        return _of_shape(self.targets, self.outputs.shape).astype(np.float64)

    @property
    def numbers(self) -> Array:
        """Class numbers, int64 (n, ..., 1).

        Raises:
            DataError: there is no such class.
        """
        if self.is_one_hot:
            return self.targets.argmax(axis=-1)[..., None]
        labels = _of_shape(self.targets, (*self.outputs.shape[:-1], 1)).astype(np.int64)
        classes = self.outputs.shape[-1]
        if labels.size and not 0 <= labels.min() <= labels.max() < classes:
            raise DataError(
                f"labels from {labels.min()} to {labels.max()} for a model with {classes} classes",
                hint="shrink data check",
            )
        return labels

    @property
    def shares(self) -> Array:
        """Targets as shares of each class, float64 (n, ..., k)."""
        if self.is_one_hot:
            return np.asarray(self.targets, np.float64)
        return np.asarray(np.eye(self.outputs.shape[-1])[self.numbers[..., 0]])

    @property
    def probabilities(self) -> Array:
        """Probabilities, (n, ..., k): of several classes they add up to 1."""
        if self.is_single or self.several_labels:
            return sigmoid(self.outputs) if self.from_logits else self.outputs
        return softmax(self.outputs) if self.from_logits else normalised(self.outputs)

    @property
    def reconstruction(self) -> Array:
        """What the loss compares with the targets, (n, ..., k)."""
        if not (self.loss and self.from_logits and takes_logits(self.loss)):
            return self.outputs
        return (
            softmax(self.outputs) if kind_of_loss(self.loss) == "classes" else sigmoid(self.outputs)
        )

    @property
    def valid(self) -> Array:
        """Which elements count, bool (n, elements): positions of the outputs but the last axis."""
        shape = self.outputs.shape[:-1]
        full = np.ones(shape, bool) if self.mask is None else _spread(self.mask, shape)
        return full.reshape(self.count, -1)

    @property
    def example(self) -> Array:
        """The example of each element that counts, int64 (m,)."""
        return np.repeat(np.arange(self.count), self.valid.sum(axis=1))

    def elements(self) -> Array:
        """Return the outputs of the elements that count, (m, k)."""
        return self.outputs.reshape(self.count, -1, self.outputs.shape[-1])[self.valid]

    def element_targets(self) -> Array:
        """Return the targets of the elements that count, of the outputs' shape, (m, k)."""
        return self.values.reshape(self.count, -1, self.outputs.shape[-1])[self.valid]

    def element_classes(self) -> Array:
        """Return the class number of each element that counts, int64 (m,)."""
        return self.numbers.reshape(self.count, -1)[self.valid]


def class_number(
    wanted: str, names: Sequence[str], count: int, key: str = "", metrics: Iterable[str] = ()
) -> int:
    """Return the number of a class that a recipe names.

    Args:
        wanted: its name or number.
        names: of the classes by number; empty where they have none.
        count: how many there are.
        key: of the metric, for messages.
        metrics: what there is: a key that is no metric is taken for a class of one.

    Raises:
        RecipeError: there is no such class.
    """
    if wanted in names:
        return names.index(wanted)
    if wanted.isdecimal() and int(wanted) < count:
        return int(wanted)
    hint = hint_for(wanted, names) or f"classes are 0 to {count - 1}"
    near = None if wanted.isdecimal() or did_you_mean(wanted, names) else did_you_mean(key, metrics)
    raise RecipeError(
        f"there is no class {wanted!r} among the {count} of the model",
        subject=f"task.metrics {key}".rstrip(),
        hint=f"did you mean the metric {near}? Of classes: {hint}" if near else hint,
    )


def output_of(
    outputs: Array,
    targets: Array,
    *,
    mask: Array | None = None,
    from_logits: bool = False,
    loss: str = "",
    classes: Sequence[str] = (),
    groups: Array | None = None,
) -> Output:
    """Return what an output gave, in float64 and with an axis for its numbers; see `Output`.

    Raises:
        DataError: other numbers of outputs and targets.
    """
    outputs, targets = np.asarray(outputs, np.float64), np.asarray(targets)
    outputs = outputs[:, None] if outputs.ndim == 1 else outputs
    if len(targets) != len(outputs):
        raise DataError(f"{len(outputs)} outputs for {len(targets)} targets")
    return Output(outputs, targets, mask, from_logits, loss, classes, groups)


def log_softmax(outputs: Array) -> Array:
    """Return the logarithms of the probabilities that logits stand for, (..., k)."""
    return np.asarray(log_probabilities(np, outputs, from_logits=True))


def softmax(outputs: Array) -> Array:
    """Return the probabilities that logits of several classes stand for, (..., k)."""
    return np.asarray(np.exp(log_softmax(outputs)))


def sigmoid(outputs: Array) -> Array:
    """Return the probabilities that single logits stand for."""
    return np.asarray(np.exp(-np.logaddexp(0.0, -outputs)))


def normalised(outputs: Array) -> Array:
    """Return probabilities that add up to 1, (..., k); those of an integer softmax need not."""
    total = outputs.sum(axis=-1, keepdims=True)
    return np.asarray(outputs / np.where(total == 0, 1.0, total))


def _of_shape(targets: Array, shape: tuple[int, ...]) -> Array:
    """Return targets in the shape of the outputs.

    Raises:
        DataError: they have another number of elements.
    """
    if targets.size != np.prod(shape):
        raise DataError(f"targets of shape {targets.shape} do not match {shape}")
    return targets.reshape(shape)


def _spread(mask: Array, shape: tuple[int, ...]) -> Array:
    """Return a mask of leading axes as one of all of them, bool."""
    if mask.shape != shape[: mask.ndim]:
        raise DataError(f"a mask of shape {mask.shape} does not suit {shape}")
    rest = (1,) * (len(shape) - mask.ndim)
    return np.broadcast_to(np.asarray(mask, bool).reshape(mask.shape + rest), shape)
