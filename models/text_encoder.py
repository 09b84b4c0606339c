"""A small transformer encoder of texts as token ids.

Blocks as in Vaswani et al., "Attention Is All You Need", 2017, section 3.1, cut down: embeddings
with learned positions, attention and a dense layer of one hidden layer, each added to what it was
given and normalised.
"""

from __future__ import annotations

import tensorflow as tf
import tf_keras as keras

layers = keras.layers


def build(
    *,
    width: float = 1.0,
    depth: float = 1.0,
    length: int = 24,
    vocabulary: int = 192,
    classes: int = 10,
    heads: int = 4,
    blocks: int = 2,
    activation: str = "relu",
    dropout: float = 0.1,
) -> keras.Model:
    """Build an encoder that averages what its last block makes of each token.

    Input: (batch, length) int32 ids. Output: (batch, classes) logits. Parameters at width 1 and the
    defaults: 48,778.

    Padding is a token like others: a mask would be added to the scores of attention as a number
    near -1e9, for which 8 bits have no scale.

    Args:
        width: multiplies the heads, of 12 channels each, and the hidden units; at least one head.
        depth: multiplies the blocks, rounded, at least one.
        length: ids of a text.
        vocabulary: the most tokens that it knows.
        classes: number of logits.
        heads: of each attention.
        blocks: of attention and two dense layers.
        activation: of the hidden units; `gelu` is no operator of TFLite Micro.
        dropout: rate after each part of a block; 0 leaves the layers out.
    """
    count = max(1, round(heads * width))
    channels = 12 * count
    ids = layers.Input((length,), dtype="int32", name="ids")
    places = tf.cumsum(tf.ones_like(ids), axis=1, exclusive=True)
    x = layers.Add(name="embedding")(
        [
            layers.Embedding(vocabulary, channels, name="tokens")(ids),
            layers.Embedding(length, channels, name="positions")(places),
        ]
    )
    for block in range(1, max(1, round(blocks * depth)) + 1):
        name = f"block{block}"
        attention = layers.MultiHeadAttention(count, 12, name=f"{name}_attention")
        x = _added(x, attention(x, x), dropout, f"{name}_attention")
        hidden = layers.Dense(2 * channels, activation=activation, name=f"{name}_hidden")(x)
        hidden = layers.Dense(channels, name=f"{name}_back")(hidden)
        x = _added(x, hidden, dropout, f"{name}_dense")
    x = layers.GlobalAveragePooling1D(name="mean")(x)
    return keras.Model(ids, layers.Dense(classes, name="logits")(x), name="text_encoder")


def _added(
    x: keras.KerasTensor, part: keras.KerasTensor, dropout: float, name: str
) -> keras.KerasTensor:
    if dropout:
        part = layers.Dropout(dropout, name=f"{name}_dropout")(part)
    x = layers.Add(name=f"{name}_add")([x, part])
    return layers.LayerNormalization(name=f"{name}_norm")(x)
