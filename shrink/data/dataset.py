"""The parts of a data set, and what is known of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shrink.data.examples import Examples
from shrink.data.left_out import LeftOut
from shrink.data.membership import Membership


@dataclass(frozen=True)
class Dataset:
    """The parts of a data set.

    Attributes:
        class_names: name of each integer label, empty where targets are real.
        num_classes: number of classes, None where targets are real.
        notes: what a reader of the report should know of how the data was read.
        input_names: of the input arrays, in their order; empty where the source has no names.
        target_names: of the target arrays, likewise.
        input_arrays: once the arrays have the names of a model's inputs: what the recipe calls
            them, in the same order.
        target_arrays: likewise.
        given: parts that the source has of its own; the others were taken by the seed.
        known_membership: what is in each part, where the source knows it without reading examples.
        left_out: what was left out for the sake of earlier runs.
        membership: returns which examples are in which part, after that.
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
    left_out: LeftOut | None = None
    membership: Callable[[], Membership] | None = None
