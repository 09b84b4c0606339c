"""What metrics of 10,000 examples cost, beside the stage that they are measured in.

    python -m tests.benchmarks.bench_metrics --cifar10 FOLDER --resnet8 model.h5 [--turns 5]

One `shrink run` quantizes the model (int8) and measures it on the 10,000 test images, with accuracy
alone: the least that a stage with so many examples does. Its artifact's outputs are then scored in
this process, with the interval, the table by class and the paired resamples that a stage keeps,
with accuracy alone and with one more metric by turns: what it adds, in seconds of a processor, and
in parts of the stage's seconds by the clock, is a line; so is what all of them add together.
Medians; a run takes about a minute on two idle cores. Of detectors see `bench_intervals`.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from shrink.base.types import Array
from shrink.task.artifact import Batch, evaluate_batches
from shrink.task.task import Task
from shrink.tflite.interpreter import load
from tests.benchmarks.harness import by_turns, say, stages_of_run

METRICS = (
    *("balanced_accuracy", "precision", "recall", "f1", "roc_auc", "average_precision"),
    *("expected_calibration_error", "log_loss", "brier", "top_k"),
)
"""Those of scores of several classes; the last three are means over examples."""
_RECIPE = """\
name: metrics
model: {model}
data: {{source: images, path: {data}}}
stages:
  - quantize: {{scheme: int8}}
"""


def main() -> None:
    """Print what each metric adds, alone and with all others."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cifar10", type=Path, required=True, help="{train,test}/<class>/*")
    parser.add_argument("--resnet8", type=Path, required=True, help="the model's .h5 file")
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-metrics-") as folder:
        recipe = _RECIPE.format(model=options.resnet8.resolve(), data=options.cifar10.resolve())
        Path(folder, "recipe.yaml").write_text(recipe, encoding="utf-8")
        stage = stages_of_run(Path(folder))["quantize"]
        outputs, labels = answers(Path(folder, "out", stage["artifact"]), options.cifar10 / "test")
    took = float(stage["duration_s"])
    say(f"quantize with accuracy alone: {took:.1f} s, {len(labels)} test images")
    chosen = {"accuracy": ["accuracy"]}
    chosen |= {metric: ["accuracy", metric] for metric in METRICS}
    chosen["all of them"] = ["accuracy", *METRICS]
    ways = {name: _scored(outputs, labels, metrics) for name, metrics in chosen.items()}
    seconds = {
        name: statistics.median(found) for name, found in by_turns(ways, options.turns).items()
    }
    least = seconds.pop("accuracy")
    say(f"accuracy: {least:.2f} s of these")
    for name, own in seconds.items():
        say(f"{name}: {own - least:+.2f} s, {(own - least) / took:+.1%} of the stage")


def answers(artifact: Path, folder: Path) -> tuple[Array, Array]:
    """Return the artifact's outputs on the pictures of a folder, and their classes, by LiteRT."""
    paths = [sorted(of_class.iterdir()) for of_class in sorted(folder.iterdir())]
    labels = np.repeat(np.arange(len(paths)), [len(own) for own in paths])
    pixels = np.stack([np.asarray(Image.open(path)) for own in paths for path in own])
    runner = load(artifact)
    inputs = {runner.input_names[0]: pixels.astype(np.float32)}
    (outputs,) = runner.predict(inputs, batch_size=250)
    return outputs, labels


def _scored(outputs: Array, labels: Array, metrics: Sequence[str]) -> Callable[[], float]:
    task = Task(
        ("sparse_categorical_crossentropy",),
        tuple(metrics),
        monitor="accuracy",
        from_logits=(False,),
        input_names=("input",),
        loss_weights=(1.0,),
        classes=tuple("abcdefghij"),
    )

    def seconds() -> float:
        began = time.process_time()
        parts = np.array_split(np.arange(len(labels)), max(1, len(labels) // 250))
        batches: list[Batch] = [([outputs[own]], [labels[own]], [None]) for own in parts]
        evaluate_batches(batches, len(labels), task, ())
        return time.process_time() - began

    return seconds


if __name__ == "__main__":
    main()
