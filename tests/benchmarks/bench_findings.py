"""Three figures that are easily got wrong, beside what one would take for them otherwise.

Run: python -m tests.benchmarks.bench_findings latency
     python -m tests.benchmarks.bench_findings aware
     python -m tests.benchmarks.bench_findings arena

latency: the median of one inference on zeros, as an interpreter's inputs hold them after
`allocate_tensors`, on real examples, and as shrink reports it.
aware: how many output codes of an int8 artifact equal those of the model that was trained under
rounding: tfmot's with the TFLite converter, shrink's with and without the bias correction that
belongs to models that were not trained so.
arena: bytes of a tensor arena: planned from tensor lifetimes, as TFLite Micro's allocator counts
itself, the smallest in which it allocates (each tried in a process of its own), and as shrink
reports it.

Half a minute each. Models are small and have random weights, but that of `aware`.
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import numpy as np
import tf_keras as keras
from ai_edge_litert.interpreter import Interpreter

from shrink.measure.inference import EXAMPLES, latency
from shrink.quantization.aware_model import aware_model
from shrink.quantization.source import FloatModel
from shrink.stages.quantize.config import QuantizeConfig
from shrink.stages.quantize.schemes import SCHEMES
from shrink.tflite.arena import arena_bytes
from tests.benchmarks.harness import say
from tests.benchmarks.random_models import examples

L = keras.layers
_INVOKES = 200
_TOTAL = re.compile(r"Arena allocation total (\d+) bytes")


def main() -> None:
    """Print the table that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("figure", choices=_FIGURES)
    figure = parser.parse_args().figure
    keras.utils.set_random_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        _FIGURES[figure](Path(folder))


def compare_latency(folder: Path) -> None:
    """Print milliseconds of recurrent and other models."""
    say(f"{'p50, ms':<24}{'zeros':>10}{'examples':>10}{'shrink':>10}")
    for name, model in {
        "LSTM(128) on (50, 256)": _sequential((50, 256), L.LSTM(128), L.Dense(4)),
        "GRU(64) on (50, 64)": _sequential((50, 64), L.GRU(64), L.Dense(4)),
        "convolutions": _convolutions(),
    }.items():
        path = folder / "model.tflite"
        path.write_bytes(FloatModel(model).float32.content)
        x = np.random.default_rng(0).normal(size=(EXAMPLES, *model.input_shape[1:]))
        x = x.astype(np.float32)
        zeros, real = _median_ms(path, x[:1] * 0), _median_ms(path, x)
        reported = latency(path, inputs=[x]).p50_ms.value or 0.0
        say(f"{name:<24}{zeros:>10.3f}{real:>10.3f}{reported:>10.3f}")


