"""What masks cost while training: steps of ResNet8 with and without them, by turns.

Run: python -m tests.benchmarks.bench_mask_cost [--rounds 20]

Batches of 128 zeros, Adam, one thread; a turn is 10 updates, in one of which masks are chosen
anew, as while the sparsity rises by the default schedule. Prints the medians of the processor's
time for an update, and the median of the ratios of neighbouring turns.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["TF_NUM_INTRAOP_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np

_BATCH, _UPDATES = 128, 10


def main() -> None:
    """Measure and print."""
    from shrink.pruning.masks import Masks, constant, polynomial, prunable_kernels

    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds

    def rising(model: Any) -> list[Any]:
        kernels = [k.kernel for k in prunable_kernels(model)[0]]
        return [Masks(kernels, polynomial(0.8, 1 << 30), 1 << 30, _UPDATES)]

    def fixed(model: Any) -> list[Any]:
        masks = Masks([k.kernel for k in prunable_kernels(model)[0]], constant(0.8))
        masks.prune_now(0.8)
        return [masks]

    ways = {"dense": lambda model: [], "sparsity rises": rising, "fixed masks": fixed}
    turns = {name: open_step(hooks) for name, hooks in ways.items()}
    times: dict[str, list[float]] = {name: [] for name in turns}
    for _ in range(rounds):
        for name, turn in turns.items():
            started = time.process_time()
            turn()
            times[name].append((time.process_time() - started) * 1e3 / _UPDATES)
    for name, found in times.items():
        ratio = np.median(np.divide(found, times["dense"]))
        sys.stdout.write(f"{name:<16} {np.median(found):8.2f} ms {ratio:6.3f}\n")


def open_step(hooks: Any) -> Any:
    """Return a function that makes 10 updates of a model of its own, traced."""
    import tf_keras as keras

    from models.resnet import build
    from shrink.contract.training import Training
    from shrink.engine.devices import open_devices
    from shrink.engine.objective import SupervisedObjective
    from shrink.engine.probe import TrainingStep
    from shrink.tools.profile import zeros_for

    keras.utils.set_random_seed(0)
    config = Training(global_batch_size=_BATCH)
    devices = open_devices(config)
    with devices.scope():
        model = build()
        after_update = hooks(model)
    objective = SupervisedObjective("mean_squared_error", from_logits=True)
    step = TrainingStep(
        model, zeros_for(model, _BATCH), objective, config, devices, after_update=after_update
    )
    step.use_no_loop()
    batches = step.batches(_BATCH)

    def turn() -> None:
        for _ in range(_UPDATES):
            step.make_update(batches)

    turn()
    return turn


if __name__ == "__main__":
    main()
