from __future__ import annotations

import numpy as np
import pytest
import tf_keras as keras

from shrink.tflite.rewrite import with_global_pools_as_means

L = keras.layers


def pooled(shape: tuple[int, int, int], **options: object) -> keras.Model:
    inputs = L.Input(shape)
    x = L.Conv2D(3, 3, padding="same", name="conv")(inputs)
    x = L.AveragePooling2D(name="pool", **options)(x)
    return keras.Model(inputs, L.Dense(2, name="dense")(L.Flatten()(x)))


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((8, 8, 2), {"pool_size": 8}),
        ((4, 6, 2), {"pool_size": (4, 6)}),
        ((5, 5, 2), {"pool_size": 8, "padding": "same"}),
        ((6, 6, 2), {"pool_size": 6, "strides": 1}),
    ],
)
def test_with_global_pools_as_means_keeps_outputs(
    shape: tuple[int, int, int], options: dict[str, object]
) -> None:
    model = pooled(shape, **options)
    rewritten, names = with_global_pools_as_means(model)
    x = np.random.default_rng(0).normal(size=(3, *shape)).astype(np.float32)
    assert names == ("pool",)
    assert isinstance(rewritten.get_layer("pool"), L.GlobalAveragePooling2D)
    assert isinstance(model.get_layer("pool"), L.AveragePooling2D)
    np.testing.assert_allclose(rewritten(x), model(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((8, 8, 2), {"pool_size": 4}),
        ((6, 6, 2), {"pool_size": 4, "strides": 4}),
        ((8, 8, 2), {"pool_size": 8, "strides": 2, "padding": "same"}),
    ],
)
def test_with_global_pools_as_means_returns_model_itself_when_none_covers(
    shape: tuple[int, int, int], options: dict[str, object]
) -> None:
    model = pooled(shape, **options)
    rewritten, names = with_global_pools_as_means(model)
    assert rewritten is model
    assert names == ()


def test_with_global_pools_as_means_reaches_into_nested_models() -> None:
    inner = pooled((4, 4, 1), pool_size=4)
    left, right = L.Input((4, 4, 1)), L.Input((4, 4, 1))
    model = keras.Model([left, right], L.Add()([inner(left), inner(right)]))
    rewritten, names = with_global_pools_as_means(model)
    x = [np.random.default_rng(i).normal(size=(2, 4, 4, 1)).astype(np.float32) for i in range(2)]
    assert names == (f"{inner.name}/pool",)
    np.testing.assert_allclose(rewritten(x), model(x), rtol=1e-5, atol=1e-6)
