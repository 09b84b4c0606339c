"""Augmentation: random changes to the examples of the train split."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from shrink.base.errors import DataError
from shrink.base.types import Spec, Specs, Tensors, leaves
from shrink.data import boxes
from shrink.data.config import AugmentConfig
from shrink.data.examples import Batch
from shrink.model.user_modules import blaming, function_of
from shrink.tflite.lazy import tf

_FUNCTION_HINT = (
    "def augment(image, rng): return an image of the same shape and dtype, such as "
    "result.astype(image.dtype)"
)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def uniforms(seed: int, epoch: int, examples: np.ndarray, count: int) -> np.ndarray:
    """Return `count` numbers for each example, float32 (n, count), uniform in [0, 1).

    SplitMix64 (Steele, Lea & Flood 2014) as a hash of the counter (seed, epoch, example, place).

    Args:
        seed: of the training.
        epoch: from 0.
        examples: int64 (n,), places in the training split.
        count: numbers for each.
    """
    key = _mix(_mix(np.array([seed], np.uint64)) + np.array([epoch], np.uint64))
    stream = _mix(key + _mix(np.asarray(examples).astype(np.uint64)))
    offsets = np.arange(1, count + 1, dtype=np.uint64) * _GOLDEN
    bits = _mix(stream[:, None] + offsets)
    return (bits >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)


def _mix(z: np.ndarray) -> np.ndarray:
    z = z + _GOLDEN
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


_SAMPLED = ("uint8", "int32", "int64", "float16", "float32", "float64")
"""What TensorFlow's resampling takes."""


def signs(u: tf.Tensor) -> tf.Tensor:
    """Return -1 for numbers below one half and 1 for the others."""
    return tf.where(u < 0.5, -1.0, 1.0)


def whole_shifts(u: tf.Tensor, most: int) -> tf.Tensor:
    """Return whole numbers from -most to most, each as likely, of numbers in [0, 1)."""
    return tf.floor(u * float(2 * most + 1)) - float(most)


def angles(u: tf.Tensor, most_degrees: float) -> tf.Tensor:
    """Return angles in radians, up to `most_degrees` either way, of numbers in [0, 1)."""
    return (2.0 * u - 1.0) * math.radians(most_degrees)


def resample(
    images: tf.Tensor,
    flip_x: tf.Tensor,
    flip_y: tf.Tensor,
    shift_x: tf.Tensor,
    shift_y: tf.Tensor,
    angle: tf.Tensor | None,
    nearest: bool = False,
) -> tf.Tensor:
    """Return images (n, height, width, c) turned about their centres, mirrored and shifted.

    The pixel (x, y) of the result comes from `R(angle) F ((x, y) - centre) + centre + shift`;
    what lies outside is 0. Without an angle pixels are moved, never mixed.

    Args:
        images: of any dtype.
        flip_x: (n,), -1 to mirror left and right, else 1.
        flip_y: (n,), the same for top and bottom.
        shift_x: (n,), whole pixels.
        shift_y: (n,), whole pixels.
        angle: (n,), radians, or None.
        nearest: take the nearest pixel and mix none, as class numbers need it; else bilinear.
    """
    height, width = images.shape[1:3]
    cos = tf.ones_like(flip_x) if angle is None else tf.cos(angle)
    sin = tf.zeros_like(flip_x) if angle is None else tf.sin(angle)
    center_x, center_y = (width - 1) / 2, (height - 1) / 2
    xx, xy, yx, yy = cos * flip_x, -sin * flip_y, sin * flip_x, cos * flip_y
    zero = tf.zeros_like(flip_x)
    transforms = tf.stack(
        [
            *(xx, xy, center_x - xx * center_x - xy * center_y + shift_x),
            *(yx, yy, center_y - yx * center_x - yy * center_y + shift_y),
            *(zero, zero),
        ],
        axis=1,
    )
    unmixed = angle is None or nearest
    exact = unmixed and images.dtype.name in _SAMPLED
    source = images if exact else tf.cast(images, tf.float32)
    moved = tf.raw_ops.ImageProjectiveTransformV3(
        images=source,
        transforms=transforms,
        output_shape=[height, width],
        fill_value=0.0,
        interpolation="NEAREST" if unmixed else "BILINEAR",
        fill_mode="CONSTANT",
    )
    moved = tf.ensure_shape(moved, images.shape)
    return moved if exact else as_stored(moved, images.dtype)


