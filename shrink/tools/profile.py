"""`shrink profile`: memory and time of training and inference, layer by layer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.base import files
from shrink.base.errors import ModelError
from shrink.base.host import host_peak_bytes
from shrink.base.types import Spec, Specs
from shrink.contract.events import Send
from shrink.contract.findings import LayerMemory, PeakRow, Profile, StepMoment
from shrink.contract.job import ProfileJob
from shrink.engine.config import TrainingConfig
from shrink.engine.devices import open_devices
from shrink.engine.microbatch import TrainingSetup
from shrink.engine.objective import SupervisedObjective
from shrink.engine.planner import largest_that_fits, predict, search, usable
from shrink.engine.probe import TrainingStep, ZeroExamples, counted_bytes
from shrink.graph.network import read_network
from shrink.measure.training_peak import TrainingPeak
from shrink.model.load import check_stateless, load_source

_STEPS = 4


def write_trace(step: TrainingStep, rows: int, folder: Path, work: Path) -> list[str]:
    """Trace a few training steps and return the files that were written.

    Args:
        step: the training step.
        rows: examples per replica and step, all in one micro-batch.
        folder: TensorBoard's log folder; the profile is at `plugins/profile/<time>/` in it.
        work: where TensorFlow writes first.

    Raises:
        ResourceError: out of memory, or the folder cannot be written.
    """
    step.use_no_loop()
    batches = step.batches(rows)
    step.make_update(batches)  # builds the graph, which no other step does
    tf.profiler.experimental.start(str(work))
    try:
        for number in range(_STEPS):
            with tf.profiler.experimental.Trace("train", step_num=number, _r=1):
                step.make_update(batches)
    finally:
        tf.profiler.experimental.stop()
    written = []
    for source in sorted(work.rglob("*.xplane.pb")):
        target = folder / source.relative_to(work)
        files.write_bytes(target, source.read_bytes())
        written.append(str(target))
    return written


_BEYOND = 4


def profile(job: ProfileJob, send: Send) -> Profile:
    """Make a few training steps and return what memory they took.

    Batch sizes double. The loss is the mean square of the outputs and the optimizer Adam: the
    memory of a step hardly depends on either. The trace is written to the job's folder `trace`.
    """
    batch_size, limit = job.batch_size, job.memory_limit
    config = TrainingConfig(global_batch_size=batch_size, memory_limit=limit)
    devices = open_devices(config)
    keras.utils.set_random_seed(config.seed)
    with devices.scope():
        model = load_source(job.model)
        check_stateless(model, job.model.path)
    layers, moments = step_memory(model, batch_size)
    probed: dict[int, int] = {}
    split, trace = None, []
    memory = TrainingPeak(devices.device_names)
    note, missing = memory.note, "" if memory.is_complete else memory.small.note
    if not note:
        objective = SupervisedObjective("mean_squared_error", from_logits=True)
        step = TrainingStep(
            TrainingSetup(model, objective, config, devices), zeros_for(model, batch_size)
        )
        within = None if limit is None else usable(limit, step.margin)
        probed = search(step.whole_peak, step.plan.most_rows, within)
        if probed:
            split = split_peak(step, probed[max(probed)])
        if probed and job.trace is not None:
            work = job.work / "trace"
            trace = write_trace(step, max(probed), job.trace, work)
    rows = -(-batch_size // devices.replicas)
    fits = None if limit is None or note else largest_that_fits(probed, limit)
    return Profile(
        model=job.name,
        batch_size=batch_size,
        training_peak_bytes=probed.get(rows) or None,
        training_peak_predicted_bytes=predict(probed, rows) or None,
        largest_batch_size=None if fits is None else fits * devices.replicas,
        memory_limit_bytes=limit,
        training_host_peak_bytes=host_peak_bytes(),
        curve=tuple(peak_curve(probed, rows, devices.replicas)),
        split=split,
        layers=layers,
        step=moments,
        devices=tuple(devices.device_names),
        trace=tuple(trace),
        notes=tuple(_notes(probed, rows, limit, note, missing)),
    )


def _notes(
    probed: Mapping[int, int], rows: int, limit: int | None, note: str, missing: str
) -> list[str]:
    if note:
        return [
            "training_peak_bytes, training_peak_predicted_bytes, largest_batch_size: " + note,
        ]
    bound = f"training_peak_bytes: a lower bound, without tensors under 256 KiB: {missing}"
    notes = [bound] if missing else []
    if probed.get(rows) == 0:
        notes.append("training_peak_bytes: all tensors are too small for the allocator to count")
    elif rows not in probed:
        notes.append("training_peak_bytes: not measured, it is expected to exceed the limit")
    if predict(probed, rows) is None:
        notes.append("training_peak_predicted_bytes: predictions need two smaller batch sizes")
    if limit is None:
        notes.append("largest_batch_size: there is no limit; give --memory-limit")
    return notes


def peak_curve(probed: Mapping[int, int], rows: int, replicas: int) -> list[PeakRow]:
    """Return peak against batch size: measured where it was, and predicted, also beyond.

    Args:
        probed: peaks in bytes by examples per replica.
        rows: the requested examples per replica.
        replicas: copies of the model.
    """
    last = max(probed, default=rows)
    sizes = sorted({*probed, rows, *(last * 2**i for i in range(_BEYOND.bit_length()))})
    return [
        PeakRow(
            batch_size=size * replicas,
            training_peak_bytes=probed.get(size) or None,  # 0 is what was too small to count
            training_peak_predicted_bytes=predict(probed, size) or None,
        )
        for size in sizes
    ]


def split_peak(step: TrainingStep, peak: int) -> dict[str, int]:
    """Return what a peak is made of, in bytes.

    Activations and workspace are what remains of what the allocator counts, with the batches
    that are resident or waiting.
    """
    trainer = step.trainer
    parts = {
        "weights_bytes": trainer.model.variables,
        "gradients_bytes": trainer.model.trainable_variables,
        "optimizer_slots_bytes": trainer.optimizer.variables,
    }
    counted = sum(counted_bytes(part, counts_all=step.counts_all) for part in parts.values())
    return {
        **{name: counted_bytes(part, counts_all=True) for name, part in parts.items()},
        "activations_and_workspace_bytes": max(0, peak - counted),
    }


def zeros_for(model: keras.Model, count: int) -> ZeroExamples:
    """Return zeros for every input and output of a model."""
    inputs = [
        Spec(_dimensions(tensor), np.dtype(tensor.dtype.as_numpy_dtype)) for tensor in model.inputs
    ]
    targets = [Spec(_dimensions(tensor), np.dtype(np.float32)) for tensor in model.outputs]
    return ZeroExamples(_alone(inputs), _alone(targets), count)


def _alone(specs: list[Spec]) -> Specs:
    return specs[0] if len(specs) == 1 else tuple(specs)


def step_memory(
    model: keras.Model, batch_size: int
) -> tuple[tuple[LayerMemory, ...], tuple[StepMoment, ...]]:
    """Return what each layer holds, the most at the peak first, and what is alive over a step.

    By shapes: an output lives until the layer's gradient is computed, and its gradient from the
    backward pass of the last layer that reads it until then. Workspaces are not in it.
    """
    network = read_network(model)
    calls, maker = network.calls, dict[int, int]()
    sizes, last_reader = [], list(range(len(calls)))
    for number, call in enumerate(calls):
        item = tf.as_dtype(call.layer.compute_dtype or tf.float32).size
        elements = sum(math.prod(size or 1 for size in ref.shape[1:]) for ref in call.outputs)
        sizes.append(elements * item * batch_size)
        maker.update({ref.index: number for ref in call.outputs})
        for ref in call.inputs:
            if ref.index in maker:
                last_reader[maker[ref.index]] = number
    names = [network.name(call.layer) for call in calls]

    def alive(number: int, backward: bool) -> list[int]:
        """Return the bytes of each call's output and gradient while one call is computed."""
        return [
            size * (1 + (backward and last_reader[other] >= number))
            for other, size in enumerate(sizes[: number + 1])
        ]

    forward = [(number, False) for number in range(len(calls))]
    steps = [*forward, *((number, True) for number, _ in reversed(forward))]
    moments = tuple(
        StepMoment(
            layer=names[number],
            phase="backward" if backward else "forward",
            alive_bytes=sum(alive(number, backward)),
        )
        for number, backward in steps
    )
    peak = max(range(len(steps)), key=lambda index: moments[index].alive_bytes, default=None)
    at_peak = [] if peak is None else alive(*steps[peak])
    rows = []
    for layer in network.layers():
        own = [number for number, call in enumerate(calls) if call.layer is layer]
        weights = sum(math.prod(w.shape) * w.dtype.size for w in layer.weights)
        held = sum(at_peak[number] for number in own if number < len(at_peak))
        outputs = sum(sizes[number] for number in own)
        rows.append(
            LayerMemory(
                name=network.name(layer),
                activation_bytes=outputs,
                parameter_bytes=int(weights),
                peak_bytes=held,
            )
        )
    return tuple(sorted(rows, key=lambda row: -row.peak_bytes)), moments


def _dimensions(tensor: tf.Tensor) -> tuple[int, ...]:
    if any(size is None for size in tensor.shape[1:]):
        raise ModelError(
            f"the tensor {tensor.name!r} has dimensions of unknown size {tuple(tensor.shape)}",
            hint="profile a model with fixed input shapes",
        )
    return tuple(tensor.shape[1:])
