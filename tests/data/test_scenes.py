"""Scenes of digits: what the masks say is what was drawn."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

from recipes.data.digit_scenes import digit_pools, enlarged, with_masks

HELD = load_digits()


def test_digit_pools_are_disjoint_and_hold_every_digit() -> None:
    pools = digit_pools(1_797)
    assert {name: len(pool) for name, pool in pools.items()} == {
        "train": 1_258, "validation": 180, "test": 359,
    }  # fmt: skip
    assert sorted(np.concatenate(list(pools.values())).tolist()) == list(range(1_797))


def test_with_masks_uses_digits_of_its_pool_alone_and_is_decided_by_the_seed() -> None:
    pool = np.array([3, 17, 21])
    one, again, other = (with_masks(HELD.images, HELD.target, pool, 6, seed) for seed in (1, 1, 2))
    assert set(one.used.tolist()) <= set(pool.tolist())
    np.testing.assert_array_equal(one.images, again.images)
    np.testing.assert_array_equal(one.masks, again.masks)
    assert (one.images != other.images).any()
    assert set(np.unique(one.masks)) <= {0, *(HELD.target[pool] + 1)}


def test_with_masks_gives_boxes_that_hold_the_mask_of_their_digit_and_nothing_else() -> None:
    scenes = with_masks(HELD.images, HELD.target, np.arange(500), 20, 0)
    for mask, boxes in zip(scenes.masks, scenes.boxes, strict=True):
        assert len(boxes) >= 2
        left_over = mask.copy()
        for kind, top, left, bottom, right in boxes:
            inside = mask[top:bottom, left:right]
            assert set(np.unique(inside)) <= {0, kind + 1}
            own = inside == kind + 1
            assert own.any(axis=1)[[0, -1]].all()
            assert own.any(axis=0)[[0, -1]].all()
            left_over[top:bottom, left:right] = 0
        assert not left_over.any()


def test_enlarged_is_scipys_bilinear_zoom() -> None:
    from scipy.ndimage import map_coordinates

    digit = HELD.images[5]
    at = np.linspace(0, 7, 15)
    expected = map_coordinates(digit, np.meshgrid(at, at, indexing="ij"), order=1)
    np.testing.assert_allclose(enlarged(digit, 15), expected, atol=1e-12)
