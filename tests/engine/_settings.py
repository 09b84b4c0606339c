"""Trains small networks under combined settings, and under the plain ones, in one process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.data.augment.apply import Augmentation
from shrink.data.augment.config import AugmentConfig
from shrink.data.dataset import Dataset
from shrink.data.view import AugmentedView
from shrink.engine.config import TrainingConfig
from shrink.engine.devices import Devices
from shrink.engine.fit import train
from shrink.engine.objective import SupervisedObjective
from shrink.engine.plan_training import plan_training
from shrink.engine.record import TrainingRecord
from shrink.errors import ShrinkError

FACTORS: dict[str, list[Any]] = {
    "architecture": ["sequential", "residual", "depthwise", "lstm", "two_inputs", "attention"],
    "precision": ["float32", "mixed_bfloat16", "mixed_float16"],
    "recompute": ["off", "auto", 2],
    "memory_limit": [None, 2**30],
    "replicas": [1, 2],
    "micro_batch_size": ["auto", 3],
    "batch_norm": ["per_micro_batch", "frozen", "synchronized"],
    "clipping": [{}, {"clipnorm": 0.5}, {"global_clipnorm": 0.5}, {"clipvalue": 0.05}],
    "schedule": ["constant", "cosine", "exponential", "step"],
    "restore_best": [False, True],
    "patience": [None, 1],
    "mixup": [None, 0.4],
    # As one factor: weights of classes are refused where targets are real, and hide the rest.
    "loss_and_class_weights": [
        ["sparse_categorical_crossentropy", None],
        ["sparse_categorical_crossentropy", "balanced"],
        ["sparse_categorical_crossentropy", {"1": 3.0}],
        ["mean_squared_error", None],
        ["mean_squared_error", "balanced"],
    ],
}
CLASSES, TRAINED, CHECKED, BATCH_SIZE = 3, 21, 6, 8


def run_cases(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return for each case what came of it: refused, or trained, and how far from plain training.

    A process's devices are fixed: two logical ones, of which a single replica uses the first.
    """
    cpu = tf.config.list_physical_devices("CPU")[0]
    logical = [tf.config.LogicalDeviceConfiguration() for _ in range(2)]
    tf.config.set_logical_device_configuration(cpu, logical)
    both = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    return [_outcome(case, both) for case in cases]


def _outcome(case: Mapping[str, Any], both: Any) -> dict[str, Any]:
    try:
        model, record = _train(case, both)
    except ShrinkError as error:
        return {"refused": str(error)}
    except Exception as error:  # what a user would see as a crash
        return {"crashed": f"{type(error).__name__}: {error}"[:2000]}
    weights = model.get_weights()
    outcome = {
        "exact": record.exact,
        "updates": record.updates,
        "finite": all(np.isfinite(weight).all() for weight in weights),
    }
    if not record.exact or case["precision"] != "float32":
        return outcome
    plain = {"recompute": "off", "memory_limit": None, "replicas": 1, "micro_batch_size": "auto"}
    other, _ = _train({**case, **plain}, both)
    pairs = zip(weights, other.get_weights(), strict=True)
    return {**outcome, "difference": max(float(np.abs(a - b).max()) for a, b in pairs)}


def _train(case: Mapping[str, Any], both: Any) -> tuple[Any, TrainingRecord]:
    loss, class_weights = case["loss_and_class_weights"]
    config = TrainingConfig.model_validate(
        {
            "global_batch_size": BATCH_SIZE,
            "class_weights": class_weights,
            "optimizer": {
                "name": "sgd",
                "momentum": 0.9,
                "learning_rate": 0.05,
                "schedule": case["schedule"],
                **case["clipping"],
            },
            **{name: case[name] for name in TrainingConfig.model_fields if name in case},
        }
    )
    devices = _devices(config, both)
    keras.mixed_precision.set_global_policy(config.precision)
    keras.utils.set_random_seed(0)
    with devices.scope():
        model = ARCHITECTURES[case["architecture"]]()
    start = model.get_weights()
    dataset = _dataset(case)
    objective = SupervisedObjective(loss, from_logits=True)
    if config.memory_limit is not None:
        settings: dict[str, Any] = {"objective": objective, "config": config, "devices": devices}
        plan = plan_training(model, dataset, **settings)
        model.set_weights(start)
        config = config.model_copy(update={"micro_batch_size": plan.micro_batch_size})
    record = train(
        model,
        dataset,
        objective=objective,
        config=config,
        devices=devices,
        epochs=2,
        metrics=(),
        monitor="loss",
    )
    return model, record


def _devices(config: TrainingConfig, both: Any) -> Devices:
    if config.replicas == 2:
        return Devices(both, ("CPU:0", "CPU:1"), on_gpu=False)
    limited = config.memory_limit is not None
    strategy = tf.distribute.get_strategy()
    return Devices(strategy, ("CPU:0",), on_gpu=False, in_order=limited)