def as_stored(values: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Return float values in a stored dtype: integers rounded and clipped to their range."""
    if not dtype.is_integer:
        return tf.cast(values, dtype)
    low, high = float(max(dtype.min, -(2**24))), float(min(dtype.max, 2**24))
    return tf.cast(tf.clip_by_value(tf.round(values), low, high), dtype)


_TO_YIQ = np.array(
    [[0.299, 0.587, 0.114], [0.5959, -0.2746, -0.3213], [0.2115, -0.5227, 0.3112]], np.float32
)
"""Luma and two axes of colour, from red, green and blue (NTSC 1953)."""
_FROM_YIQ = np.linalg.inv(_TO_YIQ).astype(np.float32)


def brightness(images: tf.Tensor, u: tf.Tensor, most: float) -> tf.Tensor:
    """Add up to `most` either way to all values of an image; u is (n,) in [0, 1)."""
    return images + _broad((2.0 * u - 1.0) * most)


def contrast(images: tf.Tensor, u: tf.Tensor, most: float) -> tf.Tensor:
    """Scale distances from each channel's mean by 1 plus or minus up to `most`."""
    mean = tf.reduce_mean(images, axis=(1, 2), keepdims=True)
    return mean + (images - mean) * _factor(u, most)


def saturation(images: tf.Tensor, u: tf.Tensor, most: float) -> tf.Tensor:
    """Scale distances from gray by 1 plus or minus up to `most`."""
    gray = tf.reduce_sum(images * _TO_YIQ[0], axis=3, keepdims=True)
    return gray + (images - gray) * _factor(u, most)


def hue(images: tf.Tensor, u: tf.Tensor, most: float) -> tf.Tensor:
    """Turn colours about the gray axis of YIQ by up to `most` of a full turn either way."""
    angle = (2.0 * u - 1.0) * (2.0 * math.pi * most)
    cos, sin = tf.cos(angle), tf.sin(angle)
    one, zero = tf.ones_like(angle), tf.zeros_like(angle)
    turn = tf.stack([one, zero, zero, zero, cos, -sin, zero, sin, cos], axis=1)
    matrix = _FROM_YIQ @ tf.reshape(turn, (-1, 3, 3)) @ _TO_YIQ
    return tf.einsum("nhwc,ndc->nhwd", images, matrix)


def _factor(u: tf.Tensor, most: float) -> tf.Tensor:
    return _broad(1.0 + (2.0 * u - 1.0) * most)


def _broad(values: tf.Tensor) -> tf.Tensor:
    return tf.reshape(values, (-1, 1, 1, 1))


def cutout(images: tf.Tensor, u: tf.Tensor, v: tf.Tensor, side: int) -> tf.Tensor:
    """Set a square to zero, centred on a random pixel (DeVries & Taylor 2017).

    Args:
        images: (n, height, width, c).
        u: (n,) in [0, 1), decides the row of the centre.
        v: (n,), its column.
        side: of the square, pixels; what lies outside the image is cut off.
    """
    height, width = images.shape[1:3]
    rows, columns = _covered(u, height, side), _covered(v, width, side)
    hidden = rows[:, :, None, None] & columns[:, None, :, None]
    return tf.where(hidden, tf.zeros((), images.dtype), images)


def beta_quantiles(u: np.ndarray, alpha: float) -> np.ndarray:
    """Return the quantiles u of Beta(alpha, alpha), float32."""
    from scipy.special import betaincinv

    return np.asarray(betaincinv(alpha, alpha, u.astype(np.float64)), np.float32)


def mixup(x: Tensors, y: Tensors, share: tf.Tensor, num_classes: int | None) -> Batch:
    """Mix each example with its mirror place in the batch (Zhang et al. 2018, eq. 1).

    Args:
        x: structure of (n, ...) inputs; integers are rounded.
        y: int64 (n,) or (n, 1) labels, or a structure of real targets (n, ...).
        share: float32 (n,), how much of each example itself is kept.
        num_classes: of labels, None for real targets.

    Returns:
        Inputs in their own dtype; targets in float32, labels as probabilities (n, classes).
    """
    if num_classes is not None:
        y = tf.one_hot(tf.reshape(y, (-1,)), num_classes)
    mixed = tf.nest.map_structure(lambda part: as_stored(_mixed(part, share), part.dtype), x)
    return mixed, tf.nest.map_structure(lambda part: _mixed(part, share), y)


def _mixed(values: tf.Tensor, share: tf.Tensor) -> tf.Tensor:
    share = tf.reshape(share, (-1, *[1] * (values.shape.rank - 1)))
    own = tf.cast(values, tf.float32)
    return share * own + (1.0 - share) * tf.reverse(own, [0])


def _covered(u: tf.Tensor, size: int, side: int) -> tf.Tensor:
    first = tf.floor(u * float(size))[:, None] - float(side // 2)
    positions = tf.range(size, dtype=tf.float32)[None, :]
    return (positions >= first) & (positions < first + float(side))


# One for each random decision, in a fixed order: a new kind of augmentation goes last, so that
# the others keep their numbers.
_KINDS = (
    *("flip_x", "flip_y", "shift_x", "shift_y", "angle"),
    *("brightness", "contrast", "saturation", "hue", "cut_row", "cut_column", "mixup"),
    *("function_1", "function_2", "function_3"),
)
_SEED = _KINDS[-3:]
"""72 bits that seed the generator of the user's function."""
_COLOURS = ("saturation", "hue")
_COLOUR_CHANGES = {
    "brightness": brightness,
    "contrast": contrast,
    "saturation": saturation,
    "hue": hue,
}


class Augmentation:
    """Random changes to training examples, stateless: the same key gives the same change.

    Args:
        config: which changes.
        input_spec: `Spec` of one input, or a structure of them; those of rank 3 are
            images, which are changed alike.
        num_classes: number of labels, None for real targets.
        target_spec: `Spec` of one target, or a structure of them; those of an image's
            height and width, such as masks, are moved with the images.
        has_boxes: whether the target is boxes, which move with the images, too.

    Raises:
        DataError: no input is an image, gray images shall change their colour, or images shall
            move and labels for each position cannot follow.
        ModelError: the user's function cannot be imported.

    Attributes:
        failure: of the user's function, inside of TensorFlow, which hides it.
    """

    failure: DataError | None = None

    def __init__(
        self,
        config: AugmentConfig,
        input_spec: Specs,
        num_classes: int | None,
        target_spec: Specs = (),
        has_boxes: bool = False,
    ) -> None:
        self._config = config
        self._has_boxes = has_boxes
        if has_boxes:
            for key, why in (
                ("rotate", "a rotated box is not aligned with the axes"),
                ("mixup", "boxes cannot be mixed"),
            ):
                if getattr(config, key) is not None:
                    raise DataError(
                        f"{key} is not supported with boxes: {why}",
                        subject="data.augment",
                        hint=f"leave {key} out; flip, crop and changes of colour work",
                    )
        self._num_classes = num_classes
        images = [spec for spec in leaves(input_spec) if len(spec.shape) == 3]
        _check(config, images)
        self._sizes = {tuple(spec.shape[:2]) for spec in images}
        self._function = None
        if config.function is not None:
            _check_function(target_spec, self._sizes, has_boxes)
            file, _, name = config.function.rpartition(":")
            self._function = function_of(Path(file), name)
        if images and self._moves:
            for spec in leaves(target_spec):
                _check_follows(spec, self._sizes)

    @property
    def mixes(self) -> bool:
        """Whether an example depends on the others of its batch."""
        return self._config.mixup is not None

    @property
    def _moves(self) -> bool:
        config = self._config
        return bool(config.flip or config.crop or config.rotate)

    def draw(self, seed: int, epoch: int, examples: np.ndarray) -> np.ndarray:
        """Return the random numbers of some examples, float32 (n, kinds)."""
        numbers = uniforms(seed, epoch, examples, len(_KINDS))
        if self._config.mixup is not None:
            column = _KINDS.index("mixup")
            numbers[:, column] = beta_quantiles(numbers[:, column], self._config.mixup)
        return numbers

    def apply(self, x: Tensors, y: Tensors, numbers: tf.Tensor) -> Batch:
        """Return a batch changed by the numbers drawn for it; can be traced.

        Args:
            x: structure of (n, ...) inputs as stored.
            y: structure of (n, ...) targets.
            numbers: float32 (n, kinds) of `draw`.
        """
        with tf.name_scope("augment"):
            columns = tf.unstack(tf.ensure_shape(numbers, (None, len(_KINDS))), axis=1)
            u = dict(zip(_KINDS, columns, strict=True))
            x = tf.nest.map_structure(lambda part: self._image(part, u), x)
            y = tf.nest.map_structure(lambda part: self._target(part, u), y)
            if self._config.mixup is not None:
                x, y = mixup(x, y, u["mixup"], self._num_classes)
            return x, y

    def _image(self, x: tf.Tensor, u: dict[str, tf.Tensor]) -> tf.Tensor:
        if x.shape.rank != 4:
            return x
        if self._function is not None:
            seeds = tf.stack([u[name] for name in _SEED], axis=1)
            x = tf.ensure_shape(tf.numpy_function(self._by_function, [x, seeds], x.dtype), x.shape)
        x = self._coloured(self._moved(x, u), u)
        side = self._config.cutout
        return x if side is None else cutout(x, u["cut_row"], u["cut_column"], side)

    def _by_function(self, images: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        """Return images (n, height, width, c) as the user's function changes each.

        Args:
            images: as stored.
            seeds: (n, 3), multiples of 2**-24 in [0, 1).

        Raises:
            DataError: it raises, or returns no image like the one that it got.
        """
        assert self._function is not None, "apply() looks"
        subject = f"data.augment.function {self._config.function}"
        changed = np.empty_like(images)
        for index, (image, seed) in enumerate(zip(images, seeds, strict=True)):
            generator = np.random.default_rng([int(part * 2.0**24) for part in seed])
            try:
                with blaming("it raised ", subject, _FUNCTION_HINT, DataError):
                    returned = np.asarray(self._function(image.copy(), generator))
                if (why := _unlike(returned, image)) is not None:
                    raise DataError(why, subject=subject, hint=_FUNCTION_HINT)
            except DataError as error:
                self.failure = error
                raise
            changed[index] = returned
        return changed

    def _target(self, y: tf.Tensor, u: dict[str, tf.Tensor]) -> tf.Tensor:
        """Move a target that has a value for each pixel; class numbers are never mixed."""
        if self._has_boxes:
            return boxes.moved(y, next(iter(self._sizes)), *self._moves_of(u)) if self._moves else y
        if y.shape.rank not in (3, 4) or tuple(y.shape[1:3]) not in self._sizes:
            return y
        image = y if y.shape.rank == 4 else y[..., None]
        moved = self._moved(image, u, nearest=y.dtype.is_integer)
        return moved if y.shape.rank == 4 else moved[..., 0]

    def _moved(self, x: tf.Tensor, u: dict[str, tf.Tensor], nearest: bool = False) -> tf.Tensor:
        config = self._config
        if not self._moves:
            return x
        flips, shifts = self._moves_of(u)
        angle = angles(u["angle"], config.rotate) if config.rotate else None
        return resample(x, *flips, *shifts, angle, nearest)

    def _moves_of(
        self, u: dict[str, tf.Tensor]
    ) -> tuple[tuple[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]:
        """Return flips and shifts, of x and of y each."""
        config, one = self._config, tf.ones_like(u["angle"])
        horizontal, vertical = config.flip in ("horizontal", "both"), config.flip != "horizontal"
        flips = (
            signs(u["flip_x"]) if horizontal else one,
            signs(u["flip_y"]) if config.flip and vertical else one,
        )
        most = config.crop or 0
        return flips, (whole_shifts(u["shift_x"], most), whole_shifts(u["shift_y"], most))

    def _coloured(self, x: tf.Tensor, u: dict[str, tf.Tensor]) -> tf.Tensor:
        changes = list(_colour_changes(self._config))
        if not changes:
            return x
        unit = 255.0 if x.dtype.is_integer else 1.0
        values = tf.cast(x, tf.float32)
        for name, most in changes:
            scaled = most * unit if name == "brightness" else most
            values = _COLOUR_CHANGES[name](values, u[name], scaled)
        if x.dtype.is_integer:
            values = tf.clip_by_value(values, 0.0, unit)
        return as_stored(values, x.dtype)


def _colour_changes(config: AugmentConfig) -> Iterator[tuple[str, float]]:
    for name in _COLOUR_CHANGES:
        most = getattr(config, name)
        if most:
            yield name, most


def _check(config: AugmentConfig, images: list[Spec]) -> None:
    wanted = set(config.model_dump(exclude_none=True)) - {"mixup"}
    if wanted and not images:
        raise DataError(
            f"{', '.join(sorted(wanted))} need images (height, width, channels), and no input is",
            subject="data.augment",
            hint="leave data.augment out; mixup alone works on any input",
        )
    if any(spec.shape[-1] != 3 for spec in images) and wanted & set(_COLOURS):
        raise DataError(
            f"{' and '.join(sorted(wanted & set(_COLOURS)))} need images of three channels",
            subject="data.augment",
            hint="remove these changes, or set data.channels: 3",
        )


def _unlike(returned: np.ndarray, image: np.ndarray) -> str | None:
    """Return why an image cannot take the place of another, None where it can."""
    if (returned.shape, returned.dtype) != (image.shape, image.dtype):
        return (
            f"it returned {returned.dtype}{list(returned.shape)} for an image "
            f"{image.dtype}{list(image.shape)}"
        )
    if image.dtype.kind == "f" and not np.isfinite(returned).all():
        return "it returned NaN or infinity"
    return None


def _check_function(
    target_spec: Specs, sizes: set[tuple[int | None, ...]], has_boxes: bool
) -> None:
    """Raise `DataError` where targets would have to move with the images."""
    by_pixel = any(tuple(spec.shape[:2]) in sizes for spec in leaves(target_spec))
    if has_boxes or by_pixel:
        raise DataError(
            f"a function gets images alone, and the {'boxes' if has_boxes else 'masks'} would stay "
            "where they are if it moves them",
            subject="data.augment.function",
            hint="use flip, crop, rotate and the changes of colour, which targets follow",
        )


def _check_follows(spec: Spec, sizes: set[tuple[int | None, ...]]) -> None:
    """Raise `DataError` for class numbers by position that are not of an image's size."""
    if spec.dtype.kind in "iu" and len(spec.shape) > 1 and tuple(spec.shape[:2]) not in sizes:
        raise DataError(
            f"flip, crop and rotate move images of {sorted(sizes)} pixels, and targets of shape "
            f"{tuple(spec.shape)} cannot be moved with them",
            subject="data.augment",
            hint="store masks of the images' height and width, or leave flip, crop and rotate out",
        )
