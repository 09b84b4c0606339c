"""The `training` section of a recipe: how every training stage trains."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from shrink.base.fields import Config, Count, Fraction, MemoryBytes, NonNegative, Positive

BatchNormMode = Literal["per_micro_batch", "frozen", "synchronized"]
_ADAPTIVE = ("adam", "adamw", "nadam", "adamax")
TAKERS: Mapping[str, tuple[str, ...]] = {
    "momentum": ("sgd", "rmsprop"),
    "nesterov": ("sgd",),
    "beta_1": (*_ADAPTIVE, "lion"),
    "beta_2": (*_ADAPTIVE, "lion"),
    "epsilon": (*_ADAPTIVE, "rmsprop", "adagrad"),
}
"""The optimizers that take an argument which not all of them do."""
ClassWeights = Literal["balanced"] | dict[str, Positive]
"""A weight for each class, by its name or number, or `balanced`."""
CLIPPINGS = ("clipnorm", "global_clipnorm", "clipvalue")


class OptimizerConfig(Config):
    """The optimizer and its learning rate schedule, which steps once per update."""

    name: Literal[
        "adam", "adamw", "sgd", "rmsprop", "adagrad", "nadam", "adamax", "lion"
    ] = "adam"  # fmt: skip
    """A tf-keras optimizer."""
    learning_rate: Positive = 1e-3
    """Learning rate at the start of the schedule, after the warm-up."""
    schedule: Literal["constant", "cosine", "exponential", "step"] = "constant"
    """cosine falls to 0 over the stage, exponential to 1 %, step by 10 at 50 % and 75 %."""
    warmup: Fraction = 0.0
    """Fraction of the updates over which the learning rate rises linearly from 0."""
    momentum: Fraction | None = None
    """Momentum of sgd and rmsprop."""
    nesterov: bool | None = None
    """Nesterov momentum of sgd."""
    beta_1: Fraction | None = None
    """Decay of the first moment of adam, adamw, nadam, adamax, lion."""
    beta_2: Fraction | None = None
    """Decay of the second moment of adam, adamw, nadam, adamax, lion."""
    epsilon: Positive | None = None
    """Added to the denominator of adam, adamw, nadam, adamax, rmsprop, adagrad."""
    weight_decay: float | None = Field(default=None, ge=0)
    """Decoupled weight decay per update, times the learning rate (Loshchilov & Hutter 2019)."""
    clipnorm: Positive | None = None
    """Each gradient's L2 norm is clipped to this."""
    global_clipnorm: Positive | None = None
    """The L2 norm of all gradients together is clipped to this."""
    clipvalue: Positive | None = None
    """Each gradient's elements are clipped to plus and minus this."""

    def idle_keys(self) -> Mapping[str, str]:
        """Return arguments that the optimizer does not take."""
        idle = {
            key: f"name: {' or '.join(takers)}"
            for key, takers in TAKERS.items()
            if self.name not in takers
        }
        return idle if self.momentum else {"nesterov": "momentum", **idle}

    @model_validator(mode="after")
    def _check(self) -> OptimizerConfig:
        clippings = [key for key in CLIPPINGS if getattr(self, key) is not None]
        if len(clippings) > 1:
            raise ValueError(f"{' and '.join(clippings)} exclude each other; set only one")
        return self


class TrainingConfig(Config):
    """How every training stage trains: batch, devices, precision, optimizer, seed."""

    meant_by: ClassVar[dict[str, dict[str, str]]] = {
        "precision": {
            **dict.fromkeys(("float16", "fp16", "half"), "mixed_float16"),
            **dict.fromkeys(("bfloat16", "bf16"), "mixed_bfloat16"),
        }
    }

    global_batch_size: Count = 64
    """Examples per optimizer update, whatever the hardware."""
    replicas: Literal["auto"] | Count = "auto"
    """Model replicas; auto: one per GPU, or one. More replicas than GPUs share devices."""
    micro_batch_size: Literal["auto"] | Count = "auto"
    """Examples per forward pass and replica; smaller ones accumulate to the same gradient."""
    memory_limit: MemoryBytes | None = None
    """Memory limit of each device; on a CPU the limit of all replicas together, whose operations
    then run one at a time."""
    host_memory_limit: MemoryBytes | None = None
    """Memory of a stage's whole process; by default nine tenths of what the control group has
    left. A stage that needs more is refused before it starts."""
    precision: Literal["float32", "mixed_float16", "mixed_bfloat16"] = "float32"
    """Compute dtype; weights stay float32."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """The optimizer of every stage; a stage's own `training:` overrides it."""
    batch_norm: BatchNormMode = "per_micro_batch"
    """Statistics of batch normalisation; per_micro_batch: of each micro-batch; frozen: the
    stored ones; synchronized: of the micro-batches of all replicas together."""
    recompute: Literal["off", "auto"] | Count = "off"
    """Compute activations again in the backward pass, in about this many segments; auto: as
    many as need the least memory."""
    class_weights: ClassWeights | None = None
    """Factor of the loss by class, {cat: 2} or {"3": 2}; balanced: inversely proportional to
    the class's frequency."""
    restore_best: bool = False
    """Keep the weights of the epoch that was best on the validation split."""
    patience: Count | None = None
    """Stop after this many epochs without improvement on the validation split, and keep the
    best weights."""
    seed: NonNegative = 0
    """Decides splits, shuffling, initial weights and dropout."""

    def batches_in(self, examples: int) -> int:
        """Return how many global batches so many examples make: the updates of an epoch."""
        return math.ceil(examples / self.global_batch_size)
