from __future__ import annotations

import numpy as np
import tf_keras as keras

from shrink.quantization.mixed import measure_sensitivity
from shrink.quantization.operators import weighted_operators
from shrink.tflite.convert import convert

L = keras.layers


def test_measure_sensitivity_ranks_a_layer_that_matters_behind_one_that_does_not() -> None:
    keras.utils.set_random_seed(0)
    inputs = L.Input((16,))
    loud = L.Dense(8, name="loud")(inputs)
    quiet = L.Dense(8, name="quiet")(inputs)
    model = keras.Model(inputs, L.Add()([loud, L.Rescaling(0.01)(quiet)]))
    content = convert(model, "float32").content
    x = np.random.default_rng(0).normal(size=(50, 16)).astype(np.float32)
    ranked = measure_sensitivity(content, weighted_operators(content), [{"x": x}])
    assert ["quiet" in one.name for one in ranked] == [True, False]
    assert ranked[0].error < 0.01 * ranked[1].error
    assert [one.saved_bytes for one in ranked] == [64, 64]
