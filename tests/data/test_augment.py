from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from scipy import ndimage, stats

from shrink.base.errors import DataError
from shrink.base.types import Spec
from shrink.data import augment as colour
from shrink.data import augment as geometry
from shrink.data import augment as mix
from shrink.data.arrays import ArrayExamples
from shrink.data.augment import Augmentation, uniforms
from shrink.data.config import AugmentConfig
from shrink.data.pipeline import naming_bad_examples, training_batches
from shrink.data.views import View

_RNG = np.random.default_rng(0)
_IMAGES = _RNG.integers(0, 256, (40, 9, 8, 3), np.uint8)
_EVERYTHING: dict[str, Any] = {
    "flip": "both", "crop": 2, "rotate": 20, "brightness": 0.2, "contrast": 0.2,
    "saturation": 0.2, "hue": 0.1, "cutout": 3,
}  # fmt: skip


def _augmentation(spec: Spec | None = None, **settings: Any) -> Augmentation:
    spec = spec or Spec((9, 8, 3), np.dtype(np.uint8))
    return Augmentation(AugmentConfig.model_validate(settings), spec, num_classes=4)


def _applied(indices: np.ndarray, epoch: int = 0, seed: int = 0, **settings: Any) -> np.ndarray:
    augmentation = _augmentation(**settings)
    numbers = augmentation.draw(seed, epoch, indices)
    x, _ = augmentation.apply(tf.constant(_IMAGES[indices]), tf.constant(indices % 4), numbers)
    return x.numpy()


def test_uniforms_are_uniform_and_independent() -> None:
    numbers = uniforms(3, 5, np.arange(20_000), 4)
    assert (numbers.min() >= 0, numbers.max() < 1) == (True, True)
    assert all(stats.kstest(column, "uniform").pvalue > 1e-3 for column in numbers.T)
    correlations = np.corrcoef(np.concatenate([numbers[1:], numbers[:-1]], axis=1).T)
    assert np.abs(correlations - np.eye(8)).max() < 0.04


def test_uniforms_depend_on_the_key_alone() -> None:
    whole = uniforms(1, 2, np.arange(50), 3)
    np.testing.assert_array_equal(uniforms(1, 2, np.array([41, 7]), 3), whole[[41, 7]])
    for other in (uniforms(2, 2, np.arange(50), 3), uniforms(1, 3, np.arange(50), 3)):
        assert (other != whole).mean() > 0.99


def test_apply_changes_an_example_alike_in_any_batch() -> None:
    whole = _applied(np.arange(40), epoch=3, **_EVERYTHING)
    some = np.array([31, 4, 4, 17])
    np.testing.assert_array_equal(_applied(some, epoch=3, **_EVERYTHING), whole[some])
    assert (_applied(some, epoch=4, **_EVERYTHING) != whole[some]).any(axis=(1, 2, 3)).all()


def test_apply_is_the_same_in_a_graph() -> None:
    augmentation = _augmentation(**_EVERYTHING)
    numbers = augmentation.draw(0, 0, np.arange(40))
    batch = (tf.constant(_IMAGES), tf.zeros(40, tf.int64), tf.constant(numbers))
    np.testing.assert_array_equal(
        tf.function(augmentation.apply)(*batch)[0], augmentation.apply(*batch)[0]
    )


def test_apply_flips_half_of_the_images() -> None:
    changed = _applied(np.arange(40), flip="horizontal")
    same = (changed == _IMAGES).all(axis=(1, 2, 3))
    mirrored = (changed == _IMAGES[:, :, ::-1]).all(axis=(1, 2, 3))
    assert (same ^ mirrored).all()
    assert 8 <= same.sum() <= 32


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.int16])
def test_apply_crops_the_padded_image(dtype: Any) -> None:
    images = _IMAGES.astype(dtype)
    spec = Spec((9, 8, 3), np.dtype(dtype))
    augmentation = _augmentation(spec, crop=2)
    numbers = augmentation.draw(0, 0, np.arange(40))
    changed = augmentation.apply(tf.constant(images), tf.zeros(40), numbers)[0].numpy()
    assert changed.dtype == dtype
    padded = np.pad(images, [(0, 0), (2, 2), (2, 2), (0, 0)])
    windows = {(dy, dx): padded[:, dy : dy + 9, dx : dx + 8] for dy in range(5) for dx in range(5)}
    hits = {k: (changed == w).all(axis=(1, 2, 3)) for k, w in windows.items()}
    assert np.any(list(hits.values()), axis=0).all()
    assert sum(hit.any() for hit in hits.values()) > 12


