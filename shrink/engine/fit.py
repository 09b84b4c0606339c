"""Training to its end: epochs, validation, patience, the best weights."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import DataError, RecipeError
from shrink.base.figures import METRICS
from shrink.base.measured import Measured
from shrink.contract.training import Training
from shrink.data.dataset import Dataset
from shrink.data.pipeline import (
    evaluation_batches,
    naming_bad_examples,
    training_batches,
)
from shrink.engine.batch_norm import batch_norm_mode, frozen_statistics
from shrink.engine.class_weights import class_weights_of, with_class_weights
from shrink.engine.devices import (
    Devices,
    average_local_variables,
    distribute_batches,
    restore_local_variables,
    share_weights,
)
from shrink.engine.exactness import inexact_because, mixes_examples
from shrink.engine.microbatch import AfterUpdate, MicroBatchTrainer
from shrink.engine.objective import Objective
from shrink.engine.planner import BatchPlan, plan_batches
from shrink.engine.progress import (
    BestWeights,
    EarlyStop,
    OnProgress,
    ProgressCallback,
    first_settled_epoch,
)
from shrink.engine.randomness import continued_randomness
from shrink.engine.recompute import recomputed
from shrink.engine.record import MemoryTimeline, TrainingRecord
from shrink.engine.recovery import Watcher, evidence_of, is_out_of_memory, needs_fresh_process
from shrink.engine.resume import Cadence, Checkpointing, Recovery
from shrink.engine.trainer import build_trainer
from shrink.measure.memory import AllocatorPeak

_LOOKED_AT = 4
_TOO_SMALL = "training used less memory than the allocator counts (tensors under 256 KiB)"


def train(
    model: keras.Model,
    dataset: Dataset,
    *,
    objective: Objective,
    config: Training,
    devices: Devices,
    epochs: int,
    metrics: Sequence[str],
    monitor: str,
    after_update: Sequence[AfterUpdate] = (),
    on_progress: OnProgress | None = None,
    stage: str = "",
    recovery: Recovery | None = None,
    cadence: Cadence | None = None,
    validation_batch_size: int | None = None,
) -> TrainingRecord:
    """Train a model in place, inside what memory there is, and return how that went.

    Args:
        model: a Keras model that was built inside `devices.scope()`.
        dataset: trained on its train split; each epoch is measured on its validation split.
        objective: what is minimised.
        config: batch, precision, optimizer and seed.
        devices: where it runs.
        epochs: passes over the train split; 0 changes nothing.
        metrics: names of metrics to follow beside the loss.
        monitor: `loss` or one of the metrics: decides which epoch is best.
        after_update: called after every update, in graph; see `AfterUpdate`.
        on_progress: see `ProgressCallback`.
        stage: name of the stage, for errors.
        recovery: where checkpoints are kept, and what happened in earlier attempts.
        cadence: when a checkpoint is due.
        validation_batch_size: examples per batch of validation; by default those of training, in
            its micro-batches.

    Raises:
        StageError: the loss became NaN or infinite.
        ResourceError: out of memory at a micro-batch of one example.
        RecipeError: the optimizer does not take an argument, or the monitor is not measured.
        DataError: there is nothing to train on, or to find the best epoch on.
    """
    _check(dataset, config, metrics, monitor, stage)
    restore_local_variables(model, devices)
    share_weights(model, devices)
    examples, checks = len(dataset.train), len(dataset.validation)
    plan = plan_batches(config, devices.replicas, examples, checks)
    trainer = build_trainer(
        model,
        objective,
        config,
        devices,
        plan,
        trainer_class=MicroBatchTrainer,
        total_updates=plan.steps * epochs,
        metrics=metrics,
        after_update=after_update,
    )
    if validation_batch_size is not None:
        trainer.set_validation_size(math.ceil(validation_batch_size / devices.replicas))
    progress = ProgressCallback(
        on_progress,
        stage=stage,
        epochs=epochs,
        examples=examples,
        global_batch_size=config.global_batch_size,
        every_step=not devices.on_gpu,
    )
    first_epoch = first_settled_epoch(after_update, steps=plan.steps, epochs=epochs)
    best = _best_weights(model, config, monitor, first_epoch)
    memory = AllocatorPeak(devices.device_names)
    recovery = recovery or Recovery()
    trainer.watcher = recovery.watcher
    trainer.recovers_alone = devices.workers == 1
    checkpoints = Checkpointing(
        trainer,
        recovery,
        steps=plan.steps,
        progress=progress,
        best=best,
        memory=memory,
        cadence=cadence or Cadence(),
        devices=devices,
    )
    checkpoints.resume()
    memory.reset()
    timeline = MemoryTimeline(memory, checkpoints.first_update)
    stop = _early_stop(config, monitor, checkpoints, first_epoch)
    ends = [callback for callback in (best, stop) if callback is not None]
    callbacks = [progress, *ends, timeline, checkpoints]
    with _telling(recovery.watcher):
        with recomputed(model, config.recompute, trainer.seeds) as notes:
            checkpoints.notes += notes
            if stop is not None and stop.is_over() and best is not None:
                best.on_train_end()
            else:
                first = checkpoints.first_update
                size = validation_batch_size or config.global_batch_size
                validation = _validation(dataset, size, devices)
                _fit(trainer, dataset, config, devices, plan, epochs, callbacks, first, validation)
        average_local_variables(model, devices)
    record = _record(trainer, dataset, config, devices, plan, progress, checkpoints, memory)
    return replace(record, memory_timeline=timeline.to_dict())


def _fit(
    trainer: MicroBatchTrainer,
    dataset: Dataset,
    config: Training,
    devices: Devices,
    plan: BatchPlan,
    epochs: int,
    callbacks: list[Any],
    first_update: int,
    validation: dict[str, Any],
) -> None:
    if epochs == 0:
        return

    def batches_from(step: int) -> Any:
        batches = training_batches(
            dataset.train,
            global_batch_size=config.global_batch_size,
            seed=config.seed,
            first_step=step,
            last_step=plan.steps * epochs,
        )
        if config.class_weights is not None:
            weights = class_weights_of(config.class_weights, dataset)
            batches = with_class_weights(batches, weights)
        return distribute_batches(batches, devices)

    trainer.replay = lambda step: iter(batches_from(step))
    trainer.first_place = divmod(first_update, plan.steps)
    with (
        batch_norm_mode(trainer.model, config.batch_norm),
        continued_randomness(trainer.model, trainer.seeds),
        naming_bad_examples(dataset.train, dataset.validation),
    ):
        trainer.fit(
            batches_from(first_update),
            epochs=epochs,
            steps_per_epoch=plan.steps,
            callbacks=callbacks,
            verbose=0,
            **validation,
        )


@contextmanager
def _telling(watcher: Watcher | None) -> Iterator[None]:
    """Tell the watcher of an error that says: not in this process, but maybe in another."""
    try:
        yield
    except (tf.errors.OpError, MemoryError) as error:
        memory = is_out_of_memory(error)
        if watcher is not None and (memory or needs_fresh_process(error)):
            watcher.lost(evidence_of(error), memory=memory)
        raise


def _validation(dataset: Dataset, batch_size: int, devices: Devices) -> dict[str, Any]:
    examples = len(dataset.validation)
    if examples == 0:
        return {}
    batches = evaluation_batches(dataset.validation, batch_size)
    return {
        "validation_data": distribute_batches(batches, devices),
        "validation_steps": math.ceil(examples / batch_size),
    }


def _best_weights(
    model: keras.Model, config: Training, monitor: str, first_epoch: int
) -> BestWeights | None:
    if not (config.restore_best or config.patience):
        return None
    name, higher_is_better = _direction(monitor)
    return BestWeights(model, name, higher_is_better=higher_is_better, first_epoch=first_epoch)


def _early_stop(
    config: Training, monitor: str, checkpoints: Checkpointing, first_epoch: int
) -> EarlyStop | None:
    if config.patience is None:
        return None
    name, higher_is_better = _direction(monitor)
    return EarlyStop(
        name,
        config.patience,
        higher_is_better=higher_is_better,
        history=checkpoints.history,
        first_epoch=first_epoch,
    )


def _direction(monitor: str) -> tuple[str, bool]:
    """Return the monitor's name in the logs, and whether higher is better."""
    name = monitor.removeprefix("val_")
    return f"val_{name}", name != "loss" and METRICS[name].higher_is_better


