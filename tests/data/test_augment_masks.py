"""Masks move with their images, to the pixel, and class numbers are never mixed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from shrink.base.errors import DataError
from shrink.base.types import Spec
from shrink.data.augment import Augmentation
from shrink.data.config import AugmentConfig

COUNT, HEIGHT, WIDTH = 30, 9, 8
MASKS = np.random.default_rng(1).integers(1, 200, (COUNT, HEIGHT, WIDTH)).astype(np.uint8)
IMAGES = MASKS[..., None]
"""Images show their own masks: whatever moves them alike leaves them equal."""
IMAGE = Spec((HEIGHT, WIDTH, 1), np.dtype(np.uint8))


def applied(
    dtype: Any = np.uint8, channel: bool = False, **settings: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return images and masks after a change, and the numbers drawn for it."""
    masks = MASKS.astype(dtype)[..., None] if channel else MASKS.astype(dtype)
    spec = Spec(masks.shape[1:], masks.dtype)
    augmentation = Augmentation(AugmentConfig.model_validate(settings), IMAGE, None, spec)
    drawn = augmentation.draw(3, 1, np.arange(COUNT))
    x, y = augmentation.apply(tf.constant(IMAGES), tf.constant(masks), tf.constant(drawn))
    assert y.dtype == masks.dtype
    return x.numpy(), y.numpy(), drawn


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64])
@pytest.mark.parametrize("settings", [{"flip": "both"}, {"crop": 3}, {"flip": "both", "crop": 2}])
def test_masks_move_as_their_images_do(settings: dict[str, Any], dtype: Any) -> None:
    x, y, _ = applied(dtype, **settings)
    np.testing.assert_array_equal(x[..., 0], y)
    assert (y != MASKS).any(axis=(1, 2)).mean() > 0.5


def test_masks_of_one_channel_move_too() -> None:
    _, flat, _ = applied(flip="both", crop=2)
    _, deep, _ = applied(channel=True, flip="both", crop=2)
    np.testing.assert_array_equal(deep[..., 0], flat)


def test_crop_shifts_a_mask_by_whole_pixels() -> None:
    _, y, drawn = applied(crop=3)
    for mask, moved, numbers in zip(MASKS, y, drawn, strict=True):
        right, down = (math.floor(u * 7) - 3 for u in numbers[2:4])
        padded = np.pad(mask, 3)
        expected = padded[3 + down : 3 + down + HEIGHT, 3 + right : 3 + right + WIDTH]
        np.testing.assert_array_equal(moved, expected)


def nearest(mask: np.ndarray, angle: float) -> tuple[np.ndarray, np.ndarray]:
    """Turn a mask about its centre, one pixel at a time; and where it is not near a tie."""
    turned, clear = np.zeros_like(mask), np.zeros(mask.shape, bool)
    center_y, center_x = (HEIGHT - 1) / 2, (WIDTH - 1) / 2
    for row in range(HEIGHT):
        for column in range(WIDTH):
            right, down = column - center_x, row - center_y
            from_x = math.cos(angle) * right - math.sin(angle) * down + center_x
            from_y = math.sin(angle) * right + math.cos(angle) * down + center_y
            parts = [abs(value % 1 - 0.5) for value in (from_x, from_y)]
            clear[row, column] = min(parts) > 1e-3
            nearest_x, nearest_y = round(from_x), round(from_y)
            if 0 <= nearest_x < WIDTH and 0 <= nearest_y < HEIGHT:
                turned[row, column] = mask[nearest_y, nearest_x]
    return turned, clear


@pytest.mark.parametrize("dtype", [np.uint8, np.int64])
def test_rotate_takes_the_nearest_class_of_each_pixel(dtype: Any) -> None:
    _, y, drawn = applied(dtype, rotate=40)
    for mask, turned, numbers in zip(MASKS, y, drawn, strict=True):
        expected, clear = nearest(mask, (2 * float(numbers[4]) - 1) * math.radians(40))
        assert clear.mean() > 0.9
        np.testing.assert_array_equal(turned[clear], expected[clear])
        assert set(np.unique(turned)) <= {0, *np.unique(mask)}


def test_colours_and_cutout_leave_masks_alone() -> None:
    x, y, _ = applied(brightness=0.3, contrast=0.3, cutout=4)
    np.testing.assert_array_equal(y, MASKS)
    assert (x[..., 0] != MASKS).any()


def test_augmentation_refuses_masks_of_another_size() -> None:
    config, spec = AugmentConfig(flip="both"), Spec((4, 4), np.dtype(np.uint8))
    with pytest.raises(DataError, match=r"targets of shape \(4, 4\) cannot be moved"):
        Augmentation(config, IMAGE, None, spec)
    Augmentation(AugmentConfig(brightness=0.2), IMAGE, None, spec)
