"""What is alive over a training step, against sums by hand."""

from __future__ import annotations

import tf_keras as keras

from shrink.tools.profile import step_memory

L = keras.layers


def test_step_memory_follows_outputs_and_gradients() -> None:
    inputs = L.Input((8,))
    a = L.Dense(8, name="a")(inputs)
    model = keras.Model(inputs, L.Add(name="sum")([a, L.Dense(8, name="b")(a)]))
    layers, moments = step_memory(model, 10)
    assert [(m.layer, m.phase, m.alive_bytes // 320) for m in moments] == [
        ("a", "forward", 1),
        ("b", "forward", 2),
        ("sum", "forward", 3),
        ("sum", "backward", 6),  # three outputs, and the gradients of all of them
        ("b", "backward", 4),
        ("a", "backward", 2),
    ]
    assert [(r.name, r.activation_bytes, r.parameter_bytes, r.peak_bytes) for r in layers] == [
        ("a", 320, 288, 640),
        ("b", 320, 288, 640),
        ("sum", 320, 0, 640),
    ]


def test_step_memory_counts_a_gradient_from_its_last_reader_on() -> None:
    inputs = L.Input((4,))
    x = L.Dense(100, name="wide")(inputs)
    model = keras.Model(inputs, L.Dense(1, name="end")(L.Dense(1, name="narrow")(x)))
    layers, moments = step_memory(model, 1)
    assert [m.alive_bytes // 4 for m in moments] == [100, 101, 102, 104, 202, 200]
    assert [(row.name, row.peak_bytes // 4) for row in layers][:2] == [("wide", 200), ("narrow", 2)]
