"""Training runs that need a fresh process each."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.base.host import host_peak_bytes
from shrink.data.dataset import Dataset
from shrink.data.pipeline import training_batches
from shrink.engine.config import TrainingConfig
from shrink.engine.devices import Devices, open_devices
from shrink.engine.objective import SupervisedObjective
from shrink.measure.memory import AllocatorPeak
from tests.engine._exactness import (
    OPTIMIZERS,
    difference,
    examples,
    small_model,
    train_by_hand,
)
from tests.engine._toys import ArrayExamples, splits, stepped, trained

BATCH_SIZE, COUNT, EPOCHS = 24, 61, 2


def dataset(count: int = COUNT, validation: int = 10) -> Dataset:
    """Random examples of `small_model`, split in order."""
    x, y = examples(count + validation)
    return splits(x, y, train=count)


def _devices(replicas: int, policy: str = "float64") -> Devices:
    keras.backend.set_floatx(policy)
    devices = open_devices(TrainingConfig(replicas=replicas))
    keras.mixed_precision.set_global_policy(policy)
    keras.utils.set_random_seed(1)
    return devices


def run_all(replicas: int) -> dict[str, Any]:
    """Return the results of all scenarios on that many replicas."""
    devices = _devices(replicas)
    return {
        "plain_fit": {"difference": plain_fit(devices) if replicas > 1 else None},
        "masked": masked(devices),
        "out_of_memory": out_of_memory(devices),
        "larger": larger(devices),
    }


class CountingObjective(SupervisedObjective):
    """Counts the graphs that its loss is built into."""

    def __init__(self) -> None:
        super().__init__("sparse_categorical_crossentropy", from_logits=True)
        self.losses_traced = 0
        self.dtypes: set[str] = set()

    def targets(self, x: Any) -> None:
        self.dtypes.add(x.dtype.name)
        return None

    def loss(self, y: Any, outputs: Any, targets: Any) -> Any:
        self.losses_traced += 1
        return super().loss(y, outputs, targets)


def larger(devices: Devices) -> dict[str, Any]:
    """Train on uint8 images, large enough for the allocator to count."""
    random = np.random.default_rng(0)
    x = random.integers(0, 256, (61, 32, 32, 3), np.uint8)
    part = ArrayExamples(x, random.integers(0, 5, 61))
    layers = keras.layers
    with devices.scope():
        inputs = layers.Input((32, 32, 3))
        hidden = layers.GlobalMaxPooling2D()(layers.Conv2D(32, 3)(inputs))
        model = keras.Model(inputs, layers.Dense(5)(hidden))
    objective = CountingObjective()
    record = trained(
        model,
        Dataset(part, validation=part, test=part, class_names=(), num_classes=5),
        TrainingConfig(global_batch_size=24, replicas=devices.replicas),
        monitor="accuracy",
        devices=devices,
        objective=objective,
        metrics=("accuracy",),
    )
    return {
        "losses_traced": objective.losses_traced,
        "replicas": devices.replicas,
        "peak": record.peaks["training_peak_bytes"].value,
        "uint8": objective.dtypes == {"uint8"},
    }


def plain_fit(devices: Devices) -> float:
    """Return how far Keras' own fit is from one big batch with an uneven last batch."""
    data = examples(COUNT)
    reference = small_model()
    start = reference.get_weights()
    train_by_hand(reference, OPTIMIZERS["sgd"](), data, BATCH_SIZE, EPOCHS)
    with devices.scope():
        model = small_model()
        model.set_weights(start)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(OPTIMIZERS["sgd"](), loss)
    model.fit(tf.data.Dataset.from_tensor_slices(data).batch(BATCH_SIZE), epochs=EPOCHS, verbose=0)
    return difference(model, reference)


class MaskHook:
    """Multiplies a kernel by a mask, and counts its calls."""

    def __init__(self, kernel: Any, mask: Any) -> None:
        self._kernel, self._mask = kernel, mask
        self.steps = tf.Variable(0, dtype=tf.int64, trainable=False)
        self.calls = tf.Variable(0, dtype=tf.int64, trainable=False)

    def __call__(self, strategy: Any, step: Any) -> None:
        strategy.extended.update(self._kernel, lambda v, m: v.assign(v * m), args=(self._mask,))
        strategy.extended.update(self.steps, lambda v, s: v.assign(s), args=(step,))
        strategy.extended.update(self.calls, lambda v: v.assign_add(1))


