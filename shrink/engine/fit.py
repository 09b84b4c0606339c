"""Training to its end: epochs, validation, patience, the best weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import DataError, RecipeError
from shrink.base.figures import metric_figure
from shrink.base.types import Tensors
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
    average_local_variables,
    distribute_batches,
    restore_local_variables,
    share_weights,
)
from shrink.engine.exactness import inexact_because, mixes_examples
from shrink.engine.microbatch import MicroBatchTrainer
from shrink.engine.planner import plan_batches
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
from shrink.engine.recovery import (
    Retries,
    Watcher,
    evidence_of,
    is_out_of_memory,
    needs_fresh_process,
)
from shrink.engine.resume import Checkpointing, Recovery
from shrink.engine.small_tensors_watch import SmallTensorsWatch
from shrink.engine.trainer import TrainingSetup, build_trainer
from shrink.measure.training_peak import NO_WINDOW, TrainingPeak

_LOOKED_AT = 4
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
    validation_batch_size: int | None = None,
) -> TrainingRecord:
    """Train a model in place, inside what memory there is, and return how that went.

    Args:
        setup: what is trained.
        dataset: trained on its train split; each epoch is measured on its validation split.
        epochs: passes over the train split; 0 changes nothing.
        monitor: `loss` or one of the metrics: decides which epoch is best.
        on_progress: see `ProgressCallback`.
        stage: name of the stage, for errors.
        recovery: where checkpoints are kept and when, and what happened in earlier attempts.
        validation_batch_size: examples per batch of validation; by default those of training, in
            its micro-batches.

    Raises:
        StageError: the loss became NaN or infinite.
        ResourceError: out of memory at a micro-batch of one example.
        RecipeError: the optimizer does not take an argument, or the monitor is not measured.
        DataError: there is nothing to train on, or to find the best epoch on.
    """
    followed = [*setup.metrics, *(setup.whole.names if setup.whole is not None else ())]
    _check(dataset, setup.config, followed, monitor, stage)
    restore_local_variables(setup.model, setup.devices)
    share_weights(setup.model, setup.devices)
    run = _Run(setup, dataset, epochs, recovery or Recovery(), validation_batch_size)
    progress = ProgressCallback(
        on_progress,
        stage=stage,
        epochs=epochs,
        examples=len(dataset.train),
        global_batch_size=setup.config.global_batch_size,
        every_step=not setup.devices.on_gpu,
    )
    return run.train(progress, monitor)


class _Run:
    """One training of a model, from its first or its last update on to its end."""

    def __init__(
        self,
        setup: TrainingSetup,
        dataset: Dataset,
        epochs: int,
        recovery: Recovery,
        validation_batch_size: int | None,
    ) -> None:
        config, devices = setup.config, setup.devices
        plan = plan_batches(config, devices.replicas, len(dataset.train), len(dataset.validation))
        batches = _global_batches(setup, dataset, plan.steps * epochs)
        retries = Retries(
            lambda update: iter(batches(update)),
            recovery.watcher,
            in_process=devices.retries_in_process,
        )
        self._setup, self._dataset, self._epochs = setup, dataset, epochs
        self._plan, self._batches, self._recovery = plan, batches, recovery
        self._validation_batch_size = validation_batch_size or config.global_batch_size
        self._trainer = build_trainer(
            setup,
            plan,
            trainer_class=MicroBatchTrainer,
            total_updates=plan.steps * epochs,
            retries=retries,
        )
        if setup.whole is not None and len(setup.whole.examples):
            whole, size = setup.whole, self._validation_batch_size
            self._trainer.after_evaluation = lambda: whole.measure(self._infer, size)
        if validation_batch_size is not None:
            self._trainer.set_validation_size(math.ceil(validation_batch_size / devices.replicas))

    def _infer(self, x: Tensors) -> Tensors:
        return self._trainer(x, training=False)

    def train(self, progress: ProgressCallback, monitor: str) -> TrainingRecord:
        """Train, and return how that went."""
        model, config, devices = self._setup.model, self._setup.config, self._setup.devices
        hooks, steps = self._setup.after_update, self._plan.steps
        first_epoch = first_settled_epoch(hooks, steps=steps, epochs=self._epochs)
        best = _best_weights(model, config, monitor, first_epoch)
        memory = TrainingPeak(devices.device_names)
        checkpoints = Checkpointing(
            self._trainer,
            self._recovery,
            steps=steps,
            progress=progress,
            best=best,
            memory=memory,
            devices=devices,
        )
        checkpoints.resume()
        memory.reset()
        timeline = MemoryTimeline(memory, checkpoints.first_update)
        stop = _early_stop(config, monitor, checkpoints, first_epoch)
        ends = [callback for callback in (best, stop) if callback is not None]
        with _telling(self._recovery.watcher):
            with recomputed(model, config.recompute, self._trainer.seeds) as notes:
                checkpoints.notes += notes
                if stop is not None and stop.is_over() and best is not None:
                    best.on_train_end()
                elif self._epochs > 0:
                    watch = SmallTensorsWatch(memory.small, lambda: len(checkpoints.events))
                    callbacks = [watch, progress, *ends, timeline, checkpoints]
                    try:
                        self._fit(callbacks, checkpoints.first_update)
                    finally:
                        memory.small.discard()
            average_local_variables(model, devices)
        record = self._record(progress, checkpoints, memory)
        return replace(record, memory_timeline=timeline.to_dict())

    def _fit(self, callbacks: list[keras.callbacks.Callback], first_update: int) -> None:
        dataset, trainer = self._dataset, self._trainer
        size, examples = self._validation_batch_size, len(dataset.validation)
        checks = None
        if examples:
            checks = distribute_batches(
                evaluation_batches(dataset.validation, size), self._setup.devices
            )
        trainer.start_at(*divmod(first_update, self._plan.steps))
        with (
            batch_norm_mode(trainer.model, self._setup.config.batch_norm),
            continued_randomness(trainer.model, trainer.seeds),
            naming_bad_examples(dataset.train, dataset.validation),
        ):
            trainer.fit(
                self._batches(first_update),
                epochs=self._epochs,
                steps_per_epoch=self._plan.steps,
                callbacks=callbacks,
                verbose=0,
                validation_data=checks,
                validation_steps=math.ceil(examples / size) if examples else None,
            )

    def _record(
        self, progress: ProgressCallback, checkpoints: Checkpointing, memory: TrainingPeak
    ) -> TrainingRecord:
        config, devices, trainer = self._setup.config, self._setup.devices, self._trainer
        micro_batch_size = trainer.micro_batch_size
        accumulation_steps = math.ceil(self._plan.most_rows / micro_batch_size)
        peak = checkpoints.peak  # before a further forward pass
        continued = checkpoints.first_update > 0
        reasons = self._inexact_because(accumulation_steps, continued=continued)
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
            peak=peak,
            allocator_note=memory.note or _TOO_SMALL,
            small_note=memory.small.note or NO_WINDOW,
            notes=tuple(checkpoints.notes),
        )

    def _inexact_because(self, accumulation_steps: int, *, continued: bool) -> tuple[str, ...]:
        model, config = self._setup.model, self._setup.config
        replicas = self._setup.devices.replicas
        known = inexact_because(
            model,
            replicas=replicas,
            accumulation_steps=accumulation_steps,
            batch_norm=config.batch_norm,
            continued=continued,
        )
        if replicas * accumulation_steps == 1:
            return known
        try:
            return (*known, *self._mixing(looks_at_outputs=not known))
        except Exception as error:  # layers and losses of one's own raise anything; so does memory
            why = f"unknown whether an example depends on the others of its batch: {error}"
            return (*known, f"{model.name}: {' '.join(why.split())[:300]}")

    def _mixing(self, *, looks_at_outputs: bool) -> tuple[str, ...]:
        """Return the reasons that running the model on a few examples shows."""
        model, config = self._setup.model, self._setup.config
        train, trainer = self._dataset.train, self._trainer
        count = _batch_size_of(model) or _LOOKED_AT
        x, y = train.arrays(np.arange(count) % len(train))
        losses = self._mixing_losses(x, y)
        if not looks_at_outputs:
            return losses
        with frozen_statistics(model):
            mixed = mixes_examples(lambda part: trainer(part, training=True), x, config.precision)
        why = "the outputs of an example depend on the others of its batch"
        return (f"{model.name}: {why}", *losses) if mixed else losses

    def _mixing_losses(self, x: Tensors, y: Tensors) -> tuple[str, ...]:
        """Return a reason for the user's own losses where they look at other examples."""
        objective, trainer = self._setup.objective, self._trainer
        named = objective.user_losses()
        if not named:
            return ()

        def losses(part: tuple[Tensors, Tensors]) -> Tensors:
            labels = tf.nest.map_structure(tf.convert_to_tensor, part[1])
            return objective.validation_loss(labels, trainer(part[0], training=False))

        mixed = mixes_examples(losses, (x, y), self._setup.config.precision)
        why = "the loss of an example depends on the others of its batch"
        return (f"{', '.join(named)}: {why}",) if mixed else ()


def _global_batches(
    setup: TrainingSetup, dataset: Dataset, last_update: int
) -> Callable[[int], tf.data.Dataset | tf.distribute.DistributedDataset]:
    """Return what gives the global batches of training, distributed, from an update on."""
    config = setup.config

    def batches_from(update: int) -> tf.data.Dataset | tf.distribute.DistributedDataset:
        batches = training_batches(
            dataset.train,
            global_batch_size=config.global_batch_size,
            seed=config.seed,
            first_step=update,
            last_step=last_update,
        )
        if config.class_weights is not None:
            weights = class_weights_of(config.class_weights, dataset)
            batches = with_class_weights(batches, weights)
        return distribute_batches(batches, setup.devices)

    return batches_from


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
    return f"val_{name}", metric_figure(name).larger_is_better


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