class _Examples:
    """Examples in memory, of one input or of two."""

    def __init__(self, x: Any, y: Any, labels: Any) -> None:
        self._x, self._y, self.labels = x, y, labels
        spec = tf.nest.map_structure(lambda part: tf.TensorSpec(part.shape[1:], part.dtype), (x, y))
        self.input_spec, self.target_spec = spec

    def __len__(self) -> int:
        return len(self._y)

    def load(self, indices: Any) -> Any:
        return tf.nest.map_structure(lambda part: tf.gather(part, indices), (self._x, self._y))

    def arrays(self, indices: Any) -> Any:
        return tf.nest.map_structure(lambda part: part[indices], (self._x, self._y))

    def explain(self, indices: Any) -> None:
        return None


def _dataset(case: Mapping[str, Any]) -> Dataset:
    real = case["loss_and_class_weights"][0] == "mean_squared_error"
    classes = None if real else CLASSES

    def part(seed: int, count: int) -> Any:
        random = np.random.default_rng(seed)
        x = random.normal(size=(count, 8, 8, 3)).astype(np.float32)
        labels = np.arange(count) % CLASSES
        y = random.normal(size=(count, CLASSES)).astype(np.float32) if real else labels
        inputs = (x, x[:, 0, :, 0]) if case["architecture"] == "two_inputs" else x
        return _Examples(inputs, y, None if real else labels)

    trained, checked = part(0, TRAINED), part(1, CHECKED)
    if case["mixup"] is not None:
        config = AugmentConfig(mixup=case["mixup"])
        augmentation = Augmentation(config, trained.input_spec, classes)
        trained = AugmentedView(trained, None, False, augmentation)
    return Dataset(trained, validation=checked, test=checked, class_names=(), num_classes=classes)


def _pooled(inputs: Any, hidden: Any) -> Any:
    pooled = keras.layers.GlobalAveragePooling2D()(hidden)
    return keras.Model(inputs, keras.layers.Dense(CLASSES, dtype="float32")(pooled))


def _sequential() -> Any:
    layers = keras.layers
    inputs = layers.Input((8, 8, 3))
    hidden = layers.MaxPooling2D()(layers.Conv2D(4, 3, activation="relu")(inputs))
    return _pooled(inputs, layers.BatchNormalization()(layers.Conv2D(4, 3)(hidden)))


def _residual() -> Any:
    layers = keras.layers
    inputs = layers.Input((8, 8, 3))
    hidden = layers.Conv2D(4, 3, padding="same")(inputs)
    for _ in range(2):
        inner = layers.BatchNormalization()(layers.Conv2D(4, 3, padding="same")(hidden))
        hidden = layers.ReLU()(layers.add([hidden, inner]))
    return _pooled(inputs, hidden)


def _depthwise() -> Any:
    layers = keras.layers
    inputs = layers.Input((8, 8, 3))
    hidden = layers.ReLU(6.0)(layers.DepthwiseConv2D(3)(inputs))
    hidden = layers.ReLU(6.0)(layers.BatchNormalization()(layers.Conv2D(4, 1)(hidden)))
    return _pooled(inputs, layers.SeparableConv2D(4, 3)(hidden))


def _lstm() -> Any:
    layers = keras.layers
    inputs = layers.Input((8, 8, 3))
    hidden = layers.Dense(4, activation="relu")(layers.Reshape((8, 24))(inputs))
    hidden = layers.GRU(4)(layers.LSTM(4, return_sequences=True)(hidden))
    return keras.Model(inputs, layers.Dense(CLASSES, dtype="float32")(hidden))


def _two_inputs() -> Any:
    layers = keras.layers
    image, vector = layers.Input((8, 8, 3)), layers.Input((8,))
    seen = layers.GlobalMaxPooling2D()(layers.Conv2D(4, 3, activation="relu")(image))
    joined = layers.Dense(4)(layers.concatenate([seen, layers.Dense(4)(vector)]))
    return keras.Model([image, vector], layers.Dense(CLASSES, dtype="float32")(joined))


def _attention() -> Any:
    layers = keras.layers
    inputs = layers.Input((8, 8, 3))
    hidden = layers.Dense(4)(layers.Reshape((8, 24))(inputs))
    hidden = layers.add([hidden, layers.MultiHeadAttention(2, 2)(hidden, hidden)])
    hidden = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(hidden))
    return keras.Model(inputs, layers.Dense(CLASSES, dtype="float32")(hidden))


ARCHITECTURES: Mapping[str, Callable[[], Any]] = {
    "sequential": _sequential,
    "residual": _residual,
    "depthwise": _depthwise,
    "lstm": _lstm,
    "two_inputs": _two_inputs,
    "attention": _attention,
}