def _record(
    trainer: MicroBatchTrainer,
    dataset: Dataset,
    config: Training,
    devices: Devices,
    plan: BatchPlan,
    progress: ProgressCallback,
    checkpoints: Checkpointing,
    memory: AllocatorPeak,
) -> TrainingRecord:
    micro_batch_size = trainer.micro_batch_size
    accumulation_steps = math.ceil(plan.most_rows / micro_batch_size)
    peak = checkpoints.peak_bytes  # before a further forward pass
    reasons = _inexact_because(
        trainer,
        dataset,
        config,
        devices.replicas,
        accumulation_steps,
        continued=checkpoints.first_update > 0,
    )
    return TrainingRecord(
        replicas=devices.replicas,
        workers=devices.workers,
        global_batch_size=config.global_batch_size,
        micro_batch_size=micro_batch_size,
        accumulation_steps=accumulation_steps,
        precision=config.precision,
        memory_limit_bytes=config.memory_limit,
        oom_events=checkpoints.events,
        exact=not reasons,
        inexact_because=reasons,
        epochs=len(checkpoints.history.get("loss", ())),
        updates=int(trainer.optimizer.iterations.numpy()),
        examples_per_s=progress.throughput.examples_per_s,
        history=checkpoints.history,
        training_peak_bytes=Measured(peak, "" if peak is not None else memory.note or _TOO_SMALL),
        notes=tuple(checkpoints.notes),
    )


