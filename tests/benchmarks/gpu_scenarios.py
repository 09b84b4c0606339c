"""What the checks of a GPU run in processes of their own: one training each, on whatever there is.

They run on logical CPU devices as well, where the tests rehearse them.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.base.types import Spec
from shrink.data.pipeline import training_batches
from shrink.engine.config import OptimizerConfig, TrainingConfig
from shrink.engine.devices import distribute_batches, open_devices
from shrink.engine.microbatch import TrainingSetup
from shrink.engine.objective import SupervisedObjective
from shrink.engine.plan_training import plan_step
from shrink.engine.planner import BatchPlan
from shrink.engine.probe import TrainingStep, ZeroExamples
from shrink.engine.recompute import recomputed
from shrink.engine.recovery import Retries
from shrink.engine.small_tensors_watch import SmallTensorsWatch
from shrink.engine.trainer import build_trainer
from shrink.measure.memory import nvml_note
from shrink.measure.training_peak import TrainingPeak
from tests.benchmarks.architectures import CLASSES, build, loss_of, specs
from tests.benchmarks.planning import StepClock

_HOLE = 1 << 20


class RandomExamples(ZeroExamples):
    """Random examples, the same for the same index."""

    def arrays(self, indices: np.ndarray) -> tuple[Any, Any]:
        """Return a batch of them as arrays."""

        def drawn(spec: Spec) -> np.ndarray:
            random = [np.random.default_rng(int(index)) for index in indices]
            rows: list[np.ndarray]
            if spec.dtype.kind in "iu":
                rows = [one.integers(0, CLASSES, spec.shape) for one in random]
            else:
                rows = [one.random(spec.shape) for one in random]
            return np.stack(rows).astype(spec.dtype)

        return tf.nest.map_structure(drawn, (self.input_spec, self.target_spec))


def devices() -> dict[str, Any]:
    """Return what TensorFlow is and which devices it sees; opens none of them."""
    gpus = tf.config.list_physical_devices("GPU")
    details = [tf.config.experimental.get_device_details(gpu) for gpu in gpus]
    build = tf.sysconfig.get_build_info()
    return {
        "tensorflow": tf.__version__,
        "cuda": str(build.get("cuda_version", "")),
        "cudnn": str(build.get("cudnn_version", "")),
        "gpus": [
            {
                "name": str(one.get("device_name", gpu.name)),
                "compute_capability": ".".join(map(str, one.get("compute_capability", ()))),
            }
            for gpu, one in zip(gpus, details, strict=True)
        ],
    }


def planned(architecture: str, batch_size: int, memory_limit: int) -> list[int | None]:
    """Return the micro-batch that the planner chooses for a limit, and its predicted peak."""
    step = TrainingStep(*_setup(architecture, batch_size, memory_limit, 1, "float32"))
    chosen = plan_step(step, memory_limit)
    return [chosen.micro_batch_size, chosen.predicted_bytes]


def trained(
    architecture: str,
    batch_size: int,
    micro_batch_size: int,
    *,
    memory_limit: int | None = None,
    replicas: int = 1,
    precision: str = "float32",
    recompute: str = "off",
    steps: int = 6,
    held_bytes: int = 0,
    weights: str | None = None,
) -> dict[str, Any]:
    """Train for some steps; return peaks, steps that ran out of memory, times, and NVML's words.

    The first step is measured by itself: libraries try their work spaces in it.

    Args:
        architecture: a name that `build` knows.
        batch_size: examples of an update, over all replicas.
        micro_batch_size: examples per forward pass and replica.
        memory_limit: bytes of each logical GPU.
        replicas: logical devices that train together.
        precision: a policy of Keras.
        recompute: `off` or `auto`.
        steps: updates.
        held_bytes: of the device that others hold, in blocks of 1 MiB with holes of the same size
            between them.
        weights: a .npz file to write the weights to.
    """
    tf.config.experimental.enable_tensor_float_32_execution(False)
    setup, examples = _setup(architecture, batch_size, memory_limit, replicas, precision, recompute)
    blocks = _fragments(setup.devices.device_names[0], held_bytes)
    share = -(-batch_size // replicas)
    plan = BatchPlan(steps, share, min(micro_batch_size, share), never_empty=True)

    def batches(step: int) -> Any:
        read = training_batches(
            examples, global_batch_size=batch_size, seed=0, first_step=step, last_step=steps
        )
        return distribute_batches(read, setup.devices)

    trainer = build_trainer(
        setup,
        plan,
        total_updates=steps,
        retries=Retries(lambda step: iter(batches(step))),
    )
    memory = TrainingPeak(setup.devices.device_names)
    memory.reset()
    clock = StepClock()
    first = _FirstStep(memory)
    watch = SmallTensorsWatch(memory.small, lambda: 0)
    with recomputed(setup.model, recompute, trainer.seeds):
        history = trainer.fit(
            batches(0), epochs=1, steps_per_epoch=steps, verbose=0, callbacks=[watch, clock, first]
        )
    if weights is not None:
        np.savez(Path(weights), *setup.model.get_weights())
    step = trainer.recovering_step
    later_peak = memory.parts().total or 0
    return {
        "peak": max(first.peak, later_peak),
        "first_peak": first.peak,
        "later_peak": later_peak,
        "first_s": clock.step_s[0],
        "training_s": sum(clock.step_s),
        "events": [] if step is None else [[e.step, e.micro_batch_size] for e in step.events],
        "micro_batch_size": trainer.micro_batch_size,
        "examples_per_s": batch_size / statistics.median(clock.step_s[1:]),
        "loss": float(history.history["loss"][-1]),
        "blocks": len(blocks),
        "nvml": nvml_note() if setup.devices.on_gpu else None,
    }


class _FirstStep(keras.callbacks.Callback):
    """Notes the peak of the first step, and starts to measure anew."""

    def __init__(self, memory: TrainingPeak) -> None:
        super().__init__()
        self.peak = 0
        self._memory = memory

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == 0:
            self.peak = self._memory.parts().total or 0
            self._memory.reset()


def fitted(architecture: str, batch_size: int, steps: int = 20) -> dict[str, Any]:
    """Return peak and speed of plain Keras `fit` on the same batches, resident on the host."""
    tf.config.experimental.enable_tensor_float_32_execution(False)
    setup, examples = _setup(architecture, batch_size, None, 1, "float32")
    model = setup.model
    model.compile(keras.optimizers.Adam(), keras.losses.SparseCategoricalCrossentropy(True))
    data = training_batches(
        examples, global_batch_size=batch_size, seed=0, first_step=0, last_step=steps
    )
    memory = TrainingPeak(setup.devices.device_names)
    memory.reset()
    clock = StepClock()
    watch = SmallTensorsWatch(memory.small, lambda: 0)
    model.fit(data, steps_per_epoch=steps, verbose=0, callbacks=[watch, clock])
    return {
        "peak": memory.parts().total,
        "examples_per_s": batch_size / statistics.median(clock.step_s[1:]),
    }


def _setup(
    architecture: str,
    batch_size: int,
    limit: int | None,
    replicas: int,
    precision: str,
    recompute: str = "off",
) -> tuple[TrainingSetup, RandomExamples]:
    config = TrainingConfig(
        global_batch_size=batch_size,
        replicas=replicas,
        memory_limit=limit,
        precision=precision,  # type: ignore[arg-type]
        recompute=recompute,  # type: ignore[arg-type]
        optimizer=OptimizerConfig(name="adam"),
    )
    opened = open_devices(config)
    keras.utils.set_random_seed(0)
    with opened.scope():
        model = build(architecture)
    objective = SupervisedObjective(loss_of(architecture), from_logits=True)
    examples = RandomExamples(*specs(architecture, model), batch_size)
    return TrainingSetup(model, objective, config, opened), examples


def _fragments(device: str, held_bytes: int) -> list[tf.Tensor]:
    """Return blocks that hold so many bytes, with a free hole behind each."""
    with tf.device(device):
        blocks = [tf.zeros([_HOLE], tf.uint8) for _ in range(2 * (held_bytes // _HOLE))]
    kept = blocks[::2]
    del blocks
    return kept
