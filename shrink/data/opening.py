"""Opens the `data` section of a recipe."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from shrink.base.types import leaves
from shrink.data.augment import Augmentation
from shrink.data.cache import cached
from shrink.data.config import DataConfig, source_of
from shrink.data.dataset import Dataset, left_out
from shrink.data.examples import SPLIT_NAMES, Examples
from shrink.data.folders import named_classes
from shrink.data.membership import (
    Membership,
    membership_of,
    read_membership,
    shared_examples,
    without_shared,
)
from shrink.data.views import View


def open_dataset_for(
    config: DataConfig,
    seed: int,
    image_input: Callable[[], tuple[int, int, int] | None],
    earlier: Sequence[Path] = (),
) -> Dataset:
    """Open a data set with images brought to the shape that a model takes.

    Args:
        config: the `data` section.
        seed: decides splits that the source does not give.
        image_input: returns height, width and channels of the model's one image input, or None;
            called only where the section leaves the shape of images open.
        earlier: see `open_dataset`.

    Raises:
        DataError: see `open_dataset`.
    """
    fitted, note = source_of(config.source).fit(config, image_input)
    dataset = open_dataset(fitted, seed, earlier)
    return replace(dataset, notes=(note, *dataset.notes)) if note else dataset


def open_dataset(config: DataConfig, seed: int, earlier: Sequence[Path] = ()) -> Dataset:
    """Open what a recipe's `data` section names, split and transformed as it says.

    Args:
        config: the `data` section; its path is absolute or relative to the working folder.
        seed: decides splits that the source does not give.
        earlier: what the model's earlier runs trained and tested on, where it was not these splits
            (`shrink.data.membership`).

    Raises:
        DataError: missing, unreadable, refused, or inconsistent data.
    """
    dataset: Dataset = source_of(config.source).open(config, seed)
    names = named_classes(dataset.class_names, dataset.num_classes, config.classes, config.path)
    shapes = [spec.shape for spec in leaves(dataset.train.target_spec)]
    if config.classes and not names and shapes == [(len(config.classes),)]:
        names = tuple(config.classes)  # one-hot rows, or several labels for each example
    given = dataset

    @functools.cache
    def as_given() -> Membership:
        splits = {split: getattr(given, split) for split in SPLIT_NAMES}
        return given.known_membership or membership_of(splits, config, seed)

    masks = without_shared(as_given()) if config.overlap == "leave_out" else None
    out = None
    if earlier:
        own = as_given() if masks is None else as_given().kept(masks)
        out = left_out(own, list(map(read_membership, earlier)))
        masks = out.masks if masks is None else _both(masks, out.masks)
    dataset = replace(
        dataset,
        class_names=names,
        # A class that data.classes names and no example has is still a class.
        num_classes=dataset.num_classes and max(dataset.num_classes, len(names)),
        train=cached(dataset.train, "train", config, seed),
        validation=cached(dataset.validation, "validation", config, seed),
        left_out=out,
        shared=lambda: shared_examples(as_given()),
        membership=as_given if masks is None else lambda: as_given().kept(masks),
    )
    if masks is not None:
        dataset = replace(
            dataset,
            train=_without(dataset.train, masks["train"]),
            validation=_without(dataset.validation, masks["validation"]),
            test=_without(dataset.test, masks["test"]),
            slice_values={
                split: {by: values[masks[split]] for by, values in of_split.items()}
                for split, of_split in dataset.slice_values.items()
            },
        )
    inputs_are_targets = config.target != "label"
    if config.normalize is None and config.augment is None and not inputs_are_targets:
        return dataset
    classes = None if inputs_are_targets else dataset.num_classes

    view = functools.partial(View, normalize=config.normalize, target_is_input=inputs_are_targets)
    augmentation = None
    if config.augment is not None:
        specs = dataset.train.input_spec, dataset.train.target_spec
        targets = () if inputs_are_targets else specs[1]
        augmentation = Augmentation(config.augment, specs[0], classes, targets, dataset.has_boxes)
    return replace(
        dataset,
        train=view(dataset.train, augmentation=augmentation),
        validation=view(dataset.validation),
        test=view(dataset.test),
        class_names=() if inputs_are_targets else dataset.class_names,
        num_classes=classes,
        target_names=dataset.input_names if inputs_are_targets else dataset.target_names,
    )


def _both(masks: dict[str, np.ndarray], of_rest: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return one mask for each split of masks and of masks of what these leave."""
    both = {split: mask.copy() for split, mask in masks.items()}
    for split, rest in of_rest.items():
        both[split][np.flatnonzero(both[split])] = rest
    return both


def _without(examples: Examples, mask: np.ndarray) -> Examples:
    return examples if mask.all() else View(examples, rows=np.flatnonzero(mask))
