"""What is alive over a training step, against sums by hand."""

from __future__ import annotations

import io

import tf_keras as keras
from rich.console import Console

from shrink.contract.findings import Profile, StepMoment
from shrink.tools.profile import step_memory
from shrink.tools.show import show_profile

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


def test_the_step_is_plotted_with_the_layer_at_its_peak() -> None:
    def shown(alive: list[int], encoding: str = "utf-8") -> list[str]:
        moments = [
            StepMoment(layer=f"layer{n}", phase="backward", alive_bytes=kilobytes * 1000)
            for n, kilobytes in enumerate(alive)
        ]
        found = Profile(
            model="m",
            batch_size=1,
            training_peak_bytes=None,
            training_peak_predicted_bytes=None,
            largest_batch_size=None,
            memory_limit_bytes=None,
            training_host_peak_bytes=1,
            curve=(),
            split=None,
            layers=(),
            step=tuple(moments),
            devices=("CPU:0",),
            trace=(),
            notes=(),
        )
        content = io.BytesIO()
        stream = io.TextIOWrapper(content, encoding, errors="backslashreplace")
        show_profile(found, Console(file=stream, width=100))
        stream.flush()
        return content.getvalue().decode(encoding).splitlines()

    lines = shown([0, 250, 500, 1000])
    assert "  ▁▂▄█" in lines
    assert any("backward pass of layer3: 1.00 MB" in line for line in lines)
    plain = shown([0, 250, 500, 1000], "ascii")
    assert [line for line in lines if line.isascii() and "by shapes" not in line] == plain
    # More than 60 moments share bars; each shows the most of its own.
    assert "  " + "▁" * 49 + "█" in shown([*[1] * 99, 1000])