def _inexact_because(
    trainer: MicroBatchTrainer,
    dataset: Dataset,
    config: Training,
    replicas: int,
    accumulation_steps: int,
    *,
    continued: bool,
) -> tuple[str, ...]:
    model = trainer.model
    known = inexact_because(
        model,
        replicas=replicas,
        accumulation_steps=accumulation_steps,
        batch_norm=config.batch_norm,
        continued=continued,
    )
    if known or replicas * accumulation_steps == 1:
        return known
    count = _batch_size_of(model) or _LOOKED_AT
    x, _ = dataset.train.arrays(np.arange(count) % len(dataset.train))
    with frozen_statistics(model):
        mixed = mixes_examples(lambda part: trainer(part, training=True), x, config.precision)
    why = "the outputs of an example depend on the others of its batch"
    return (f"{model.name}: {why}",) if mixed else ()


def _batch_size_of(model: keras.Model) -> int | None:
    """Return the only batch size that a model takes, None where it takes any."""
    inputs = getattr(model, "inputs", None)
    return inputs[0].shape[0] if inputs else None


def _check(
    dataset: Dataset, config: Training, metrics: Sequence[str], monitor: str, stage: str
) -> None:
    if len(dataset.train) == 0:
        raise DataError("there are no training examples", subject=stage or None)
    if monitor.removeprefix("val_") not in ("loss", *metrics):
        raise RecipeError(
            f"the monitor {monitor} is not measured; there is {', '.join(['loss', *metrics])}",
            subject="task.monitor",
            hint=f"add {monitor} to task.metrics",
        )
    if (config.restore_best or config.patience) and len(dataset.validation) == 0:
        key = "restore_best" if config.restore_best else "patience"
        raise DataError(
            "there are no validation examples to find the best epoch on",
            subject=f"training.{key}",
            hint=f"raise data.validation_split, or leave out training.{key}",
        )
