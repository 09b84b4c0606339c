"""Every loss in NumPy and float64, for the `loss` of the report."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shrink.base.losses import ignored_class, loss_of
from shrink.base.scores.output import Sums, output_of, sum_up
from shrink.base.types import Array


def loss_sums(
    outputs: Array, targets: Array, key: str, *, from_logits: bool, mask: Array | None = None
) -> Sums:
    """Return the sum of each example's loss over its valid elements, and their number.

    Args:
        outputs, targets, from_logits, mask: see `Output`.
        key: of the loss.

    Raises:
        DataError: targets or a mask that do not match the outputs, or labels that are out of range.
        StageError: a user's function raises, or returns no loss.
    """
    loss = loss_of(key)
    given = output_of(outputs, targets, mask=mask, from_logits=from_logits, loss=key)
    if loss.function is not None:
        from shrink.engine.losses import user_loss_values

        values = user_loss_values(key, given.targets, given.outputs, "outputs of the artifact")
        return sum_up(values, mask)
    if loss.info.of_numbers and not given.is_one_hot:
        y = given.numbers
    else:
        y = given.shares if loss.kind == "classes" else given.values
    if loss.info.is_entropy:
        return sum_up(np.asarray(loss.computed(np, y, given.outputs, from_logits)), mask)
    x = given.reconstruction
    if not loss.info.by_example:
        return sum_up(np.asarray(loss.computed(np, y, x)), mask)
    if mask is not None:
        counts = mask.reshape(mask.shape + (1,) * (x.ndim - mask.ndim))
        # What is masked may be anything, also infinite.
        x, y = np.where(counts, x, 0.0), np.where(counts, y, 0.0)
    return Sums(np.asarray(loss.computed(np, y, x)), np.ones(len(x)))


def without_ignored(
    losses: Sequence[str], targets: Sequence[Array], masks: Sequence[Array | None]
) -> tuple[list[Array], list[Array | None]]:
    """Return targets and masks of outputs whose losses leave a class out: it counts for nothing.

    Args:
        losses: key of each output's loss.
        targets: class numbers (n, ...) or (n, ..., 1) where a class is left out.
        masks: bool, of the leading axes of each output, or None.

    Returns:
        Targets with class 0 where one is left out, and masks that do not count these elements.
    """
    kept, present = list(targets), list(masks)
    for index, key in enumerate(losses):
        left_out = ignored_class(key)
        if left_out is None:
            continue
        labels = np.asarray(targets[index])
        counts = labels != left_out
        kept[index] = np.where(counts, labels, 0)
        counts = counts[..., 0] if counts.ndim > 1 and counts.shape[-1] == 1 else counts
        before = masks[index]
        if before is not None:
            before = before.reshape(before.shape + (1,) * (counts.ndim - before.ndim))
            counts = counts & np.asarray(before, bool)
        present[index] = counts
    return kept, present
