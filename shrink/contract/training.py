"""How a stage trains: the `training` section of a recipe, validated, with every default in place.

The recipe's half, which refuses what cannot be, is `shrink.engine.config`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

BatchNormMode = Literal["per_micro_batch", "frozen", "synchronized"]
ClassWeights = Literal["balanced"] | Mapping[str, float]
"""A weight for each class, by its name or number, or `balanced`."""
OptimizerName = Literal["adam", "adamw", "sgd", "rmsprop", "adagrad", "nadam", "adamax", "lion"]
Schedule = Literal["constant", "cosine", "exponential", "step"]
Precision = Literal["float32", "mixed_float16", "mixed_bfloat16"]


@dataclass(frozen=True)
class Optimizer:
    """The optimizer and its learning rate schedule; see `OptimizerConfig` for each field."""

    name: OptimizerName = "adam"
    learning_rate: float = 1e-3
    schedule: Schedule = "constant"
    warmup: float = 0.0
    momentum: float | None = None
    nesterov: bool | None = None
    beta_1: float | None = None
    beta_2: float | None = None
    epsilon: float | None = None
    weight_decay: float | None = None
    clipnorm: float | None = None
    global_clipnorm: float | None = None
    clipvalue: float | None = None


@dataclass(frozen=True)
class Training:
    """Batch, devices, precision, optimizer and seed; see `TrainingConfig` for each field.

    Attributes:
        global_batch_size: examples per update, over all replicas of all machines.
        micro_batch_size: examples per forward pass and replica.
        memory_limit: in bytes, per device.
        host_memory_limit: in bytes, of the process that trains; None for what is left of the
            control group's.
    """

    global_batch_size: int = 64
    replicas: Literal["auto"] | int = "auto"
    micro_batch_size: Literal["auto"] | int = "auto"
    memory_limit: int | None = None
    host_memory_limit: int | None = None
    precision: Precision = "float32"
    optimizer: Optimizer = Optimizer()
    batch_norm: BatchNormMode = "per_micro_batch"
    recompute: Literal["off", "auto"] | int = "off"
    class_weights: ClassWeights | None = None
    restore_best: bool = False
    patience: int | None = None
    seed: int = 0
