"""Seconds to evaluate an artifact: shrink's runner against one picture at a time.

Run: python tests/benchmarks/bench_evaluation.py --artifact model.tflite --data pictures [--runs 3]

`--data` is a folder {train,test}/<class>/*. Both sides get the same test pictures, read beforehand,
and have to find the same number of right answers, but for ties. The loop is the usual one: an
interpreter, and for each picture `set_tensor`, `invoke`, `get_tensor`. The runner takes many
pictures at a time and two threads: on a machine with one core to spare, only the first helps.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def main() -> None:
    """Alternate both sides and print medians and their ratio."""
    import numpy as np

    from shrink.data.config import DataConfig
    from shrink.data.opening import open_dataset

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--artifact", required=True, type=Path)
    parser.add_argument("--data", required=True, type=Path)
    parser.add_argument("--runs", default=3, type=int)
    options = parser.parse_args()
    data = {"source": "images", "path": str(options.data.resolve())}
    test = open_dataset(DataConfig.model_validate(data), 0).test
    x, labels = test.arrays(np.arange(len(test)))
    pictures = np.asarray(x, np.float32)
    content = options.artifact.read_bytes()
    loop: list[tuple[float, float]] = []
    ours: list[tuple[float, float]] = []
    right = [0, 0]
    for _ in range(options.runs):
        for side, (predict, times) in enumerate(((one_by_one, loop), (by_shrink, ours))):
            *seconds, classes = timed(predict, content, pictures)
            times.append((seconds[0], seconds[1]))
            right[side] = int(np.sum(classes == labels))
    a, b = (
        [statistics.median(column) for column in zip(*side, strict=True)] for side in (loop, ours)
    )
    write = sys.stdout.write
    for name, (wall, cpu), count in zip(("one by one", "shrink"), (a, b), right, strict=True):
        write(f"{name:<10} {wall:6.2f} s  {cpu:6.2f} s CPU  {count:,} of {len(labels):,} right\n")
    write(f"ratio      {a[0] / b[0]:6.2f}    {a[1] / b[1]:6.2f}")
    write(f"        medians of {options.runs} alternating runs\n")


def timed(predict: Callable[[bytes, Any], Any], content: bytes, x: Any) -> tuple[float, float, Any]:
    """Return seconds and CPU seconds, loading included, and the largest output of each row."""
    started, cpu = time.perf_counter(), time.process_time()
    classes = predict(content, x)
    return time.perf_counter() - started, time.process_time() - cpu, classes


def one_by_one(content: bytes, x: Any) -> Any:
    """Return classes from an interpreter with a batch of 1."""
    import numpy as np
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
