"""A data set without what would make its figures flatter: examples that a model was trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from shrink.base.errors import DataError
from shrink.data.examples import PARTS, Examples, PreparedExamples
from shrink.data.membership import Membership


@dataclass(frozen=True)
class LeftOut:
    """What was left out of a data set, for what earlier runs trained and tested on.

    Attributes:
        masks: which examples of each part stay, bool (n,).
        comparable: whether all earlier examples could be compared with these.
        trained_on: distinct examples that the earlier runs trained on.
    """

    masks: dict[str, np.ndarray]
    comparable: bool
    trained_on: int

    def count(self, part: str) -> int:
        """Return how many examples of a part were left out."""
        return int((~self.masks[part]).sum())


def left_out(own: Membership, earlier: Sequence[Membership]) -> LeftOut:
    """Return which examples stay, where a model comes from runs on other splits.

    No test example is one that was trained on, and what is trained on now is none that was tested
    on then, unless nothing else is there to train on.

    Raises:
        DataError: nothing is left to test on.
    """
    alike = [one for one in earlier if one.told_by == own.told_by]
    empty = np.zeros(0, np.uint64)
    trained = np.unique(np.concatenate([empty, *(one.trained() for one in alike)]))
    tested = np.unique(np.concatenate([empty, *(one.parts["test"] for one in alike)]))
    masks = {part: ~np.isin(own.parts[part], tested) for part in PARTS}
    masks["test"] = ~np.isin(own.parts["test"], trained)
    if len(own.parts["test"]) and not masks["test"].any():
        raise DataError(
            f"the model was trained on all {len(own.parts['test']):,} test examples",
            subject="data",
            hint="give examples that it has not seen, or the data that it was trained on",
        )
    for part in ("train", "validation"):
        if not masks[part].any():
            masks[part] = np.ones_like(masks[part])
    return LeftOut(masks, len(alike) == len(earlier), len(trained))


class Subset:
    """Some examples of others.

    Args:
        base: the others.
        indices: int64 (n,), which of them.
    """

    def __init__(self, base: Examples, indices: np.ndarray) -> None:
        self._base = base
        self._indices = indices
        self.labels: np.ndarray | None = None if base.labels is None else base.labels[indices]
        self.input_spec = base.input_spec
        self.target_spec = base.target_spec

    def __len__(self) -> int:
        return len(self._indices)

    def prepare(self) -> None:
        """Have the examples below do what they do before their first batch."""
        if isinstance(self._base, PreparedExamples):
            self._base.prepare()

    def load(self, indices: tf.Tensor) -> tuple[Any, Any]:
        """Return a batch as tensors."""
        return self._base.load(tf.gather(tf.constant(self._indices, tf.int64), indices))

    def arrays(self, indices: np.ndarray) -> tuple[Any, Any]:
        """Return a batch as arrays."""
        return self._base.arrays(self._indices[indices])

    def explain(self, indices: np.ndarray) -> DataError | None:
        """Return the error of the first example that cannot be read, or None."""
        return self._base.explain(self._indices[indices])