def test_resample_turns_like_scipy() -> None:
    smooth = ndimage.gaussian_filter(_RNG.normal(size=(1, 15, 15, 1)), (0, 2, 2, 0))
    one, zero = tf.ones(1), tf.zeros(1)
    turned = geometry.resample(
        tf.constant(smooth, tf.float32),
        one,
        one,
        zero,
        zero,
        tf.constant([np.radians(20.0)], tf.float32),
    )
    expected = ndimage.rotate(smooth[0, :, :, 0], 20, reshape=False, order=1)
    np.testing.assert_allclose(turned[0, 4:-4, 4:-4, 0], expected[4:-4, 4:-4], atol=1e-5)


def test_colour_keeps_what_it_does_not_change() -> None:
    images = tf.constant(_IMAGES, tf.float32)
    u = tf.constant(uniforms(0, 0, np.arange(40), 1)[:, 0])
    gray = np.array([0.299, 0.587, 0.114], np.float32)
    for change in (colour.saturation, colour.hue):
        changed = change(images, u, 0.4).numpy()
        np.testing.assert_allclose(changed @ gray, images.numpy() @ gray, atol=0.05)
        assert np.abs(changed - _IMAGES).max() > 10
    contrasted = colour.contrast(images, u, 0.4).numpy()
    np.testing.assert_allclose(contrasted.mean(axis=(1, 2)), _IMAGES.mean(axis=(1, 2)), rtol=1e-4)
    brighter = colour.brightness(images, u, 30.0).numpy() - _IMAGES
    np.testing.assert_allclose(brighter[:, 0, 0, 0], (2 * u.numpy() - 1) * 30, atol=1e-3)


def test_cutout_hides_a_square() -> None:
    ones = tf.ones((40, 9, 8, 1))
    u, v = uniforms(0, 0, np.arange(40), 2).T
    hidden = 1 - mix.cutout(ones, tf.constant(u), tf.constant(v), 3).numpy()[..., 0]
    inside = (u * 9 >= 1) & (u * 9 < 8) & (v * 8 >= 1) & (v * 8 < 7)
    assert (hidden.sum(axis=(1, 2))[inside] == 9).all()
    rows, columns = np.floor(u * 9).astype(int), np.floor(v * 8).astype(int)
    assert (hidden[np.arange(40), rows, columns] == 1).all()


def test_beta_quantiles_follow_the_distribution() -> None:
    numbers = uniforms(0, 0, np.arange(5000), 1)[:, 0]
    assert stats.kstest(mix.beta_quantiles(numbers, 0.4), stats.beta(0.4, 0.4).cdf).pvalue > 1e-3


def test_apply_mixes_inputs_and_labels_in_the_same_proportion() -> None:
    spec = Spec((4,), np.dtype(np.float32))
    augmentation = _augmentation(spec, mixup=0.4)
    labels = np.array([0, 1, 2, 3, 1, 0])
    one_hot = np.eye(4, dtype=np.float32)[labels]
    numbers = augmentation.draw(0, 0, np.arange(6))
    x, y = augmentation.apply(tf.constant(one_hot), tf.constant(labels), numbers)
    share = numbers[:, 11:12]  # the column of mixup
    np.testing.assert_allclose(x, share * one_hot + (1 - share) * one_hot[::-1], atol=1e-6)
    np.testing.assert_allclose(y, x, atol=1e-6)