def compare_aware(folder: Path) -> None:
    """Print shares of equal output codes on the test digits."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    x = (images.reshape(-1, 8, 8, 1) / 16).astype(np.float32)
    train, test = x[:1400], x[1400:]
    network = _convolutions((8, 8, 1), 10)
    _fit(network, train, labels[:1400], epochs=6, learning_rate=5e-3)
    trained = folder / "trained.keras"
    network.save(trained)

    say(f"{'trained under rounding':<44}{'equal codes':>12}{'accuracy':>10}")
    calibration = examples(train[:300])
    model = aware_model(network, calibration.batches())
    _fit(model.aware, train, labels[:1400], epochs=2, learning_rate=5e-4)
    simulated = model.aware.predict(test, verbose=0)
    source = model.source(calibration.batches())
    for name, config in {
        "shrink, biases as they were trained": QuantizeConfig(aware=True, epochs=2),
        "shrink, biases corrected all the same": QuantizeConfig(),
    }.items():
        content = SCHEMES["static_wi8_ai8"](source, calibration, config).content
        _say_codes(name, content, simulated, test, labels[1400:])

    import tensorflow as tf
    import tensorflow_model_optimization as tfmot

    other = tfmot.quantization.keras.quantize_model(keras.models.load_model(trained))
    _fit(other, train, labels[:1400], epochs=2, learning_rate=5e-4)
    converter = tf.lite.TFLiteConverter.from_keras_model(other)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.inference_output_type = converter.inference_input_type = tf.int8
    simulated = other.predict(test, verbose=0)
    _say_codes("tfmot, TFLite converter", converter.convert(), simulated, test, labels[1400:])


def compare_arenas(folder: Path) -> None:
    """Print bytes of tensor arenas of int8 and float models."""
    say(f"{'arena, bytes':<24}{'plan':>10}{'allocator':>11}{'smallest':>10}{'shrink':>10}")
    recurrent = _sequential((20, 8), L.LSTM(16), L.Dense(4))
    for name, model, scheme in (
        ("convolutions, int8", _convolutions(), "static_wi8_ai8"),
        ("convolutions, float32", _convolutions(), "float32"),
        ("convolutions, dynamic", _convolutions(), "dynamic_wi8_afp32"),
        ("LSTM, int8", recurrent, "static_wi8_ai8"),
    ):
        x = np.random.default_rng(0).normal(size=(64, *model.input_shape[1:]))
        source = FloatModel(model)
        made = SCHEMES[scheme](source, examples(x.astype(np.float32)), QuantizeConfig())
        path = folder / "model.tflite"
        path.write_bytes(made.content)
        found = arena_bytes(path)
        own = (_allocator_total(made.content), _smallest_arena(made.content))
        words = ["-" if n is None else f"{n:,}" for n in (found.estimate, *own, found.value)]
        say(f"{name:<24}{words[0]:>10}{words[1]:>11}{words[2]:>10}{words[3]:>10}")


def _sequential(shape: tuple[int, ...], *layers: Any) -> Any:
    return keras.Sequential([L.Input(shape), *layers])


def _convolutions(shape: tuple[int, ...] = (32, 32, 3), classes: int = 10) -> Any:
    inputs = L.Input(shape)
    x = L.Conv2D(16, 3, padding="same", activation="relu")(inputs)
    x = L.Conv2D(24, 3, strides=2, padding="same", activation="relu")(x)
    x = L.GlobalAveragePooling2D()(L.Conv2D(32, 3, strides=2, activation="relu")(x))
    return keras.Model(inputs, L.Dense(classes)(x))


def _fit(model: Any, x: Any, y: Any, epochs: int, learning_rate: float) -> None:
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(learning_rate), loss)
    model.fit(x, y, batch_size=32, epochs=epochs, verbose=0)


def _median_ms(path: Path, rows: Any) -> float:
    interpreter = Interpreter(model_path=str(path), num_threads=1)
    interpreter.allocate_tensors()
    index = interpreter.get_input_details()[0]["index"]
    times = []
    for turn in range(_INVOKES):
        interpreter.set_tensor(index, rows[turn % len(rows)][None])
        started = time.perf_counter()
        interpreter.invoke()
        times.append(time.perf_counter() - started)
    return float(np.median(times[_INVOKES // 4 :])) * 1e3


def _say_codes(name: str, content: bytes, simulated: Any, x: Any, labels: Any) -> None:
    """Print the share of output codes that the simulation's outputs are rounded to, too."""
    interpreter = Interpreter(model_content=content)
    interpreter.allocate_tensors()
    (into,), (out,) = interpreter.get_input_details(), interpreter.get_output_details()
    codes = []
    for row in x:
        scale, zero = into["quantization"]
        rounded = np.clip(np.rint(row[None] / scale) + zero, -128, 127)
        interpreter.set_tensor(into["index"], rounded.astype(np.int8))
        interpreter.invoke()
        codes.append(interpreter.get_tensor(out["index"])[0])
    scale, zero = out["quantization"]
    wanted = np.clip(np.rint(simulated / scale) + zero, -128, 127)
    right = float(np.mean(np.argmax(codes, axis=-1) == labels))
    say(f"{name:<44}{np.mean(np.array(codes) == wanted):>12.1%}{right:>10.1%}")


def _allocator_total(content: bytes) -> int | None:
    """Return what TFLite Micro's allocator says that it used, with plenty of room."""

    def tell() -> None:
        from tflite_micro import runtime

        runtime.Interpreter.from_bytes(content, arena_size=1 << 22).print_allocations()

    found = _TOTAL.search(_in_a_fork(tell)[1])
    return int(found.group(1)) if found else None


def _smallest_arena(content: bytes) -> int | None:
    """Return the smallest multiple of 16 bytes in which TFLite Micro allocates."""

    def fits(size: int) -> bool:
        def allocate() -> None:
            from tflite_micro import runtime

            runtime.Interpreter.from_bytes(content, arena_size=size)

        return _in_a_fork(allocate)[0]

    size = 1 << 20
    if not fits(size):
        return None
    step = size // 2
    while step >= 16:
        size, step = (size - step if fits(size - step) else size), step // 2
    return size


def _in_a_fork(attempt: Callable[[], object]) -> tuple[bool, str]:
    """Whether an attempt ends well in a process of its own, and what it printed, from C++ too."""
    with tempfile.TemporaryFile() as output:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.dup2(output.fileno(), 1)
                os.dup2(output.fileno(), 2)
                attempt()
                code = 0
            finally:
                os._exit(code)
        ended = os.waitpid(child, 0)[1] == 0
        output.seek(0)
        return ended, output.read().decode(errors="replace")


_FIGURES: dict[str, Callable[[Path], None]] = {
    "latency": compare_latency,
    "aware": compare_aware,
    "arena": compare_arenas,
}


if __name__ == "__main__":
    main()
