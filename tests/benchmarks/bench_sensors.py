"""What int8 costs models of sensor readings whose columns differ in size.

Run: python -m tests.benchmarks.bench_sensors [OLD_CHECKOUT]

Each model takes readings as sensors give them (pascals, degrees, volts, counts of a 24-bit
converter) and scales them itself, by Normalization, BatchNormalization or Rescaling. It is trained
for a few seconds on synthetic readings, quantized by `shrink quantize --target tflm`, and measured
on 500 other readings: the Keras model by Keras, the file by LiteRT, without shrink. With the folder
of another checkout the same models are quantized by that one, too. No data is downloaded; six
minutes on two idle cores, twice that with another checkout.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tf_keras as keras
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from tests.benchmarks.harness import say

L = keras.layers
Array = np.ndarray[Any, Any]
Case = tuple[list[Array], Array, Callable[[list[Array]], keras.Model]]
"""Inputs (n, ...), targets (n,) of classes or (n, k) of numbers, and what builds the model."""
_COUNT, _TESTED, _SEED = 2_000, 500, 0
_EPOCHS = 25


def _normalized(x: Array) -> keras.layers.Layer:
    layer = L.Normalization()
    layer.adapt(x)
    return layer


def _head(x: Any, outputs: int, classes: bool, hidden: int = 32) -> Any:
    x = L.Dense(hidden, activation="relu")(L.Dense(hidden, activation="relu")(x))
    return L.Dense(outputs, activation="softmax" if classes else None)(x)


def _table(x: Array, y: Array, front: Callable[[Array], keras.layers.Layer]) -> Case:
    classes = y.ndim == 1

    def build(inputs: list[Array]) -> keras.Model:
        readings = L.Input(inputs[0].shape[1:], name="readings")
        outputs = int(y.max()) + 1 if classes else y.shape[1]
        return keras.Model(readings, _head(front(inputs[0])(readings), outputs, classes))

    return [x], y, build


def _gas(
    random: np.random.Generator, front: Callable[[Array], keras.layers.Layer] = _normalized
) -> Case:
    """Pressure, temperature, humidity, gas resistance and time; the class is of two small ones."""
    n = _COUNT
    columns = [
        random.normal(101_325, 600, n),
        random.uniform(10, 35, n),
        random.uniform(20, 80, n),
        random.uniform(5e3, 5e5, n),
        random.normal(0, 1, n),
    ]
    y = (columns[1] > 22) * 2 + (columns[4] > 0)
    return _table(np.stack(columns, 1).astype(np.float32), y.astype(np.int64), front)


def _clock(random: np.random.Generator) -> Case:
    """Hour, day, month, year, load, temperature and a flag; five numbers, one of each size."""
    ends = [24, 31, 12, 2000, 100, 85, 1]
    x = random.uniform([0, 0, 0, 1000, 0, -40, 0], ends, (_COUNT, 7)).astype(np.float32)
    parts = [100 * x[:, 6], x[:, 0] * 4, x[:, 4], x[:, 5] * 0.5 + 20, x[:, 3] / 20]
    return _table(x, np.stack(parts, 1).astype(np.float32), _normalized)


def _weather(random: np.random.Generator) -> Case:
    """Pressure in pascals, dew point, wind and humidity; temperature and rain behind them."""
    n = _COUNT
    p, d, w, h = (
        random.normal(101_325, 800, n),
        random.normal(8, 6, n),
        random.gamma(2, 2, n),
        random.beta(4, 2, n),
    )
    y = np.stack([d + 12 * (1 - h) + 0.2 * w, 10 * h * (p < 101_000)], 1).astype(np.float32)
    return _table(np.stack([p, d, w, h], 1).astype(np.float32), y, lambda _: L.BatchNormalization())


def _power(random: np.random.Generator) -> Case:
    """Volts, amperes, power factor and frequency, scaled by Rescaling; the kind of load."""
    kind = random.integers(0, 4, _COUNT)
    volts, hertz = random.normal(230, 4, _COUNT), random.normal(50, 0.05, _COUNT)
    ampere = np.array([0.1, 0.4, 0.1, 0.4])[kind] * random.uniform(0.7, 1.3, _COUNT)
    factor = np.array([0.55, 0.55, 0.95, 0.95])[kind] + random.normal(0, 0.05, _COUNT)
    x = np.stack([volts, ampere, factor, hertz], 1).astype(np.float32)

    def front(x: Array) -> keras.layers.Layer:
        scale = 1 / x.std(axis=0)
        return L.Rescaling(scale.tolist(), (-x.mean(axis=0) * scale).tolist())

    return _table(x, kind, front)


def _motor(random: np.random.Generator) -> Case:
    """Turns, temperature, current and vibration; the vibration expected, and the wear."""
    n = _COUNT
    turns, wear = random.uniform(600, 6_000, n), random.uniform(0, 1, n)
    current = 0.5 + turns / 6_000 + 0.8 * wear + random.normal(0, 0.02, n)
    vibration = 0.01 + 0.05 * wear**2 + 0.00001 * turns + random.normal(0, 0.002, n)
    x = np.stack([turns, 40 + 30 * wear, current, vibration], 1).astype(np.float32)
    y = np.stack([wear, 20 * vibration], 1).astype(np.float32)
    return _table(x, y, _normalized)


def _motion(random: np.random.Generator, front: str, recurrent: bool = False) -> Case:
    """Acceleration in g, rotation in degrees a second, field in nanotesla: 4 gestures."""
    kind, t = random.integers(0, 4, _COUNT), np.arange(32) / 32
    phase = random.uniform(0, 2 * np.pi, (_COUNT, 1))
    speed = np.where(kind % 2, 3.0, 1.0)[:, None] * 2 * np.pi
    wave = np.sin(speed * t + phase)
    shift = np.where(kind // 2, 0.5, -0.5)[:, None] * np.cos(2 * np.pi * t)
    acceleration = 0.3 * wave + random.normal(0, 0.05, wave.shape)
    tilt = 0.4 * shift + random.normal(0, 0.05, wave.shape)
    rotation = random.normal(0, 150, wave.shape)
    field = 45_000 + random.normal(0, 500, wave.shape)
    x = np.stack([acceleration, tilt, rotation, field], 2).astype(np.float32)

    def build(inputs: list[Array]) -> keras.Model:
        signal = L.Input((32, 4), name="signal")
        h = (L.BatchNormalization() if front == "batch" else _normalized(inputs[0]))(signal)
        if recurrent:
            h = L.LSTM(16)(h)
        else:
            h = L.Conv1D(16, 5, activation="relu")(h)
            h = L.GlobalAveragePooling1D()(L.Conv1D(16, 5, activation="relu")(h))
        return keras.Model(signal, L.Dense(4, activation="softmax")(h))

    return [x], kind, build


def _strain(random: np.random.Generator) -> Case:
    """Counts of a 24-bit converter around 8 million: one column that hardly moves."""
    kind, t = random.integers(0, 3, _COUNT), np.arange(64) / 64
    waves = np.stack([np.sin(2 * np.pi * f * t) for f in (1, 3, 6)])[kind]
    x = 8_000_000 + 2_000 * waves + random.normal(0, 800, waves.shape)
    x = x[..., None].astype(np.float32)

    def build(inputs: list[Array]) -> keras.Model:
        signal = L.Input((64, 1), name="signal")
        h = L.Conv1D(12, 9, strides=2, activation="relu")(_normalized(inputs[0])(signal))
        h = L.GlobalAveragePooling1D()(L.Conv1D(12, 5, activation="relu")(h))
        return keras.Model(signal, L.Dense(3, activation="softmax")(h))

    return [x], kind, build


def _separate(random: np.random.Generator) -> Case:
    """The first table with an input for each sensor, joined and then normalized."""
    (x,), y, _ = _gas(random)

    def build(inputs: list[Array]) -> keras.Model:
        own = [L.Input((1,), name=f"sensor_{k}") for k in range(len(inputs))]
        joined = _normalized(np.concatenate(inputs, 1))(L.Concatenate()(own))
        return keras.Model(own, _head(joined, 4, classes=True))

    return [x[:, k : k + 1] for k in range(x.shape[1])], y, build


CASES: dict[str, Callable[[np.random.Generator], Case]] = {
    "gas table, Normalization": _gas,
    "gas table, BatchNormalization": lambda random: _gas(random, lambda _: L.BatchNormalization()),
    "gas, an input for each sensor": _separate,
    "clock table, regression": _clock,
    "weather, regression": _weather,
    "power meter, Rescaling": _power,
    "motor, regression": _motor,
    "motion, Conv1D, Normalization": lambda random: _motion(random, "normal"),
    "motion, Conv1D, BatchNormalization": lambda random: _motion(random, "batch"),
    "motion, LSTM": lambda random: _motion(random, "normal", recurrent=True),
    "strain gauge, Conv1D": _strain,
}


def main() -> None:
    """Print a line for each model."""
    old = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else None
    here = Path(__file__).parents[2]
    say(f"{'':36} {'float':>8} {'int8':>8}{'  int8 of the old checkout' if old else ''}")
    for name, make in CASES.items():
        keras.utils.set_random_seed(_SEED)
        x, y, build = make(np.random.default_rng(_SEED))
        model = build(x)
        classes = y.ndim == 1
        model.compile(
            keras.optimizers.Adam(3e-3),
            "sparse_categorical_crossentropy" if classes else "mse",
            metrics=["accuracy" if classes else "mae"],
        )
        model.fit([each[_TESTED:] for each in x], y[_TESTED:], epochs=_EPOCHS, verbose=0)
        tested, truth = [each[:_TESTED] for each in x], y[:_TESTED]
        figures = [_score(model.predict(tested, verbose=0), truth)]
        with tempfile.TemporaryDirectory() as folder:
            model.save(f"{folder}/model.h5")
            names = model.input_names if len(x) > 1 else ["x"]
            data: Any = {key: each[_TESTED:] for key, each in zip(names, x, strict=True)}
            np.savez(f"{folder}/data.npz", y=y[_TESTED:], **data)
            for checkout in (here, old) if old else (here,):
                file = _quantized(checkout, Path(folder), names)
                figures.append(_score(_outputs(file, tested), truth) if file else float("nan"))
        unit = "accuracy" if classes else "mean absolute error"
        say(f"{name:36} {' '.join(f'{figure:8.3f}' for figure in figures)}  {unit}")


def _quantized(checkout: Path, folder: Path, inputs: Sequence[str]) -> bytes | None:
    out = folder / f"made-by-{checkout.name}.tflite"
    command = [sys.executable, "-m", "shrink", "quantize", str(folder / "model.h5")]
    command += ["--data", str(folder / "data.npz"), "--target", "tflm", "--output", str(out)]
    if len(inputs) > 1:
        command += ["--inputs", ",".join(inputs)]
    environment = {**os.environ, "PYTHONPATH": str(checkout), "SHRINK_CACHE_DIR": str(folder)}
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)
    if done.returncode:
        say(done.stderr[-600:])
        return None
    return out.read_bytes()


def _outputs(content: bytes, inputs: list[Array]) -> Array:
    """Return what LiteRT gives for each example alone, as real numbers."""
    kernels = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    runner = Interpreter(model_content=content, experimental_op_resolver_type=kernels)
    runner.allocate_tensors()
    # The converter's names of inputs end in those of the model, which are in order here.
    details = sorted(runner.get_input_details(), key=lambda detail: detail["name"])
    (output,) = runner.get_output_details()
    rows = []
    for row in range(len(inputs[0])):
        runner.reset_all_variables()
        for detail, array in zip(details, inputs, strict=True):
            (scale, zero), value = detail["quantization"], array[row : row + 1]
            if scale:
                limits = np.iinfo(detail["dtype"])
                value = np.clip(np.rint(value / scale) + zero, limits.min, limits.max)
            runner.set_tensor(detail["index"], value.astype(detail["dtype"]))
        runner.invoke()
        stored = runner.get_tensor(output["index"])[0].astype(np.float64)
        scale, zero = output["quantization"]
        rows.append((stored - zero) * (scale or 1))
    return np.stack(rows)


def _score(found: Array, truth: Array) -> float:
    if truth.ndim == 1:
        return float(np.mean(found.argmax(axis=1) == truth))
    return float(np.mean(np.abs(found - truth)))


if __name__ == "__main__":
    main()
