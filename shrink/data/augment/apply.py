"""The whole augmentation of a batch, from random numbers drawn for each of its examples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from shrink.base.errors import DataError
from shrink.data.augment import geometry, mix
from shrink.data.augment import geometry as colour
from shrink.data.augment.config import AugmentConfig
from shrink.data.augment.geometry import uniforms

# One for each random decision, in a fixed order: a new kind of augmentation goes last, so that
# the others keep their numbers.
_KINDS = (
    *("flip_x", "flip_y", "shift_x", "shift_y", "angle"),
    *("brightness", "contrast", "saturation", "hue", "cut_row", "cut_column", "mixup"),
)
_COLOURS = ("saturation", "hue")


class Augmentation:
    """Random changes to training examples, stateless: the same key gives the same change.

    Args:
        config: which changes.
        input_spec: `tf.TensorSpec` of one input, or a structure of them; those of rank 3 are
            pictures, which are changed alike.
        num_classes: number of labels, None for real targets.

    Raises:
        DataError: no input is a picture, or gray pictures shall change their colour.
    """

    def __init__(self, config: AugmentConfig, input_spec: Any, num_classes: int | None) -> None:
        self._config = config
        self._num_classes = num_classes
        _check(config, [spec for spec in tf.nest.flatten(input_spec) if spec.shape.rank == 3])

    def draw(self, seed: int, epoch: int, examples: np.ndarray) -> np.ndarray:
        """Return the random numbers of some examples, float32 (n, kinds)."""
        numbers = uniforms(seed, epoch, examples, len(_KINDS))
        if self._config.mixup is not None:
            numbers[:, -1] = mix.beta_quantiles(numbers[:, -1], self._config.mixup)
        return numbers

    def apply(self, x: Any, y: Any, numbers: tf.Tensor) -> tuple[Any, Any]:
        """Return a batch changed by the numbers drawn for it; can be traced.

        Args:
            x: structure of (n, ...) inputs as stored.
            y: structure of (n, ...) targets.
            numbers: float32 (n, kinds) of `draw`.
        """
        with tf.name_scope("augment"):
            columns = tf.unstack(tf.ensure_shape(numbers, (None, len(_KINDS))), axis=1)
            u = dict(zip(_KINDS, columns, strict=True))
            x = tf.nest.map_structure(lambda part: self._picture(part, u), x)
            if self._config.mixup is not None:
                x, y = mix.mixup(x, y, u["mixup"], self._num_classes)
            return x, y

    def _picture(self, x: tf.Tensor, u: dict[str, tf.Tensor]) -> tf.Tensor:
        if x.shape.rank != 4:
            return x
        x = self._coloured(self._moved(x, u), u)
        side = self._config.cutout
        return x if side is None else mix.cutout(x, u["cut_row"], u["cut_column"], side)

    def _moved(self, x: tf.Tensor, u: dict[str, tf.Tensor]) -> tf.Tensor:
        config, one = self._config, tf.ones_like(u["angle"])
        if not (config.flip or config.crop or config.rotate):
            return x
        horizontal, vertical = config.flip in ("horizontal", "both"), config.flip != "horizontal"
        return geometry.resample(
            x,
            flip_x=geometry.signs(u["flip_x"]) if horizontal else one,
            flip_y=geometry.signs(u["flip_y"]) if config.flip and vertical else one,
            shift_x=geometry.whole_shifts(u["shift_x"], config.crop or 0),
            shift_y=geometry.whole_shifts(u["shift_y"], config.crop or 0),
            angle=geometry.angles(u["angle"], config.rotate) if config.rotate else None,
        )

    def _coloured(self, x: tf.Tensor, u: dict[str, tf.Tensor]) -> tf.Tensor:
        changes = list(_colour_changes(self._config))
        if not changes:
            return x
        unit = 255.0 if x.dtype.is_integer else 1.0
        values = tf.cast(x, tf.float32)
        for name, most in changes:
            scaled = most * unit if name == "brightness" else most
            values = getattr(colour, name)(values, u[name], scaled)
        if x.dtype.is_integer:
            values = tf.clip_by_value(values, 0.0, unit)
        return geometry.as_stored(values, x.dtype)


def _colour_changes(config: AugmentConfig) -> Iterator[tuple[str, float]]:
    for name in ("brightness", "contrast", *_COLOURS):
        most = getattr(config, name)
        if most:
            yield name, most


def _check(config: AugmentConfig, pictures: list[Any]) -> None:
    wanted = set(config.model_dump(exclude_none=True)) - {"mixup"}
    if wanted and not pictures:
        raise DataError(
            f"{', '.join(sorted(wanted))} need pictures (height, width, channels), and no input is",
            subject="data.augment",
            hint="leave data.augment out; mixup alone works on any input",
        )
    if any(spec.shape[-1] != 3 for spec in pictures) and wanted & set(_COLOURS):
        raise DataError(
            f"{' and '.join(sorted(wanted & set(_COLOURS)))} need pictures of three channels",
            subject="data.augment",
            hint="leave them out, or set data.channels: 3",
        )
