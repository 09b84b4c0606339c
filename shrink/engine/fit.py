"""The training loop: epochs, validation, early stopping, the best weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import tensorflow as tf

from shrink.base.errors import DataError, RecipeError
from shrink.base.figures import metric_figure
from shrink.base.progress import Progress
from shrink.base.types import Tensors
from shrink.data.dataset import Dataset
from shrink.data.pipeline import (
    evaluation_batches,
    naming_bad_examples,
    training_batches,
)
from shrink.engine.batch_norm import batch_norm_mode, frozen_statistics
from shrink.engine.class_weights import class_weights_of, with_class_weights
from shrink.engine.config import TrainingConfig
from shrink.engine.devices import (
    average_local_variables,
    distribute_batches,
    restore_local_variables,
    share_weights,
)
from shrink.engine.exactness import inexact_because, mixes_examples
from shrink.engine.microbatch import MicroBatchTrainer, TrainingSetup
from shrink.engine.planner import plan_batches
from shrink.engine.progress import (
    BestEpoch,
    OnProgress,
    ProgressCallback,
    first_settled_epoch,
)
from shrink.engine.randomness import continued_randomness
from shrink.engine.recompute import recomputed
from shrink.engine.record import MemoryTimeline, TrainingRecord
from shrink.engine.recovery import (
    Retries,
    Watcher,
    evidence_of,
    is_out_of_memory,
    needs_fresh_process,
)
from shrink.engine.resume import Checkpointing, Recovery
from shrink.engine.small_tensors_watch import SmallTensorsWatch
from shrink.engine.trainer import build_trainer
from shrink.measure.training_peak import NO_WINDOW, TrainingPeak

_EXAMPLES_COMPARED = 4
_TOO_SMALL = "training used less memory than the allocator counts (tensors under 256 KiB)"


def train(
    setup: TrainingSetup,
    dataset: Dataset,
    *,
    epochs: int,
    monitor: str,
    on_progress: OnProgress | None = None,
    stage: str = "",
    recovery: Recovery | None = None,
) -> TrainingRecord:
    """Train a model in place, within the memory limit, and return the record of it.

    Args:
        setup: what is trained.
        dataset: trained on its train split; each epoch is measured on its validation split.
        epochs: passes over the train split; 0 changes nothing.
        monitor: `loss` or one of the metrics: decides which epoch is best.
        on_progress: see `ProgressCallback`.
        stage: name of the stage, for errors.
        recovery: checkpoints, and what happened in earlier attempts.

    Raises:
        StageError: the loss became NaN or infinite.
        ResourceError: out of memory at a micro-batch of one example.
        RecipeError: the optimizer does not take an argument, or the monitor is not measured.
        DataError: there is nothing to train on, or to find the best epoch on.
    """
    config, devices, model = setup.config, setup.devices, setup.model
    extra = setup.epoch_metrics
    measured = ["loss", *setup.metrics, *(extra.names if extra is not None else ())]
    _check(dataset, config, measured, monitor, stage)
    recovery = recovery or Recovery()
    restore_local_variables(model, devices)
    share_weights(model, devices)
    plan = plan_batches(config, devices.replicas, len(dataset.train), len(dataset.validation))
    batches = _global_batches(setup, dataset, plan.steps * epochs)
    trainer = build_trainer(
        setup,
        plan,
        total_updates=plan.steps * epochs,
        retries=Retries(
            lambda update: iter(batches(update)),
            recovery.watcher,
            in_process=devices.retries_in_process,
        ),
    )
    if extra is not None and len(extra.examples):
        # The size is read when it measures: a smaller one may follow an out-of-memory error.
        trainer.after_evaluation = lambda: extra.measure(
            lambda x: trainer(x, training=False), trainer.micro_batch_size
        )
    progress = ProgressCallback(
        on_progress,
        stage=stage,
        epochs=epochs,
        examples=len(dataset.train),
        batch_size=config.global_batch_size,
        steps=plan.steps,
        every_step=not devices.on_gpu,
    )
    memory = TrainingPeak(devices.device_names)
    checkpoints = Checkpointing(
        trainer,
        recovery,
        steps=plan.steps,
        throughput=progress.throughput,
        memory=memory,
        devices=devices,
    )
    if config.restore_best or config.patience:
        name = monitor.removeprefix("val_")
        checkpoints.best = BestEpoch(
            model,
            f"val_{name}",
            higher_is_better=metric_figure(name).larger_is_better,
            history=checkpoints.history,
            patience=config.patience,
            first_epoch=first_settled_epoch(setup.after_update, steps=plan.steps, epochs=epochs),
        )
    best = checkpoints.best
    checkpoints.resume()
    if on_progress is not None and checkpoints.first_update:
        epoch, step = divmod(checkpoints.first_update, plan.steps)
        on_progress(Progress(epoch + 1, epochs, step, plan.steps, continued=True))
    memory.reset()
    timeline = MemoryTimeline(memory, checkpoints.first_update, plan.steps * epochs)
    watch = SmallTensorsWatch(memory.small, lambda: len(checkpoints.events))
    callbacks = [watch, progress, *([best] if best else []), timeline, checkpoints]
    with _reported(recovery.watcher):
        with (
            recomputed(model, config.recompute, trainer.seeds) as notes,
            batch_norm_mode(model, config.batch_norm),
            continued_randomness(model, trainer.seeds),
            naming_bad_examples(dataset.train, dataset.validation),
        ):
            checkpoints.notes += notes
            if best is not None and best.is_over():
                best.on_train_end()
            elif epochs > 0:
                checks = None
                if len(dataset.validation):
                    checks = distribute_batches(
                        evaluation_batches(
                            dataset.validation, config.global_batch_size, share=devices.share
                        ),
                        devices,
                    )
                trainer.first_place = divmod(checkpoints.first_update, plan.steps)
                try:
                    trainer.fit(
                        batches(checkpoints.first_update),
                        epochs=epochs,
                        steps_per_epoch=plan.steps,
                        callbacks=callbacks,
                        verbose=0,
                        validation_data=checks,
                        validation_steps=(
                            None if checks is None else config.batches_in(len(dataset.validation))
                        ),
                    )
                finally:
                    memory.small.discard()
        average_local_variables(model, devices)
    accumulation_steps = math.ceil(plan.most_rows / trainer.micro_batch_size)
    peak = checkpoints.peak  # before a further forward pass
    reasons = _inexact_because(
        setup, dataset, trainer, accumulation_steps, continued=checkpoints.first_update > 0
    )
    return TrainingRecord(
        replicas=devices.replicas,
        workers=devices.workers,
        global_batch_size=config.global_batch_size,
        micro_batch_size=trainer.micro_batch_size,
        accumulation_steps=accumulation_steps,
        precision=config.precision,
        memory_limit_bytes=config.memory_limit,
        oom_events=checkpoints.events,
        exact=not reasons,
        inexact_because=reasons,
        epochs=len(checkpoints.history.get("loss", ())),
        updates=int(trainer.optimizer.iterations.numpy()),
        examples_per_s=progress.throughput.examples_per_s,
        history={name: tuple(values) for name, values in checkpoints.history.items()},
        peak=peak,
        allocator_note=memory.note or _TOO_SMALL,
        small_note=memory.small.note or NO_WINDOW,
        notes=tuple(checkpoints.notes),
        memory_timeline={name: tuple(values) for name, values in timeline.columns.items()},
    )


def _inexact_because(
    setup: TrainingSetup,
    dataset: Dataset,
    trainer: MicroBatchTrainer,
    accumulation_steps: int,
    *,
    continued: bool,
) -> tuple[str, ...]:
    """Return why weights are not those of one replica with one big batch; empty if they are.

    The trained model is run on a few examples, as layers and losses of one's own may compute
    anything.
    """
    model, config, replicas = setup.model, setup.config, setup.devices.replicas
    known = inexact_because(
        model,
        replicas=replicas,
        accumulation_steps=accumulation_steps,
        batch_norm=config.batch_norm,
        continued=continued,
    )
    if replicas * accumulation_steps == 1:
        return known

    def losses(part: tuple[Tensors, Tensors]) -> Tensors:
        labels = tf.nest.map_structure(tf.convert_to_tensor, part[1])
        return setup.objective.validation_loss(labels, trainer(part[0], training=False))

    found = list(known)
    try:
        inputs = getattr(model, "inputs", None)
        count = (inputs[0].shape[0] if inputs else None) or _EXAMPLES_COMPARED
        x, y = dataset.train.arrays(np.arange(count) % len(dataset.train))
        if not known:
            with frozen_statistics(model):
                mixed = mixes_examples(lambda p: trainer(p, training=True), x, config.precision)
            why = "the outputs of an example depend on other examples of its batch"
            found += [f"{model.name}: {why}"] if mixed else []
        named = setup.objective.user_losses()
        if named and mixes_examples(losses, (x, y), config.precision):
            why = "the loss of an example depends on other examples of its batch"
            found.append(f"{', '.join(named)}: {why}")
    except Exception as error:  # layers and losses of one's own raise anything; so does memory
        why = f"unknown whether an example depends on other examples of its batch: {error}"
        found.append(f"{model.name}: {' '.join(why.split())[:300]}")
    return tuple(found)


def _global_batches(
    setup: TrainingSetup, dataset: Dataset, last_update: int
) -> Callable[[int], tf.data.Dataset | tf.distribute.DistributedDataset]:
    """Return the function from an update's index to the distributed batches from it on."""
    config = setup.config

    def batches_from(update: int) -> tf.data.Dataset | tf.distribute.DistributedDataset:
        batches = training_batches(
            dataset.train,
            global_batch_size=config.global_batch_size,
            seed=config.seed,
            first_step=update,
            last_step=last_update,
            share=setup.devices.share,
        )
        if config.class_weights is not None:
            weights = class_weights_of(config.class_weights, dataset)
            batches = with_class_weights(batches, weights)
        return distribute_batches(batches, setup.devices)

    return batches_from


@contextmanager
def _reported(watcher: Watcher) -> Iterator[None]:
    """Report an error after which another process can train on, and raise it."""
    try:
        yield
    except (tf.errors.OpError, MemoryError) as error:
        memory = is_out_of_memory(error)
        if memory or needs_fresh_process(error):
            watcher.report_fatal(evidence_of(error), memory=memory)
        raise


def _check(
    dataset: Dataset, config: TrainingConfig, measured: Sequence[str], monitor: str, stage: str
) -> None:
    if len(dataset.train) == 0:
        raise DataError("there are no training examples", subject=stage or None)
    if monitor.removeprefix("val_") not in measured:
        raise RecipeError(
            f"the monitor {monitor} is not measured; there is {', '.join(measured)}",
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
