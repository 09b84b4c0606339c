"""Int8 artifacts: time and memory to make one, and time to evaluate one.

Run: python -m tests.benchmarks.bench_artifacts convert --model model.h5 --data pictures [--runs 5]
     python -m tests.benchmarks.bench_artifacts memory --model model.h5 --data pictures
         [--samples 500 20000]
     python -m tests.benchmarks.bench_artifacts evaluate --artifact model.tflite --data pictures
         [--runs 3]

`--data` is a folder {train,test}/<class>/*.

convert: CPU time to calibrate and convert to int8, shrink's worker against a hand-written script.
Each side runs in a process of its own, alternating; imports are left out on both sides. Both read
the same 500 training images (JPEG), chosen beforehand, and produce a full int8 artifact with int8
inputs and outputs.

memory: host memory of a static quantization, by the number of calibration samples, each in a
process of its own; the figure is the most resident memory that process held (VmHWM), imports and
model included.

evaluate: seconds to evaluate an artifact, shrink's runner against one image at a time. Both sides
get the same test images, read beforehand, and have to find the same number of right answers, but
for ties. The loop is the usual one: an interpreter, and for each image `set_tensor`, `invoke`,
`get_tensor`. The runner takes many images at a time and two threads: on a machine with one core
to spare, only the first helps.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.harness import apart, by_turns, say, subcommands


def main() -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    of = subcommands(parser, {"convert": convert, "memory": memory, "evaluate": evaluate})
    for name in ("convert", "memory"):
        of[name].add_argument("--model", required=True, type=Path)
    of["evaluate"].add_argument("--artifact", required=True, type=Path)
    for each in of.values():
        each.add_argument("--data", required=True, type=Path)
    of["convert"].add_argument("--runs", default=5, type=int)
    of["evaluate"].add_argument("--runs", default=3, type=int)
    of["memory"].add_argument("--samples", nargs="+", default=[500, 20_000], type=int)
    options = parser.parse_args()
    options.run(options)


def convert(options: argparse.Namespace) -> None:
    """CPU seconds of both sides, their medians and ratio."""
    model, data = str(options.model.resolve()), str(options.data.resolve())
    chosen = calibration_paths(options.data.resolve())
    ways: dict[str, Callable[[], dict[str, float]]] = {
        "by hand": functools.partial(apart, converted_by_hand, model=model, images=chosen),
        "shrink": functools.partial(apart, converted_by_shrink, model=model, data=data),
    }
    found = by_turns(ways, options.runs)
    medians = {way: statistics.median(r["cpu_s"] for r in runs) for way, runs in found.items()}
    for way, seconds in medians.items():
        say(f"{way:<8} {seconds:6.2f} s CPU  {found[way][0]['bytes']:,} bytes")
    ratio = medians["shrink"] / medians["by hand"]
    say(f"ratio    {ratio:6.2f}    median of {options.runs} alternating runs")
    opening = statistics.median(r["open_s"] for r in found["shrink"])
    say(f"opening and splitting the data set, not counted: {opening:.2f} s CPU")


def calibration_paths(folder: Path) -> list[str]:
    """Return 500 training images, the same number of each class."""
    classes = sorted(p for p in (folder / "train").iterdir() if p.is_dir())
    share = 500 // len(classes)
    return [str(path) for place in classes for path in sorted(place.iterdir())[:share]]


def converted_by_hand(model: str, images: list[str]) -> dict[str, float]:
    """Return CPU seconds and bytes of what TensorFlow's guide does."""
    import tensorflow as tf
    import tf_keras as keras

    started = time.process_time()
    loaded = keras.models.load_model(model, compile=False)

    def examples() -> Iterator[list[Any]]:
        for path in images:
            image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
            yield [tf.cast(image, tf.float32)[None]]

    converter = tf.lite.TFLiteConverter.from_keras_model(loaded)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = examples
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = converter.inference_output_type = tf.int8
    content = converter.convert()
    return {"cpu_s": time.process_time() - started, "bytes": len(content)}


def converted_by_shrink(model: str, data: str) -> dict[str, float]:
    """Return CPU seconds and bytes of the stage, and seconds to open the data set."""
    import shrink.run.execute  # noqa: F401  all that a worker imports
    from shrink.stages.quantize.config import QuantizeConfig
    from shrink.stages.quantize.run import run
    from tests.jobs import context_of

    described = {"source": "images", "path": data}
    context = context_of(Path(), kind="quantize", inputs={"model": Path(model)}, data=described)
    started = time.process_time()
    context.dataset  # noqa: B018  opened before the clock starts
    opened = time.process_time() - started
    started = time.process_time()
    result = run(QuantizeConfig(), context)
    seconds = time.process_time() - started
    return {"cpu_s": seconds, "open_s": opened, "bytes": len(result.tflite or b"")}


