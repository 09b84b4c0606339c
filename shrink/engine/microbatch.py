"""The exact training step: one step is one update on a global batch, in micro-batches.

Equal to one replica with one big batch, whatever the replicas, micro-batches and remainders:
the gradient is that of the mean loss over the global batch (see `shrink.engine.accumulate`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any, Protocol

import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import StageError
from shrink.base.keras_internals import layers_of
from shrink.base.types import Tensors
from shrink.engine.accumulate import (
    Accumulators,
    Batch,
    dense_gradients,
    micro_batches,
    out_of_line,
    sum_over_replicas,
    unpack,
)
from shrink.engine.config import TrainingConfig
from shrink.engine.devices import Devices
from shrink.engine.exactness import layers_that_compute, synchronising_layers
from shrink.engine.losses import at_least_float32
from shrink.engine.objective import (
    Objective,
    Totals,
    count_valid,
    mask_ignored,
    masked_outputs,
    weigh_masks,
)
from shrink.engine.planner import BatchPlan
from shrink.engine.randomness import RandomSeeds, counter, stateful_generators
from shrink.engine.recompute import steps_in_order
from shrink.engine.recovery import RecoveringStep, Retries
from shrink.engine.whole_split import WholeSplit


@functools.cache
def convert_nothing_of_shrink() -> None:
    """Have AutoGraph leave shrink's functions as they are, as it does with Keras' own.

    None of them branches on a tensor, and to convert those of a training step took two seconds,
    more than half of a small training. `tf.function(autograph=False)` would be no substitute: it
    also holds for what is called, a custom layer whose `call` says `if` of a tensor. TensorFlow
    has no public name for the list; without it, nothing but time is lost.
    """
    with suppress(ImportError, AttributeError):
        from tensorflow.python.autograph.core import config

        config.CONVERSION_RULES = (config.DoNotConvert("shrink"), *config.CONVERSION_RULES)


convert_nothing_of_shrink()

_MAX_POOLING = (keras.layers.MaxPooling1D, keras.layers.MaxPooling2D, keras.layers.MaxPooling3D)


class AfterUpdate(Protocol):
    """A function that runs after every update, in graph and cross-replica context, such as a mask.

    A mask that changes with the updates has `settles_after`, the update from which on the model
    is as sparse as the recipe says: no epoch that ends before is kept as the best.
    """

    def __call__(self, strategy: tf.distribute.Strategy, step: tf.Tensor) -> None:
        """Change variables through `strategy.extended.update`; `step`: updates so far, int64 ()."""


@dataclass(frozen=True)
class TrainingSetup:
    """What is trained: a model, and how a stage trains it.

    Attributes:
        model: a Keras model that was built inside `devices.scope()`.
        objective: what is minimised.
        config: batch, precision, optimizer and seed.
        devices: where it runs.
        metrics: names of metrics to follow beside the loss.
        after_update: called after every update, in graph; see `AfterUpdate`.
        epoch_metrics: metrics that are no means over batches, measured on the whole validation
            split after every epoch.
    """

    model: keras.Model
    objective: Objective
    config: TrainingConfig
    devices: Devices
    metrics: Sequence[str] = ()
    after_update: Sequence[AfterUpdate] = ()
    epoch_metrics: WholeSplit | None = None


class MicroBatchTrainer(keras.Model):
    """A model under training, for Keras' `fit` and `evaluate`; create it inside the scope.

    Args:
        setup: what is trained; the model's weights are updated in place.
        plan: how the global batch is split.
        retries: how a step that runs out of memory is repeated; by default it is an error.

    Attributes:
        seeds: counts the forward passes that draw random numbers, if there are any.
        recovering_step: makes the updates of `fit`, once it began.
        after_evaluation: measures metrics that are no means over batches; None without any.
        first_place: epoch and step, both from 0, at which `fit` begins.
        most_micro_batches: variable, int64 (): a probe trains on so many of a step alone.
    """

    def __init__(
        self, setup: TrainingSetup, plan: BatchPlan, retries: Retries | None = None
    ) -> None:
        super().__init__()
        self.train_function: RecoveringStep | None = None
        self.model = model = setup.model
        self.objective = setup.objective
        self.after_update = tuple(setup.after_update)
        self.seeds = RandomSeeds(setup.config.seed) if stateful_generators(model) else None
        self._in_order = setup.devices.in_order
        micro_batch_size = plan.micro_batch_size
        self._retries = retries or Retries()
        self.recovering_step: RecoveringStep | None = None
        self.after_evaluation: Callable[[], dict[str, float]] | None = None
        self.first_place = (0, 0)
        self.most_micro_batches: tf.Variable | None = None
        self._loss_mean = keras.metrics.Mean(name="loss")
        self._metric_means = [keras.metrics.Mean(name=name) for name in setup.metrics]
        # Known to Python, too: a heartbeat in every step must not wait for a device.
        self._size = micro_batch_size
        # int64, for TensorFlow keeps int32 variables on the CPU.
        self._micro_batch_size = tf.Variable(
            micro_batch_size, dtype=tf.int64, trainable=False, name="micro_batch_size"
        )
        # One micro-batch needs neither loop nor slices, unless a replica may have no example:
        # an empty batch would make batch normalisation's statistics NaN.
        self._looped = micro_batch_size < plan.most_rows or not plan.never_empty
        self._sums: Accumulators | None = None
        self._begun = counter("updates_begun")

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        """The means that Keras resets at the start of every epoch and evaluation."""
        return [self._loss_mean, *self._metric_means]

    @property
    def micro_batch_size(self) -> int:
        """Examples per forward pass and replica."""
        return self._size

    @property
    def updates_begun(self) -> int:
        """Updates that had all their gradients; more than `iterations` if one was cut short."""
        return int(self._begun.numpy())

    def reset_metrics(self) -> None:
        """Reset the means; Keras does so before every epoch and evaluation."""
        super().reset_metrics()
        if self.recovering_step is not None:
            self.recovering_step.state_changed()

    def set_micro_batch_size(self, size: int) -> None:
        """Change the examples per forward pass; traces again only if the step had no loop."""
        self._size = size
        self._micro_batch_size.assign(size)
        if not self._looped:
            self._looped = True
            self.test_function = None
            if self.recovering_step is not None:
                self._make_sums()
                self.recovering_step.retrace()

    def take_batches_whole(self) -> None:
        """Make each batch one micro-batch, without a loop, in the next train function."""
        self._looped = False

    def evaluate(self, *arguments: Any, **settings: Any) -> Any:
        """Return what Keras' `evaluate` does, with metrics that are no means over batches."""
        found = super().evaluate(*arguments, **settings)
        if self.after_evaluation is not None and isinstance(found, dict):
            found |= self.after_evaluation()
        return found

    def _maybe_load_initial_counters_from_ckpt(
        self, steps_per_epoch: int, initial_epoch: int
    ) -> tuple[int, int]:
        """Tell Keras' `fit` where to begin: its one door to the middle of an epoch."""
        return self.first_place

    def call(self, inputs: Tensors, training: bool | None = None) -> Tensors:
        """Run the model on inputs as the data set stores them, cast to the model's dtypes."""
        with steps_in_order() if self._in_order else nullcontext():
            return self.model(cast_inputs(self.model, inputs), training=training)

    def make_train_function(self, force: bool = False) -> RecoveringStep:
        """Return the function that makes one update on the next batch of an iterator."""
        if self.train_function is None or force:
            self._make_sums()
            self.train_function = self.recovering_step = RecoveringStep(self, self._retries)
        return self.train_function

    def _make_sums(self) -> None:
        """Create accumulators where they are needed, and only there: they take memory."""
        self._sums = None
        if self._looped and not self._loops_outside():
            with self.distribute_strategy.scope():
                self._sums = Accumulators(self.model.trainable_variables)

    def _loops_outside(self) -> bool:
        """Whether the loop over micro-batches runs outside of the replicas.

        Layers that exchange values between replicas in their forward pass cannot do so inside a
        loop of each replica's own.
        """
        several = self.distribute_strategy.num_replicas_in_sync > 1
        return self._looped and several and bool(synchronising_layers(self.model))

    def make_update(self, data: Tensors) -> dict[str, tf.Tensor]:
        """Make one update on a distributed global batch; call it in cross-replica context.

        Returns:
            The metrics, by name, of each replica.
        """
        strategy = self.distribute_strategy
        if self._loops_outside():
            return self._update_in_step(strategy, data)
        return strategy.run(self.train_step, args=(data,))

    def _update_in_step(
        self, strategy: tf.distribute.Strategy, data: Tensors
    ) -> dict[str, tf.Tensor]:
        """Make one update in which every micro-batch is a pass of all replicas together.

        All replicas have the same number of micro-batches: each splits its examples evenly over
        them. The accumulators stay with their replicas until the end.
        """
        size = self._micro_batch_size.read_value()

        def begin(data: Tensors) -> tuple[Totals, list[tf.Tensor]]:
            sums = [tf.zeros(v.shape, v.dtype) for v in self.model.trainable_variables]
            return self._totals(unpack(data)), sums

        def accumulate(
            data: Tensors, index: tf.Tensor, count: tf.Tensor, totals: Totals, sums: list[tf.Tensor]
        ) -> list[tf.Tensor]:
            batch = unpack(data)
            part = batch.part(index, count, self._rows_of(batch, size))
            return [a + g for a, g in zip(sums, self._gradients(part, totals), strict=True)]

        def update(sums: list[tf.Tensor]) -> dict[str, tf.Tensor]:
            # What comes out of the loop is on no device yet, and cannot be reduced from there.
            return self._update([tf.identity(one) for one in sums])

        totals, sums = strategy.run(begin, args=(data,))
        rows = strategy.experimental_local_results(totals.rows)[0]
        largest_share = -(-rows // strategy.num_replicas_in_sync)
        count = tf.maximum(-(-largest_share // size), 1)
        _, sums = tf.while_loop(
            lambda index, _: index < count,
            lambda index, sums: (
                index + 1,
                strategy.run(accumulate, args=(data, index, count, totals, sums)),
            ),
            (tf.constant(0, tf.int64), sums),
            parallel_iterations=1,  # see `shrink.engine.accumulate.micro_batches`
        )
        return strategy.run(update, args=(sums,))

    def train_step(self, data: Tensors) -> dict[str, tf.Tensor]:
        """Make one update on the global batch of which `data` is this replica's share."""
        batch = unpack(data)
        totals = self._totals(batch)
        sums = self._sums
        if sums is None:
            return self._update(self._gradients(batch, totals))

        def body(part: Batch, nothing: list[tf.Tensor]) -> list[tf.Tensor]:
            self._gradients(part, totals, sums.add)
            return nothing

        size = self._micro_batch_size.read_value()
        sums.clear()
        pools = any(isinstance(layer, _MAX_POOLING) for layer in layers_of(self.model))
        alone = self.distribute_strategy.num_replicas_in_sync == 1
        on_cpu = not tf.config.list_logical_devices("GPU")
        inner = out_of_line(body) if pools and alone and on_cpu else body
        micro_batches(batch, size, inner, [], self._rows_of(batch, size))
        return self._update(sums.values())

    def test_step(self, data: Tensors) -> dict[str, tf.Tensor]:
        """Measure loss and metrics on one batch, in micro-batches too."""
        batch = unpack(data)
        totals = self._totals(batch)

        def body(part: Batch, nothing: list[tf.Tensor]) -> list[tf.Tensor]:
            outputs = self(part.x, training=False)
            mask_ignored(self.objective, part.y, outputs)
            weigh_masks(outputs, totals)
            losses = self.objective.validation_loss(part.y, outputs)
            self._follow(part, outputs, _weighted(losses, part), self._regularisation(losses.dtype))
            return nothing

        if self._looped:
            micro_batches(batch, self._micro_batch_size.read_value(), body, [])
        else:
            body(batch, [])
        return {metric.name: metric.result() for metric in self.metrics}

    def _rows_of(self, batch: Batch, micro_batch_size: tf.Tensor) -> tf.Tensor:
        """Return how many examples of a batch to train on, int64 ()."""
        if self.most_micro_batches is None:
            return batch.rows
        return tf.minimum(batch.rows, self.most_micro_batches.read_value() * micro_batch_size)

    def _totals(self, batch: Batch) -> Totals:
        """Return the sums over the global batch of which `batch` is this replica's share."""
        ignored = self.objective.ignored(len(getattr(self.model, "outputs", None) or ()))
        counts = [tf.constant(0, tf.int64)] * masked_outputs(self.model, ignored)
        if not counts:
            # Also makes the group of replicas before one can fail, which would abort it for good.
            return Totals(sum_over_replicas(batch.rows))

        # Nothing but the masks of this forward pass is used: the rest is pruned from the graph.
        def count(part: Batch, counts: list[tf.Tensor]) -> list[tf.Tensor]:
            outputs = self(part.x, training=False)
            mask_ignored(self.objective, part.y, outputs, part.valid)
            valid = count_valid(outputs)
            return [a + b for a, b in zip(counts, valid, strict=True)]

        if self._looped:
            counts = micro_batches(batch, self._micro_batch_size.read_value(), count, counts)
        else:
            counts = count(batch, counts)
        rows, *valid = sum_over_replicas([batch.rows, *counts])
        return Totals(rows, tuple(valid))

    def _gradients(
        self, part: Batch, totals: Totals, use: Callable[[int, tf.Tensor], None] | None = None
    ) -> Sequence[tf.Tensor]:
        """Return a micro-batch's part of the gradient, scaled where the optimizer scales.

        `use` takes each variable's index and its part as soon as it is computed.
        """
        variables = self.model.trainable_variables
        x, targets = part.x, self.objective.targets(part.x)
        if targets is not None:  # the model runs once they are computed
            with tf.control_dependencies(tf.nest.flatten(targets)):
                x = tf.nest.map_structure(tf.identity, x)
        if self.seeds is not None:
            self.seeds.begin()
        with tf.GradientTape() as tape:
            outputs = self(x, training=True)
            mask_ignored(self.objective, part.y, outputs)
            weigh_masks(outputs, totals)
            losses = _weighted(self.objective.loss(part.y, outputs, targets), part)
            rows = tf.cast(part.rows, losses.dtype)
            # Keras' regularisers are per batch: weighted by rows they count once in the mean.
            regularisation = self._regularisation(losses.dtype)
            total = tf.reduce_sum(losses) + regularisation * rows
            loss = total / tf.cast(totals.rows, losses.dtype)
            if _scales_loss(self.optimizer):
                loss = self.optimizer.get_scaled_loss(loss)
        self._follow(part, outputs, losses, regularisation)
        try:
            return dense_gradients(tape, loss, variables, use)
        except LookupError as error:
            raise self._no_gradient(error) from error

    def _no_gradient(self, error: LookupError) -> Exception:
        """Return TensorFlow's complaint about an operation without a gradient, with its layer."""
        problem, _, operation = str(error).strip("'\"").partition("no entry for: ")
        if "gradient registry" not in problem:
            return error
        graph = tf.compat.v1.get_default_graph()
        names = layers_that_compute(operation, self.model, graph) or [self.model.name]
        return StageError(
            f"the layer {' or '.join(names)} cannot be trained through: TensorFlow has no gradient "
            f"of {operation}",
            hint="put it in front of all layers that are trained, set trainable=False on those "
            "before it, or leave random changes to data.augment",
        )

    def _regularisation(self, dtype: tf.DType) -> tf.Tensor:
        losses = self.model.losses
        if not losses:
            return tf.zeros((), dtype)
        return tf.add_n([tf.cast(at_least_float32(loss), dtype) for loss in losses])

    def _follow(
        self, part: Batch, outputs: Tensors, losses: tf.Tensor, regularisation: tf.Tensor
    ) -> None:
        self._loss_mean.update_state(losses + regularisation, part.valid)
        for mean in self._metric_means:
            mean.update_state(self.objective.metric(mean.name, part.y, outputs), part.valid)

    def _update(self, gradients: Sequence[tf.Tensor]) -> dict[str, tf.Tensor]:
        """Apply the sum of all replicas' gradients, wholly or not at all; return the metrics."""
        gradients, variables = sum_over_replicas(gradients), self.model.trainable_variables
        # The optimizer starts after the last gradient: a step that runs out of memory would
        # else count as an update already.
        with tf.control_dependencies(gradients):
            begun = self._begun.assign_add(1)
        with tf.control_dependencies([begun]):
            gradients = [tf.identity(gradient) for gradient in gradients]
            if _scales_loss(self.optimizer):
                gradients = self.optimizer.get_unscaled_gradients(gradients)
            pairs = zip(gradients, variables, strict=True)
            self.optimizer.apply_gradients(pairs, skip_gradients_aggregation=True)
        if self.after_update:

            def call_hooks(strategy: tf.distribute.Strategy) -> None:
                step = self.optimizer.iterations.read_value()
                for hook in self.after_update:
                    hook(strategy, step)

            tf.distribute.get_replica_context().merge_call(call_hooks)
        return {metric.name: metric.result() for metric in self.metrics}


def cast_inputs(model: keras.Model, x: Tensors) -> Tensors:
    """Cast a structure of inputs, (n, ...) each, to the dtypes of a functional model's inputs."""
    inputs = getattr(model, "inputs", None)
    if not inputs:
        return x
    if isinstance(x, dict):
        dtypes = dict(zip(model.input_names, (i.dtype for i in inputs), strict=True))
        return {name: tf.cast(value, dtypes.get(name, value.dtype)) for name, value in x.items()}
    flat = [tf.cast(v, i.dtype) for v, i in zip(tf.nest.flatten(x), inputs, strict=True)]
    return tf.nest.pack_sequence_as(x, flat)


def _weighted(losses: tf.Tensor, part: Batch) -> tf.Tensor:
    if part.valid is not None:
        losses = tf.where(part.valid, losses, tf.zeros_like(losses))
    if part.sample_weight is None:
        return losses
    weights = tf.reshape(tf.cast(part.sample_weight, losses.dtype), tf.shape(losses))
    return losses * weights


def _scales_loss(optimizer: keras.optimizers.Optimizer) -> bool:
    return isinstance(optimizer, keras.mixed_precision.LossScaleOptimizer)
