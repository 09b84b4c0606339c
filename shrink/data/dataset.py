"""The splits of a data set, and what is left out of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from shrink.base.errors import DataError, ReportWarning
from shrink.base.foreign import Json
from shrink.contract.result import SharedExamples
from shrink.data.examples import SPLIT_NAMES, Examples
from shrink.data.membership import Membership


@dataclass(frozen=True)
class LeftOut:
    """What was left out of a data set, for what earlier runs trained and tested on.

    Attributes:
        masks: which examples of each split stay, bool (n,).
        comparable: whether all earlier examples could be compared with these.
        trained_on: distinct examples that the earlier runs trained on.
    """

    masks: dict[str, np.ndarray]
    comparable: bool
    trained_on: int

    def count(self, split: str) -> int:
        """Return how many examples of a split were left out."""
        return int((~self.masks[split]).sum())


def left_out(own: Membership, earlier: Sequence[Membership]) -> LeftOut:
    """Return which examples stay, where a model comes from runs on other splits.

    No test example is one that was trained on, and what is trained on now is none that was tested
    on then, unless nothing else is there to train on.

    Raises:
        DataError: nothing is left to test on.
    """
    alike = [one for one in earlier if one.identified_by == own.identified_by]
    empty = np.zeros(0, np.uint64)
    trained = np.unique(np.concatenate([empty, *(one.trained() for one in alike)]))
    tested = np.unique(np.concatenate([empty, *(one.splits["test"] for one in alike)]))
    masks = {split: ~np.isin(own.splits[split], tested) for split in SPLIT_NAMES}
    masks["test"] = ~np.isin(own.splits["test"], trained)
    if len(own.splits["test"]) and not masks["test"].any():
        raise DataError(
            f"the model was trained on all {len(own.splits['test']):,} test examples",
            subject="data",
            hint="give examples that it has not seen, or the data that it was trained on",
        )
    for split in ("train", "validation"):
        if not masks[split].any():
            masks[split] = np.ones_like(masks[split])
    return LeftOut(masks, len(alike) == len(earlier), len(trained))


@dataclass(frozen=True)
class ExtremeLabel:
    """One of the two smallest or largest class numbers of targets with one for each position.

    There are two, as a loss may ignore one class (`ignore_class`).

    Attributes:
        split: where it is.
        value: the class number.
        where: the file, or the array's name with the row.
    """

    split: str
    value: int
    where: str


@dataclass(frozen=True)
class Dataset:
    """The splits of a data set.

    Attributes:
        class_names: name of each integer label, empty where targets are real.
        num_classes: number of classes, None where targets are real.
        notes: what a reader of the report should know of how the data was read.
        input_names: of the input arrays, in their order; empty where the source has no names.
        target_names: of the target arrays, likewise.
        input_arrays: once the arrays have the names of a model's inputs: what the recipe calls
            them, in the same order.
        target_arrays: likewise.
        given: splits that the source has of its own; the others were taken by the seed.
        known_membership: what is in each split, where the source knows it without reading examples.
        extremes: of targets with a whole number for each position of an example, such as masks;
            empty where the source did not look.
        columns: of a table, those of the input, in its order.
        front_end: of texts, what makes ids of them, the vocabulary included; None for other data.
        has_boxes: whether the target is boxes, as `shrink.data.boxes` has them.
        left_out: what was left out for the sake of earlier runs.
        shared: returns the examples that splits have in common, before any is left out.
        slice_values: by split, then by slicing: a text or a number for each example, (n,), of the
            slicings of `data.slices` that are no function; see `shrink.data.slices`.
        membership: returns which examples are in which split, after that.
        warnings: what is probably wrong with the data or with how it was read.
    """

    train: Examples
    validation: Examples
    test: Examples
    class_names: tuple[str, ...]
    num_classes: int | None
    notes: tuple[str, ...] = ()
    input_names: tuple[str, ...] = ()
    target_names: tuple[str, ...] = ()
    input_arrays: tuple[str, ...] = ()
    target_arrays: tuple[str, ...] = ()
    given: frozenset[str] = frozenset()
    known_membership: Membership | None = None
    extremes: tuple[ExtremeLabel, ...] = ()
    columns: tuple[str, ...] = ()
    front_end: Mapping[str, Json] | None = None
    has_boxes: bool = False
    left_out: LeftOut | None = None
    shared: Callable[[], Sequence[SharedExamples]] = list
    slice_values: Mapping[str, Mapping[str, np.ndarray]] = field(default_factory=dict)
    membership: Callable[[], Membership] | None = None
    warnings: tuple[ReportWarning, ...] = ()

    @property
    def reference(self) -> Examples:
        """Examples that shapes and kinds of values are read from: of train, else of test."""
        return self.train if len(self.train) else self.test
