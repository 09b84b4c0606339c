"""Losses and their arguments, as recipes write them and as keys have them."""

from __future__ import annotations

import pytest

from shrink.base.losses import (
    ignored_class,
    is_loss_mapping,
    key_of_loss,
    kind_of_loss,
    loss_of,
)


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ("huber", "huber"),
        ({"name": "huber", "delta": 1}, "huber"),
        ({"name": "huber", "delta": 2}, "huber(delta=2)"),
        ("huber(delta=2.0)", "huber(delta=2)"),
        ("cosine", "cosine_similarity"),
        (
            {"name": "categorical_focal_crossentropy", "gamma": 3, "alpha": [0.1, 0.9]},
            "categorical_focal_crossentropy(alpha=0.1 0.9, gamma=3)",
        ),
        (
            {"name": "binary_focal_crossentropy", "apply_class_balancing": True},
            "binary_focal_crossentropy(apply_class_balancing=true)",
        ),
        (
            {"name": "sparse_categorical_crossentropy", "ignore_class": 255},
            "sparse_categorical_crossentropy(ignore_class=255)",
        ),
        (
            {"name": "sparse_categorical_crossentropy", "ignore_class": 255.0},
            "sparse_categorical_crossentropy(ignore_class=255)",
        ),
        ("losses.py:own", "losses.py:own"),
        ({"name": "a (1)/losses.py:own", "of": "labels"}, "a (1)/losses.py:own(of=labels)"),
    ],
)
def test_key_of_loss_has_what_is_no_default(given: str | dict[str, object], key: str) -> None:
    assert key_of_loss(given) == key
    assert loss_of(key).key == key


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("hubre", "did you mean huber"),
        ({"name": "huber", "detla": 2}, "unknown argument 'detla'.*did you mean delta"),
        ({"name": "huber", "delta": 0}, "delta: must be a number above 0, not 0"),
        ({"name": "huber", "delta": "2"}, "delta: must be a number"),
        ({"name": "hinge", "delta": 1}, "it takes no arguments"),
        (
            {"name": "categorical_crossentropy", "label_smoothing": 1.5},
            "from 0 to 1, not 1.5",
        ),
        ({"name": "sparse_categorical_crossentropy", "ignore_class": 0.5}, "whole number"),
        ({"name": "binary_focal_crossentropy", "apply_class_balancing": 1}, "true or false"),
        ({"name": "categorical_focal_crossentropy", "alpha": []}, "list of numbers"),
        ({"name": "categorical_focal_crossentropy", "alpha": [-1.0]}, "list of numbers"),
        ({"name": "dice", "of": "pixels"}, "classes or labels or values"),
        ({"delta": 2}, "a loss has a name"),
        ({"name": "huber", "delta": float("nan")}, "must be a number above 0"),
    ],
)
def test_key_of_loss_refuses(given: str | dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        key_of_loss(given)


def test_kind_is_stated_where_a_loss_goes_with_several() -> None:
    assert loss_of("dice").kind is None
    assert loss_of("dice").of("classes").key == "dice(of=classes)"
    assert loss_of("hinge").of("classes").key == "hinge"
    assert kind_of_loss("own.py:loss(of=labels)") == "labels"


def test_mapping_is_one_loss_or_one_of_each_output() -> None:
    assert is_loss_mapping({"name": "huber", "delta": 2})
    assert is_loss_mapping({"name": "dice", "of": "classes"})
    assert not is_loss_mapping({"digit": "hinge", "angle": {"name": "huber"}})
    assert not is_loss_mapping({"name": "hinge", "angle": "huber"})  # outputs of these names


def test_ignored_class() -> None:
    assert ignored_class("sparse_categorical_crossentropy(ignore_class=-1)") == -1
    assert ignored_class("sparse_categorical_crossentropy") is None
