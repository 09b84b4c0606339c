"""How a recipe's `data` section is opened."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from shrink.data.augment.apply import Augmentation
from shrink.data.cached import cached
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset, Subset, left_out
from shrink.data.examples import PARTS, Examples
from shrink.data.listing import named_classes
from shrink.data.membership import Membership, membership_of, read_membership
from shrink.data.registry import ask_source
from shrink.data.view import AugmentedView, View


def open_dataset_for(
    config: DataConfig,
    seed: int,
    image_input: Callable[[], tuple[int, int, int] | None],
    earlier: Sequence[Path] = (),
) -> Dataset:
    """Open a data set with pictures brought to the shape that a model takes.

    Args:
        config: the `data` section.
        seed: decides splits that the source does not give.
        image_input: returns height, width and channels of the model's one image input, or None;
            called only where the section leaves the shape of pictures open.
        earlier: see `open_dataset`.

    Raises:
        DataError: see `open_dataset`.
    """
    if config.source != "images":
        return open_dataset(config, seed, earlier)
    from shrink.data.sources.images import fitted_to

    fitted, note = fitted_to(config, image_input)
    dataset = open_dataset(fitted, seed, earlier)
    return replace(dataset, notes=(note, *dataset.notes)) if note else dataset


def open_dataset(config: DataConfig, seed: int, earlier: Sequence[Path] = ()) -> Dataset:
    """Open what a recipe's `data` section names, split and transformed as it says.

    Args:
        config: the `data` section; its path is absolute or relative to the working folder.
        seed: decides splits that the source does not give.
        earlier: what the model's earlier runs trained and tested on, where it was not these parts
            (`shrink.data.membership`).

    Raises:
        DataError: missing, unreadable, refused, or inconsistent data.
    """
    dataset: Dataset = ask_source(config.source, "open_source", Dataset, config, seed)
    names = named_classes(dataset.class_names, dataset.num_classes, config.classes, config.path)
    membership = functools.cache(functools.partial(_membership, dataset, config, seed))
    out = left_out(membership(), list(map(read_membership, earlier))) if earlier else None
    dataset = replace(
        dataset,
        class_names=names,
        # A class that data.classes names and no example has is still a class.
        num_classes=dataset.num_classes and max(dataset.num_classes, len(names)),
        train=cached(dataset.train, "train", config, seed),
        validation=cached(dataset.validation, "validation", config, seed),
        left_out=out,
        membership=membership if out is None else lambda: membership().kept(out.masks),
    )
    if out is not None:
        dataset = replace(
            dataset,
            train=_without(dataset.train, out.masks["train"]),
            validation=_without(dataset.validation, out.masks["validation"]),
            test=_without(dataset.test, out.masks["test"]),
        )
    inputs_are_targets = config.target == "input"
    if config.normalize is None and config.augment is None and not inputs_are_targets:
        return dataset
    classes = None if inputs_are_targets else dataset.num_classes

    def view(examples: Examples) -> Examples:
        return View(examples, config.normalize, inputs_are_targets)

    train = view(dataset.train)
    if config.augment is not None:
        augmentation = Augmentation(config.augment, dataset.train.input_spec, classes)
        train = AugmentedView(dataset.train, config.normalize, inputs_are_targets, augmentation)
    return replace(
        dataset,
        train=train,
        validation=view(dataset.validation),
        test=view(dataset.test),
        class_names=() if inputs_are_targets else dataset.class_names,
        num_classes=classes,
        target_names=dataset.input_names if inputs_are_targets else dataset.target_names,
    )


def _membership(dataset: Dataset, config: DataConfig, seed: int) -> Membership:
    if dataset.known_membership is not None:
        return dataset.known_membership
    return membership_of(_parts(dataset), config, seed)


def _parts(dataset: Dataset) -> dict[str, Examples]:
    return {part: getattr(dataset, part) for part in PARTS}


def _without(examples: Examples, mask: np.ndarray) -> Examples:
    return examples if mask.all() else Subset(examples, np.flatnonzero(mask))