def memory(options: argparse.Namespace) -> None:
    """Peaks for each number of samples, and the ratio of the last to the first."""
    say(f"{'samples':>8} {'peak MiB':>9} {'seconds':>8}")
    model, data = str(options.model.resolve()), str(options.data.resolve())
    peaks = []
    for count in options.samples:
        found = apart(quantized, model=model, data=data, count=count)
        peaks.append(found["peak"])
        say(f"{count:8,} {found['peak'] / 2**20:9.1f} {found['s']:8.1f}")
    say(f"last / first {peaks[-1] / peaks[0]:.3f}")


def quantized(model: str, data: str, count: int) -> dict[str, float]:
    """Return this process's peak in bytes after a static quantization, and its seconds."""
    import tf_keras as keras

    from shrink.base.host import host_peak_bytes
    from shrink.data.config import DataConfig
    from shrink.data.opening import open_dataset
    from shrink.quantization.calibration import CalibrationExamples
    from shrink.quantization.source import FloatModel
    from shrink.stages.quantize.config import QuantizeConfig
    from shrink.stages.quantize.schemes import SCHEMES

    train = open_dataset(DataConfig(source="images", path=data), 0).train
    source = FloatModel(keras.models.load_model(model, compile=False))
    started = time.perf_counter()
    SCHEMES["static_wi8_ai8"](source, CalibrationExamples(train, count, 0), QuantizeConfig())
    return {"peak": host_peak_bytes() or 0, "s": time.perf_counter() - started}


def evaluate(options: argparse.Namespace) -> None:
    """Seconds of both sides, their medians and ratio."""
    from shrink.data.config import DataConfig
    from shrink.data.opening import open_dataset

    data = {"source": "images", "path": str(options.data.resolve())}
    test = open_dataset(DataConfig.model_validate(data), 0).test
    x, labels = test.arrays(np.arange(len(test)))
    images, content = np.asarray(x, np.float32), options.artifact.read_bytes()
    ways = {
        name: functools.partial(timed, predict, content, images)
        for name, predict in (("one by one", one_by_one), ("shrink", by_shrink))
    }
    found = by_turns(ways, options.runs)
    seconds: dict[str, tuple[float, float]] = {}
    for name, runs in found.items():
        wall, cpu = (statistics.median(run[n] for run in runs) for n in (0, 1))
        seconds[name] = (wall, cpu)
        right = int(np.sum(runs[-1][2] == labels))
        say(f"{name:<10} {wall:6.2f} s  {cpu:6.2f} s CPU  {right:,} of {len(labels):,} right")
    wall, cpu = (one / ours for one, ours in zip(*seconds.values(), strict=True))
    say(f"ratio      {wall:6.2f}    {cpu:6.2f}        medians of {options.runs} alternating runs")


def timed(predict: Callable[[bytes, Any], Any], content: bytes, x: Any) -> tuple[float, float, Any]:
    """Return seconds and CPU seconds, loading included, and the largest output of each row."""
    started, cpu = time.perf_counter(), time.process_time()
    classes = predict(content, x)
    return time.perf_counter() - started, time.process_time() - cpu, classes


def one_by_one(content: bytes, x: Any) -> Any:
    """Return classes from an interpreter with a batch of 1."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=content)
    interpreter.allocate_tensors()
    (given,), (result,) = interpreter.get_input_details(), interpreter.get_output_details()
    scale, zero_point = given["quantization"]
    classes = []
    for row in x:
        values = row[None]
        if scale:
            values = np.clip(np.round(values / scale + zero_point), -128, 127)
        interpreter.set_tensor(given["index"], values.astype(given["dtype"]))
        interpreter.invoke()
        classes.append(int(interpreter.get_tensor(result["index"])[0].argmax()))
    return np.array(classes)


def by_shrink(content: bytes, x: Any) -> Any:
    """Return classes from the runner that evaluates every stage."""
    from shrink.tflite.interpreter import load

    return load(content).predict(x)[0].argmax(axis=1)


if __name__ == "__main__":
    main()
