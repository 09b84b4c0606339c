"""Updates whose layers exchange values between replicas, and masked and weighted losses."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tensorflow as tf
import tensorflow_model_optimization as tfmot
import tf_keras as keras
from ai_edge_litert.interpreter import Interpreter

from shrink.data.dataset import Dataset
from shrink.engine import accumulate
from shrink.engine.config import BatchNormMode, OptimizerConfig, TrainingConfig
from shrink.engine.devices import Devices, open_devices
from shrink.engine.objective import SupervisedObjective
from shrink.engine.record import TrainingRecord
from tests.engine._exactness import difference
from tests.engine._toys import splits, stepped, trained
from tests.tflite.toys import to_float32

COUNT, BATCH_SIZE, EPOCHS = 53, 24, 2
SGD = OptimizerConfig(name="sgd", learning_rate=0.1, momentum=0.9)


def run_all(replicas: int, scenarios: list[str]) -> dict[str, Any]:
    """Return the results of scenarios, functions of this module, on that many replicas."""
    devices = open_devices(TrainingConfig(replicas=replicas))
    return {name: globals()[name](devices) for name in scenarios}


def packs(devices: Devices) -> dict[str, int]:
    """Count the sums over replicas of four gradients of 16 bytes, at some sizes of a message."""

    def count(pack_bytes: int) -> int:
        accumulate.PACK_BYTES = pack_bytes

        def replica() -> Any:
            return accumulate.sum_over_replicas([tf.ones(4) * n for n in range(4)])

        function = tf.function(lambda: devices.strategy.run(replica)).get_concrete_function()
        return sum("CollectiveReduce" in each.type for each in function.graph.get_operations())

    return {"one": count(accumulate.PACK_BYTES), "two": count(20)}


def _float64() -> None:
    keras.backend.set_floatx("float64")
    keras.mixed_precision.set_global_policy("float64")
    keras.utils.set_random_seed(1)


def normalised_model(synchronized: bool = False) -> Any:
    """A dense layer, batch normalisation, and five logits."""
    layers = keras.layers
    inputs = layers.Input((8,))
    norm = layers.BatchNormalization(synchronized=synchronized, momentum=0.5)
    return keras.Model(inputs, layers.Dense(5)(norm(layers.Dense(6)(inputs))))


def vectors(labels: Any = None) -> Dataset:
    """Random vectors of 8 numbers with five classes."""
    random = np.random.default_rng(0)
    x = random.normal(size=(COUNT, 8)).astype(keras.backend.floatx())
    return splits(x, random.integers(0, 5, COUNT) if labels is None else labels)


def fit(
    model: Any,
    devices: Devices,
    micro_batch_size: int,
    data: Dataset,
    *,
    batch_norm: BatchNormMode = "per_micro_batch",
    recompute: Literal["off", "auto"] | int = "off",
) -> TrainingRecord:
    """Train a model in place with SGD and momentum."""
    config = TrainingConfig(
        global_batch_size=BATCH_SIZE,
        micro_batch_size=micro_batch_size,
        batch_norm=batch_norm,
        recompute=recompute,
        optimizer=SGD,
    )
    return trained(model, data, config, epochs=EPOCHS, devices=devices)


def by_hand(model: Any, data: Dataset, loss_of: Callable[[Any, Any], Any]) -> None:
    """Make the same updates on whole batches; `loss_of(y, outputs)` is the loss of a batch."""
    from shrink.data.pipeline import training_batches

    optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
    steps = -(-COUNT // BATCH_SIZE)
    batches = training_batches(
        data.train, global_batch_size=BATCH_SIZE, seed=0, first_step=0, last_step=steps * EPOCHS
    )
    for x, y in batches:
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))


def cross_entropy(y: Any, outputs: Any) -> Any:
    """Return the mean cross-entropy of a batch of logits."""
    chosen = tf.one_hot(y, 5, dtype=outputs.dtype)
    return -tf.reduce_mean(tf.reduce_sum(chosen * tf.nn.log_softmax(outputs), axis=-1))


def loop(devices: Devices) -> dict[str, Any]:
    """Train in the cross-replica loop: a synchronised layer that stays out of training."""
    _float64()
    reference = normalised_model()
    start = reference.get_weights()
    reference.layers[2].trainable = False
    by_hand(reference, vectors(), cross_entropy)
    with devices.scope():
        model = normalised_model(synchronized=True)
        model.set_weights(start)
    model.layers[2].trainable = False
    record = fit(model, devices, 5, vectors())
    return {
        "difference": difference(model, reference),
        "moved": float(np.abs(model.get_weights()[0] - start[0]).max()),
        "updates": record.updates,
        "accumulation_steps": record.accumulation_steps,
        "exact": record.exact,
    }


def synchronized(devices: Devices) -> dict[str, Any]:
    """Train with `batch_norm: synchronized`, whole shares and micro-batches."""
    _float64()
    reference = normalised_model(synchronized=True)  # not fused: the biased variance
    start = reference.get_weights()
    by_hand(reference, vectors(), cross_entropy)
    with devices.scope():
        model = normalised_model()
        model.set_weights(start)
    record = fit(model, devices, BATCH_SIZE, vectors(), batch_norm="synchronized")
    return {
        "difference": difference(model, reference),
        "exact": record.exact,
        "layer_left_alone": not any(
            getattr(layer, "synchronized", False) for layer in model.layers
        ),
    }


def local_statistics(devices: Devices) -> dict[str, Any]:
    """Train with statistics of each replica; compare the model's conversion with the saved model.

    A counter adds up examples over all replicas, in two trainings one after the other.
    """
    keras.backend.set_floatx("float32")
    keras.mixed_precision.set_global_policy("float32")
    with devices.scope():
        inputs = keras.layers.Input((8,))
        normed = keras.layers.BatchNormalization(momentum=0.5)(ExampleCounter()(inputs))
        model = keras.Model(inputs, keras.layers.Dense(5)(normed))
    data = vectors()
    results: dict[str, Any] = {"seen": []}
    for _ in range(2):
        fit(model, devices, BATCH_SIZE, data)
        results["seen"].append(float(model.layers[1].seen.read_value()))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.keras"
        model.save(path)
        saved = keras.models.load_model(path, {"ExampleCounter": ExampleCounter}, compile=False)
    x, _ = data.train.arrays(np.arange(COUNT))
    expected = saved.predict(x, verbose=0)
    artifact = to_float32(model)
    interpreter = Interpreter(model_content=artifact)
    (given,), (taken,) = interpreter.get_input_details(), interpreter.get_output_details()
    interpreter.resize_tensor_input(given["index"], x.shape)
    interpreter.allocate_tensors()
    interpreter.set_tensor(given["index"], x)
    interpreter.invoke()
    converted = interpreter.get_tensor(taken["index"])
    return results | {
        "difference": float(np.abs(converted - expected).max()),
        "moved": float(np.abs(saved.layers[2].moving_mean.numpy()).max()),
    }


class ExampleCounter(keras.layers.Layer):
    """Passes its inputs on and counts the examples of training."""

    def build(self, input_shape: Any) -> None:
        self.seen = self.add_weight(
            "seen",
            (),
            initializer="zeros",
            trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )

    def call(self, inputs: Any, training: Any = None) -> Any:
        if training:
            self.seen.assign_add(tf.cast(tf.shape(inputs)[0], tf.float32))
        return tf.identity(inputs)


def in_micro_batches(devices: Devices) -> dict[str, Any]:
    """Train with `batch_norm: synchronized` one example at a time; some shares are uneven."""
    _float64()
    with devices.scope():
        model = normalised_model()
    start = model.get_weights()
    record = fit(model, devices, 1, vectors(), batch_norm="synchronized")
    moved = [np.abs(a - b).max() for a, b in zip(model.get_weights(), start, strict=True)]
    return {
        "moved": float(min(moved)),
        "finite": bool(np.isfinite(moved).all()),
        "exact": record.exact,
        "reasons": list(record.inexact_because),
    }


def masked_model() -> Any:
    """Five logits for each word that is not 0."""
    layers = keras.layers
    inputs = layers.Input((7,), dtype="int32")
    hidden = layers.Embedding(9, 4, mask_zero=True)(inputs)
    hidden = layers.SimpleRNN(6, return_sequences=True, unroll=True)(hidden)
    decay = keras.regularizers.L2(1e-2)
    return keras.Model(inputs, layers.Dense(5, kernel_regularizer=decay)(hidden))


def sentences() -> tuple[Any, Any]:
    """Words (53, 7), 0 after the end of a sentence, and a label for each."""
    random = np.random.default_rng(0)
    words = random.integers(1, 9, (COUNT, 7)).astype(np.int32)
    ends = random.integers(1, 8, COUNT)
    words[np.arange(7)[None] >= ends[:, None]] = 0
    return words, random.integers(0, 5, (COUNT, 7))


def masked(devices: Devices) -> dict[str, Any]:
    """Train on sentences of different lengths, against the mean over the words that are there."""
    _float64()
    words, labels = sentences()
    data = splits(words, labels)
    reference = masked_model()
    start = reference.get_weights()

    def loss_of(y: Any, outputs: Any) -> Any:
        there = tf.cast(outputs._keras_mask, tf.float64)
        chosen = tf.one_hot(y, 5, dtype=tf.float64)
        each = -tf.reduce_sum(chosen * tf.nn.log_softmax(outputs), axis=-1)
        return tf.reduce_sum(each * there) / tf.reduce_sum(there) + tf.add_n(reference.losses)

    by_hand(reference, data, loss_of)
    with devices.scope():
        model = masked_model()
        model.set_weights(start)
    fit(model, devices, 5, data)
    return {
        "difference": difference(model, reference),
        "moved": float(np.abs(model.get_weights()[1] - start[1]).max()),
    }


def recomputing(devices: Devices) -> dict[str, Any]:
    """Train with and without computing activations twice, statistics synchronised or not."""
    _float64()
    start = deep_model().get_weights()
    results: dict[str, Any] = {}
    modes: tuple[BatchNormMode, ...] = ("per_micro_batch", "synchronized")
    for mode in modes:
        plain, _ = _deep(devices, start, mode, "off")
        again, record = _deep(devices, start, mode, 2)
        results[mode] = difference(plain, again)
        results[f"{mode} notes"] = list(record.notes)
        results["moved"] = float(np.abs(plain.get_weights()[0] - start[0]).max())
    return results


def _deep(
    devices: Devices, start: Any, mode: BatchNormMode, recompute: Literal["off"] | int
) -> tuple[Any, TrainingRecord]:
    with devices.scope():
        model = deep_model()
        model.set_weights(start)
    return model, fit(model, devices, 5, vectors(), batch_norm=mode, recompute=recompute)


def deep_model() -> Any:
    """Four dense layers with batch normalisation and dropout."""
    layers = keras.layers
    inputs = hidden = layers.Input((8,))
    for _ in range(4):
        hidden = layers.BatchNormalization(momentum=0.5)(layers.Dense(8)(hidden))
        hidden = layers.Dropout(0.2)(layers.Activation("tanh")(hidden))
    return keras.Model(inputs, layers.Dense(5)(hidden))


def two_losses(devices: Devices) -> dict[str, Any]:
    """Train a model of two outputs with a loss for each, against both by hand."""
    _float64()
    random = np.random.default_rng(0)
    x = random.normal(size=(COUNT, 8))
    targets = (random.integers(0, 5, COUNT), random.normal(size=(COUNT, 2)))
    batches = tf.data.Dataset.from_tensor_slices((x, targets)).batch(BATCH_SIZE)
    reference = two_headed_model()
    start = reference.get_weights()
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
    for part, (labels, reals) in batches.repeat(EPOCHS):
        with tf.GradientTape() as tape:
            logits, numbers = reference(part)
            loss = cross_entropy(labels, logits) + tf.reduce_mean((numbers - reals) ** 2)
        variables = reference.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
    with devices.scope():
        model = two_headed_model()
        model.set_weights(start)
    losses = ["sparse_categorical_crossentropy", "mean_squared_error"]
    stepped(
        model,
        lambda: keras.optimizers.SGD(0.1, momentum=0.9),
        batches.repeat(EPOCHS),
        devices,
        rows=BATCH_SIZE // devices.replicas,
        micro_batch_size=5,
        steps=-(-COUNT // BATCH_SIZE),
        epochs=EPOCHS,
        objective=SupervisedObjective(losses, from_logits=True),
    )
    return {
        "difference": difference(model, reference),
        "moved": float(np.abs(model.get_weights()[0] - start[0]).max()),
    }


def two_headed_model() -> Any:
    """Five logits and two numbers from one hidden layer."""
    layers = keras.layers
    inputs = layers.Input((8,))
    hidden = layers.Dense(6, activation="tanh")(inputs)
    return keras.Model(inputs, [layers.Dense(5)(hidden), layers.Dense(2)(hidden)])


def quantized(devices: Devices) -> dict[str, Any]:
    """Train a model for quantization, whose ranges are synchronised in the forward pass."""
    keras.backend.set_floatx("float32")
    keras.mixed_precision.set_global_policy("float32")
    keras.utils.set_random_seed(1)
    with devices.scope():
        inputs = keras.layers.Input((8,))
        plain = keras.Model(inputs, keras.layers.Dense(5)(inputs))
        model = tfmot.quantization.keras.quantize_model(plain)
    start = model.get_weights()
    record = fit(model, devices, 5, vectors())
    moved = [np.abs(a - b).max() for a, b in zip(model.get_weights(), start, strict=True)]
    return {
        "updates": record.updates,
        "finite": bool(np.isfinite(record.history["loss"]).all()),
        "moved": float(max(moved)),
        "reasons": list(record.inexact_because),
    }
