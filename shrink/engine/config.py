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
    """sgd, rmsprop."""
    nesterov: bool | None = None
    """sgd."""
    beta_1: Fraction | None = None
    """adam, adamw, nadam, adamax, lion."""
    beta_2: Fraction | None = None
    """adam, adamw, nadam, adamax, lion."""
    epsilon: Positive | None = None
    """adam, adamw, nadam, adamax, rmsprop, adagrad."""
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
            raise ValueError(f"{' and '.join(clippings)} exclude each other; keep one of them")
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
    """Model replicas: auto is the number of GPUs, 1 without one; more are logical devices."""
    micro_batch_size: Literal["auto"] | Count = "auto"
    """Examples per forward pass and replica; smaller ones accumulate to the same gradient."""
    memory_limit: MemoryBytes | None = None
    """Memory per device; on a CPU of all replicas together, and operations run one by one."""
    host_memory_limit: MemoryBytes | None = None
    """Memory of a stage's whole process; by default nine tenths of what the control group has
    left. A stage that needs more is refused before it starts."""
    precision: Literal["float32", "mixed_float16", "mixed_bfloat16"] = "float32"
    """Compute dtype; weights stay float32."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """The optimizer of every stage; a stage's own `training:` overrides it."""
    batch_norm: BatchNormMode = "per_micro_batch"
    """Batch normalisation statistics: of each micro-batch, the stored ones unchanged, or those of
    all replicas' micro-batches together (synchronized)."""
    recompute: Literal["off", "auto"] | Count = "off"
    """Approximate number of segments to recompute; auto: the number that holds least memory."""
    class_weights: ClassWeights | None = None
    """Factor of the loss by class, {cat: 2} or {"3": 2}; balanced: rare classes count more."""
    restore_best: bool = False
    """True: keep the weights of the epoch that was best on the validation split."""
    patience: Count | None = None
    """End after this many epochs without a better one on the validation split, and keep the best
    weights."""
    seed: NonNegative = 0
    """Decides splits, shuffling, initial weights and dropout."""

    def batches_in(self, examples: int) -> int:
        """Return how many global batches so many examples make: the updates of an epoch."""
        return math.ceil(examples / self.global_batch_size)