@pytest.mark.parametrize(
    ("shape", "settings", "message"),
    [
        ((5,), {"flip": "horizontal"}, "flip need images"),
        ((5, 5, 1), {"hue": 0.1}, "hue need images of three channels"),
    ],
)
def test_augmentation_raises_data_error_when_inputs_do_not_suit(
    shape: tuple[int, ...], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        _augmentation(Spec(shape, np.dtype(np.float32)), **settings)


_FUNCTIONS = """
import numpy as np
def noise(image, rng): return image + rng.normal(size=image.shape).astype(image.dtype)
def spoils(image, rng): image[:] = 0; return image
def smaller(image, rng): return image[1:]
def widens(image, rng): return image.astype("float64")
def fails(image, rng): raise KeyError("colour")
def nothing(image, rng): return None
def infinite(image, rng): return image / np.zeros((), image.dtype)
"""


def _named(folder: Path, name: str) -> str:
    (folder / "own.py").write_text(_FUNCTIONS, encoding="utf-8")
    return f"{folder}/own.py:{name}"


def test_a_function_draws_by_seed_epoch_and_example_alone(tmp_path: Path) -> None:
    images = _IMAGES.astype(np.float32)
    spec = Spec((9, 8, 3), np.dtype(np.float32))
    augmentation = _augmentation(spec, function=_named(tmp_path, "noise"))

    def noise(indices: np.ndarray, epoch: int = 0, seed: int = 0) -> np.ndarray:
        numbers = augmentation.draw(seed, epoch, indices)
        apply = tf.function(augmentation.apply)
        x, _ = apply(tf.constant(images[indices]), tf.constant(indices % 4), numbers)
        return np.asarray(x) - images[indices]

    every = noise(np.arange(40))
    np.testing.assert_array_equal(noise(np.array([7, 3])), every[[7, 3]])
    drawn = np.stack([every, noise(np.arange(40), epoch=1), noise(np.arange(40), seed=1)])
    assert len(np.unique(drawn.reshape(120, -1).round(3), axis=0)) == 120
    assert stats.kstest(drawn.ravel(), "norm").pvalue > 1e-3


def test_a_function_comes_first_and_leaves_the_stored_images_alone(tmp_path: Path) -> None:
    images = tf.constant(_IMAGES)
    augmentation = _augmentation(function=_named(tmp_path, "spoils"), flip="both")
    changed, _ = augmentation.apply(images, tf.zeros(40), augmentation.draw(0, 0, np.arange(40)))
    assert not np.asarray(changed).any()
    np.testing.assert_array_equal(images, _IMAGES)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("smaller", r"returned float32\[8, 8, 3\] for an image float32\[9, 8, 3\]"),
        ("widens", "returned float64"),
        ("fails", r"raised KeyError: 'colour' \(line 7\)"),
        ("nothing", "returned object"),
        ("infinite", "NaN or infinity"),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
def test_a_function_that_gives_no_image_is_named(tmp_path: Path, name: str, message: str) -> None:
    spec = Spec((9, 8, 3), np.dtype(np.float32))
    augmentation = _augmentation(spec, function=_named(tmp_path, name))
    examples = ArrayExamples(_IMAGES.astype(np.float32), np.arange(40) % 4, np.arange(40))
    view = View(examples, augmentation=augmentation)
    batches = training_batches(view, global_batch_size=8, seed=0, first_step=0, last_step=1)
    with pytest.raises(DataError, match=message) as caught, naming_bad_examples(view):
        next(iter(batches))
    assert str(caught.value.subject) == f"data.augment.function {tmp_path}/own.py:{name}"


def test_a_function_is_refused_where_targets_could_not_follow(tmp_path: Path) -> None:
    config = AugmentConfig(function=_named(tmp_path, "noise"))
    image, mask = Spec((9, 8, 3), np.dtype(np.uint8)), Spec((9, 8), np.dtype(np.int64))
    with pytest.raises(DataError, match="masks would stay"):
        Augmentation(config, image, None, mask)
    with pytest.raises(DataError, match="boxes would stay"):
        Augmentation(config, image, None, has_boxes=True)
    with pytest.raises(DataError, match="function need images"):
        Augmentation(config, Spec((4,), np.dtype(np.float32)), 3)