def masked(devices: Devices) -> dict[str, float]:
    """Mask a kernel after every update, with the engine and by hand."""
    data = examples(COUNT)
    reference = small_model()
    start = reference.get_weights()
    mask = np.random.default_rng(0).integers(0, 2, start[0].shape).astype(start[0].dtype)
    optimizer, kernel = OPTIMIZERS["adam"](), reference.layers[1].kernel
    for _ in range(EPOCHS):
        for first in range(0, COUNT, BATCH_SIZE):
            part = tuple(array[first : first + BATCH_SIZE] for array in data)
            train_by_hand(reference, optimizer, part, BATCH_SIZE, epochs=1)
            kernel.assign(kernel * mask)
    with devices.scope():
        model = small_model()
        model.set_weights(start)
        hook = MaskHook(model.layers[1].kernel, mask)
    batches = tf.data.Dataset.from_tensor_slices(data).batch(BATCH_SIZE)
    stepped(
        model,
        OPTIMIZERS["adam"],
        batches.repeat(EPOCHS),
        devices,
        rows=BATCH_SIZE // devices.replicas,
        micro_batch_size=5,
        steps=-(-COUNT // BATCH_SIZE),
        epochs=EPOCHS,
        after_update=[hook],
    )
    untrained = small_model()
    untrained.set_weights(start)
    return {
        "difference": difference(model, reference),
        "moved": difference(model, untrained),
        "masked_out": float(np.abs(model.get_weights()[0] * (1 - mask)).max()),
        "hook_calls": int(hook.calls.numpy()),
        "updates": int(hook.steps.numpy()),
    }


class MemoryFault:
    """Raises MemoryError, which TensorFlow takes for its own, at micro-batches above a limit.

    Args:
        update: the update that fails.
        limit: the most rows that fit.
        passes: calls of each size that pass, so that a step fails after it has begun.
    """

    def __init__(self, update: int, limit: int, passes: int) -> None:
        self.updates_made = 0
        self._update, self._limit, self._passes = update, limit, passes
        self._seen: dict[int, int] = {}

    def __call__(self, x: Any) -> Any:
        if self.updates_made == self._update and len(x) > self._limit:
            self._seen[len(x)] = self._seen.get(len(x), 0) + 1
            if self._seen[len(x)] > self._passes:
                raise MemoryError("injected")
        return x

    def after_update(self, strategy: Any, step: Any) -> None:
        """Note how many updates were made."""
        tf.numpy_function(self._note, [step], tf.int64)

    def _note(self, step: Any) -> Any:
        self.updates_made = int(step)
        return step


def _fragile_model(fault: MemoryFault | None) -> Any:
    """Batch normalisation, then a place where memory runs out."""
    layers = keras.layers
    inputs = layers.Input((6, 6, 2))
    hidden = layers.BatchNormalization()(layers.Flatten()(inputs))
    if fault is not None:
        hidden = layers.Lambda(_through(fault))(hidden)
    return keras.Model(inputs, layers.Dense(5)(hidden))


def _through(fault: MemoryFault) -> Any:
    def pass_on(hidden: Any) -> Any:
        passed = tf.numpy_function(lambda x: fault(x), [hidden], hidden.dtype)
        # numpy_function has no gradient.
        return hidden + tf.stop_gradient(tf.ensure_shape(passed, hidden.shape) - hidden)

    return pass_on


class SmallerFrom(keras.callbacks.Callback):
    """Sets a smaller micro-batch before a given update."""

    def __init__(self, update: int, size: int) -> None:
        super().__init__()
        self._update, self._size = update, size

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if int(self.model.optimizer.iterations.numpy()) == self._update:
            self.model.set_micro_batch_size(self._size)


def out_of_memory(devices: Devices) -> dict[str, Any]:
    """Run out of memory twice in one update, against a run that lowers the micro-batch itself."""
    replicas = devices.replicas
    data, first, last = dataset(validation=0), 12 // replicas, 12 // replicas // 2 // 2
    start = _fragile_model(None).get_weights()
    fault = MemoryFault(update=3, limit=last, passes=replicas)
    with devices.scope():
        model, reference = _fragile_model(fault), _fragile_model(None)
        model.set_weights(start)
        reference.set_weights(start)
    config = TrainingConfig(
        global_batch_size=BATCH_SIZE, replicas=replicas, micro_batch_size=first, seed=3
    )
    record = trained(
        model,
        data,
        config,
        devices=devices,
        metrics=("accuracy",),
        after_update=[fault.after_update],
    )
    loss = _train_with_smaller(reference, data, config, devices, first, last)
    weights, expected = model.get_weights(), reference.get_weights()
    differences = [float(np.abs(a - b).max()) for a, b in zip(weights, expected, strict=True)]
    events = record.described().oom_events
    return {
        "micro_batch_sizes": [event.micro_batch_size for event in events],
        "steps": [event.step for event in events],
        "evidence": [event.evidence for event in events],
        "iterations": record.updates,
        "updates": fault.updates_made,
        "final": record.micro_batch_size,
        # gamma, beta, moving mean, moving variance, kernel, bias
        "difference": max(differences),
        "statistics": max(differences[2:4]),
        "moved": float(np.abs(weights[4] - start[4]).max()),
        "loss": abs(record.history["loss"][-1] - loss),
    }


def one_replica_fails() -> dict[str, Any]:
    """Run out of memory on the second of two replicas, after the first has begun to sum."""
    config = TrainingConfig(global_batch_size=BATCH_SIZE, replicas=2, micro_batch_size=12)
    devices = open_devices(config)
    failed: set[int] = set()

    def fail(x: Any, replica: Any) -> Any:
        if replica == 1 and len(x) > 6:
            time.sleep(1)
            failed.add(int(replica))
            raise MemoryError("OOM when allocating tensor with shape[12,5] (injected)")
        return x

    def through(hidden: Any) -> Any:
        context = tf.distribute.get_replica_context()
        replica = 0 if context is None else context.replica_id_in_sync_group
        passed = tf.numpy_function(fail, [hidden, replica], hidden.dtype)
        return hidden + tf.stop_gradient(tf.ensure_shape(passed, hidden.shape) - hidden)

    layers = keras.layers
    with devices.scope():
        inputs = layers.Input((6, 6, 2))
        hidden = layers.Dense(5)(layers.Flatten()(inputs))
        model = keras.Model(inputs, layers.Lambda(through)(hidden))
    record = trained(model, dataset(validation=0), config, devices=devices)
    return {
        "failed": sorted(failed),
        "micro_batch_sizes": [event.micro_batch_size for event in record.oom_events],
        "updates": record.updates,
        "final": record.micro_batch_size,
    }


def _train_with_smaller(
    model: Any, data: Dataset, config: TrainingConfig, devices: Devices, first: int, last: int
) -> float:
    steps = -(-len(data.train) // BATCH_SIZE)
    batches = training_batches(
        data.train,
        global_batch_size=BATCH_SIZE,
        seed=config.seed,
        first_step=0,
        last_step=steps * EPOCHS,
    )
    history = stepped(
        model,
        lambda: keras.optimizers.Adam(1e-3),
        batches,
        devices,
        rows=BATCH_SIZE // devices.replicas,
        micro_batch_size=first,
        steps=steps,
        epochs=EPOCHS,
        callbacks=[SmallerFrom(3, last)],
        config=config,
    )
    return history["loss"][-1]


def refused_by_the_allocator() -> dict[str, Any]:
    """Train with more memory than the allocator was told to give."""
    keras.utils.set_random_seed(0)
    random = np.random.default_rng(0)
    x = random.integers(0, 256, (256, 32, 32, 3), np.uint8)
    part = ArrayExamples(x, random.integers(0, 5, 256))
    layers = keras.layers
    inputs = hidden = layers.Input((32, 32, 3))
    for _ in range(3):
        hidden = layers.Conv2D(16, 3, padding="same", activation="relu")(hidden)
    hidden = layers.GlobalAveragePooling2D()(hidden)
    model = keras.Model(inputs, layers.Dense(5)(hidden))
    config = TrainingConfig(global_batch_size=256)
    data = Dataset(part, validation=part, test=part, class_names=(), num_classes=5)
    record = trained(model, data, config, monitor="accuracy", metrics=("accuracy",))
    return {
        "micro_batch_size": record.micro_batch_size,
        "accumulation_steps": record.accumulation_steps,
        "updates": record.updates,
        "evidence": [event.evidence for event in record.oom_events],
        "peak": record.peaks["training_peak_bytes"].value,
    }


def opening_bytes() -> int:
    """Return by how much this process grows, in bytes, where it opens a CPU without a limit."""
    tf.zeros(()).numpy()
    before = host_peak_bytes()
    open_devices(TrainingConfig())
    return host_peak_bytes() - before


def lent_bytes(memory_limit: int, size: int) -> int:
    """Return what the allocator lends for a tensor of so many bytes under a memory limit."""
    opened = open_devices(TrainingConfig(memory_limit=memory_limit))
    peak = AllocatorPeak(opened.device_names)
    before = peak.held() or 0
    tensor = tf.zeros([size], tf.uint8)
    lent = (peak.held() or 0) - before
    del tensor
    return lent
