"""Names that a model file may use, read from `allowed.toml`; whatever is not there is refused."""

from __future__ import annotations

import tomllib
from pathlib import Path

_ALLOWED = tomllib.loads((Path(__file__).parent / "allowed.toml").read_text("utf-8"))


def _names(key: str) -> frozenset[str]:
    return frozenset(_ALLOWED[key].split())


LAYERS = _names("layers")
"""Layer classes of both Keras generations."""

OBJECTS = _names("objects")
"""Initializers, regularizers, constraints, dtype policies and metrics."""

ACTIVATIONS = _names("activations")
"""Functions that `activation` and its like may name."""

FUNCTIONS = ACTIVATIONS | _names("metric_functions")
"""Functions that may stand as objects."""

TENSOR_FUNCTIONS = frozenset(
    f"{module}.{name}".lstrip(".")
    for module, names in _ALLOWED["tensor_functions"].items()
    for name in names.split()
)
"""What a TFOpLambda layer may call: names under `tf.`"""

KERAS_OPS = {key: frozenset(names.split()) for key, names in _ALLOWED["keras_operations"].items()}
"""Operation classes of Keras 3 by module, as they are found among a functional model's layers."""

OPERATORS = _names("operators")
"""Operators that the graph of a SavedModel may hold: none has an effect outside the graph."""

SAVER_OPERATORS = frozenset({"SaveV2", "RestoreV2", "MergeV2Checkpoints", "ShardedFilename"})
"""File operators of the functions with which every SavedModel saves and restores its variables."""

LOOKUPS = frozenset({"IntegerLookup", "StringLookup", "TextVectorization"})
"""Layers whose `vocabulary` may be the name of a file, which Keras would read."""

MODELS = frozenset({"Functional", "Sequential", "Model"})
LOSS_LAYERS = frozenset({"AddLoss", "AddMetric"})
"""What `model.add_loss(tensor)` and `model.add_metric` leave in a functional tf-keras model."""

TENSOR_FUNCTION_LAYERS = frozenset({"TFOpLambda", "SlicingOpLambda"})
"""Calls of a TensorFlow function by its name, as tf-keras writes them."""

VALUES = frozenset(
    {"__tuple__", "__slice__", "__ellipsis__", "__tensor__", "__numpy__", "__bytes__",
     "__complex__", "__keras_tensor__", "__shape__", "TensorShape", "TypeSpec",
     "InputSpec"}
)  # fmt: skip
"""Plain values that the formats wrap as objects."""

PUBLIC_MODULES = frozenset(
    {"keras", "keras.activations", "keras.constraints", "keras.dtype_policies",
     "keras.initializers", "keras.layers", "keras.losses", "keras.metrics",
     "keras.mixed_precision", "keras.models", "keras.quantizers",
     "keras.regularizers", "keras.src.activations.activations", "builtins"}
)  # fmt: skip
MODEL_MODULES = frozenset(
    {"keras", "keras.models", "keras.src.models.functional", "keras.src.models.sequential",
     "keras.src.models.model", "keras.src.engine.functional", "keras.src.engine.sequential",
     "keras.engine.functional", "keras.engine.sequential", "tf_keras",
     "tf_keras.src.engine.functional", "tf_keras.src.engine.sequential"}
)  # fmt: skip
LOSS_MODULES = frozenset(
    {"keras.src.engine.base_layer", "keras.engine.base_layer", "tf_keras.src.engine.base_layer"}
)
TENSOR_FUNCTION_MODULES = frozenset(
    {"keras.src.layers.core.tf_op_layer", "keras.layers.core.tf_op_layer",
     "tf_keras.src.layers.core.tf_op_layer"}
)  # fmt: skip
