"""Peaks of training: as the planner predicts them, beside Keras' `fit`, and with recomputation.

Run: python -m tests.benchmarks.bench_memory [--only predictions|fit|recompute] [--nets conv ...]

predictions: the peak of a micro-batch on the line through the last two smaller ones, beside the
peak that the same process measures: ten nets, SGD and Adam, 32 to 256 examples.

fit: the peak of eight nets in one micro-batch of 64, beside `fit` of tf-keras with Adam.

recompute: peak and milliseconds per step of three nets with `recompute: auto`, beside `off`.

Each training has a process of its own. All parts take about half an hour on two idle cores.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

from tests.benchmarks import gpu_scenarios, planning
from tests.benchmarks.architectures import APPLICATIONS, ARCHITECTURES, REGRESSIONS
from tests.benchmarks.harness import apart, say

BATCH = 64
_CLASSIFIERS = ("conv", "depthwise", "residual", "dense_connected", "attention")


def main() -> None:
    """Print the figures of all parts."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=list(PARTS))
    parser.add_argument("--nets", nargs="+", choices=[*ARCHITECTURES, *APPLICATIONS])
    parser.add_argument("--optimizers", nargs="+", default=["sgd", "adam"])
    options = parser.parse_args()
    for name, part in PARTS.items():
        if options.only in (None, name):
            part(options)


def predictions(options: argparse.Namespace) -> None:
    """Print how far predicted peaks are from measured ones."""
    errors = []
    for name in options.nets or ARCHITECTURES:
        for optimizer in options.optimizers:
            rows = apart(planning.predicted, architecture=name, optimizer=optimizer)
            found = {size: predicted / measured - 1 for size, predicted, measured in rows}
            errors += [abs(error) for error in found.values()]
            say(f"{name:15} {optimizer:5} {', '.join(f'{s}: {e:+.1%}' for s, e in found.items())}")
    within = sum(error <= 0.08 for error in errors)
    say(
        f"{len(errors)} predictions: median error {statistics.median(errors):.1%}, {within} within "
        f"8 %, largest {max(errors):.1%}"
    )


def beside_fit(options: argparse.Namespace) -> None:
    """Print peaks beside those of Keras' `fit`."""
    for name in options.nets or (*_CLASSIFIERS, *APPLICATIONS):
        if name not in REGRESSIONS:
            keras = apart(gpu_scenarios.fitted, architecture=name, batch_size=BATCH, steps=6)
            ours = _trained(name)
            say(
                f"{name:15} fit {keras['peak'] / 1e6:7.1f} MB, shrink {ours['peak'] / 1e6:7.1f} MB,"
                f" ratio {ours['peak'] / keras['peak']:.2f}"
            )


def recompute(options: argparse.Namespace) -> None:
    """Print what recomputation saves and costs."""
    for name in options.nets or APPLICATIONS:
        plain, again = _trained(name), _trained(name, recompute="auto")
        ms = [1000 * BATCH / one["examples_per_s"] for one in (plain, again)]
        say(
            f"{name:15} peak {plain['peak'] / 1e6:.1f} to {again['peak'] / 1e6:.1f} MB"
            f" ({again['peak'] / plain['peak']:.2f}), step {ms[0]:.0f} to {ms[1]:.0f} ms"
            f" ({ms[1] / ms[0]:.2f})"
        )


def _trained(name: str, **settings: Any) -> dict[str, Any]:
    return apart(
        gpu_scenarios.trained,
        architecture=name,
        batch_size=BATCH,
        micro_batch_size=BATCH,
        **settings,
    )


PARTS = {"predictions": predictions, "fit": beside_fit, "recompute": recompute}

if __name__ == "__main__":
    main()
