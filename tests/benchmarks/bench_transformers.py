"""How near int8 transformers are to float, with and without the blocks that shrink keeps float.

Run: python -m tests.benchmarks.bench_transformers

Encoders of random weights on random texts of 5 to 16 tokens, padded to 16, and a ViT that is
trained on 1,400 of scikit-learn's digits for five epochs and measured on the others; no data is
downloaded. Two minutes on two idle cores.
"""

from __future__ import annotations

from unittest import mock

import numpy as np
import tensorflow as tf
import tf_keras as keras
from sklearn.datasets import load_digits

from shrink.data.arrays import ArrayExamples
from shrink.quantization.audit import compare_forms
from shrink.quantization.calibration import CalibrationExamples
from shrink.quantization.source import FloatModel
from shrink.stages.quantize import schemes
from shrink.stages.quantize.config import QuantizeConfig
from tests.benchmarks.harness import say

L = keras.layers
_TOKENS, _LENGTH = 60, 16
_TRAINED = 1_400
_NONE: tuple[frozenset[str], list[str]] = (frozenset(), [])


def _attended(x: tf.Tensor, heads: int, width: int) -> tf.Tensor:
    return L.Add()([x, L.MultiHeadAttention(heads, width // heads)(x, x)])


def _dense(x: tf.Tensor, hidden: int, width: int) -> tf.Tensor:
    return L.Dense(width)(L.Dense(hidden, activation="gelu")(x))


def encoder(masked: bool) -> keras.Model:
    """Return two blocks of 4 heads, 32 channels and 64 hidden units, normalised behind each."""
    ids = L.Input((_LENGTH,), dtype="int32", name="ids")
    places = tf.cumsum(tf.ones_like(ids), axis=1, exclusive=True)
    tokens = L.Embedding(_TOKENS, 32, mask_zero=masked)(ids)
    x = L.Add()([tokens, L.Embedding(_LENGTH, 32)(places)])
    for _ in range(2):
        x = L.LayerNormalization()(_attended(x, 4, 32))
        x = L.LayerNormalization()(L.Add()([x, _dense(x, 64, 32)]))
    return keras.Model(ids, L.Dense(6)(L.GlobalAveragePooling1D()(x)))


def vision(epsilon: float = 1e-6, biases: str = "zeros") -> keras.Model:
    """Return patches of 2x2, and two blocks of 4 heads, 48 channels, normalised before each.

    Args:
        epsilon: of the layer normalisations.
        biases: initializer of the patches' biases; with zeros blank patches have no variance.
    """
    image = L.Input((8, 8, 1), name="image")
    x = L.Conv2D(48, 2, strides=2, bias_initializer=biases)(L.Rescaling(1 / 16)(image))
    x = L.Reshape((16, 48))(x)
    for _ in range(2):
        n = L.LayerNormalization(epsilon=epsilon)(x)
        x = L.Add()([x, L.MultiHeadAttention(4, 12)(n, n)])
        x = L.Add()([x, _dense(L.LayerNormalization(epsilon=epsilon)(x), 96, 48)])
    x = L.GlobalAveragePooling1D()(L.LayerNormalization(epsilon=epsilon)(x))
    return keras.Model(image, L.Dense(10)(x))


def texts(count: int = 200) -> np.ndarray:
    """Return random ids, int32 (count, 16), with zeros behind the end of each text."""
    random = np.random.default_rng(0)
    ids = random.integers(2, _TOKENS, (count, _LENGTH)).astype(np.int32)
    ids[np.arange(_LENGTH) >= random.integers(5, _LENGTH + 1, count)[:, None]] = 0
    return ids


def agreement(model: keras.Model, x: np.ndarray, held_out: np.ndarray | None = None) -> float:
    """Return the signal-to-noise ratio of the int8 outputs, dB, on what is held out or 64 of x."""
    measured = x[:64] if held_out is None else held_out
    source = FloatModel(model)
    rows = ArrayExamples(x, np.zeros(len(x), np.int64), np.arange(len(x)))
    config = QuantizeConfig.model_validate(
        {"scheme": "static_wi8_ai8", "input_type": "float32" if x.dtype == np.int32 else "int8"}
    )
    made = schemes.static_int8(source, CalibrationExamples(rows, 100, 0), config)
    (name,) = source.border_names()[0]
    compared = compare_forms(made.content, source, {name: measured.astype(np.float32)})
    return float(compared[-1].snr_db or np.inf)


def main() -> None:
    """Print a line for each model."""
    x = texts()
    keras.utils.set_random_seed(0)
    say(f"encoder without a mask          {agreement(encoder(False), x):5.1f} dB")
    keras.utils.set_random_seed(0)
    masked = encoder(True)
    say(f"encoder with mask_zero          {agreement(masked, x):5.1f} dB")
    with mock.patch.object(schemes, "coarse_blocks", return_value=_NONE):
        say(f"the same in int8 throughout     {agreement(masked, x):5.1f} dB")
    digits = load_digits()
    images = digits.images[..., None].astype(np.float32)
    for epsilon, biases in ((1e-6, "zeros"), (1e-6, "random_normal"), (1e-3, "zeros")):
        keras.utils.set_random_seed(0)
        _say_vision(f"ViT, random, {epsilon:.0e}, {biases:13}", vision(epsilon, biases), images)
    for epsilon in (1e-6, 1e-3):
        for seed in range(3):
            keras.utils.set_random_seed(seed)
            model = vision(epsilon)
            model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
            model.fit(images[:_TRAINED], digits.target[:_TRAINED], epochs=5, verbose=0)
            _say_vision(f"ViT, trained, {epsilon:.0e}, seed {seed}", model, images)


def _say_vision(name: str, model: keras.Model, images: np.ndarray) -> None:
    """Print the agreement with layer normalisations in float where they need it, and in int8."""
    with mock.patch.object(schemes, "coarse_blocks", return_value=_NONE):
        once = agreement(model, images[:300], images[_TRAINED:])
    say(f"{name} {agreement(model, images[:300], images[_TRAINED:]):5.1f} dB, {once:5.1f} before")


if __name__ == "__main__":
    main()
