"""How a global batch is split over replicas and micro-batches."""

from __future__ import annotations

import math
from dataclasses import dataclass

from shrink.engine.config import TrainingConfig
from shrink.engine.sharding import smallest_batch


@dataclass(frozen=True)
class BatchPlan:
    """How a global batch is split.

    Attributes:
        steps: updates per epoch, the remainder's included.
        most_rows: the most examples that a replica is given in one step.
        micro_batch_size: examples per forward pass and replica.
        never_empty: whether every replica has an example in every batch.
    """

    steps: int
    most_rows: int
    micro_batch_size: int
    never_empty: bool

    @property
    def accumulation_steps(self) -> int:
        """Micro-batches of each replica in a full global batch."""
        return math.ceil(self.most_rows / self.micro_batch_size)


def plan_batches(
    config: TrainingConfig, replicas: int, examples: int, validation_examples: int
) -> BatchPlan:
    """Split the global batch over replicas and micro-batches; `auto` is one micro-batch."""
    batch_size = config.global_batch_size
    most_rows = math.ceil(min(batch_size, examples) / replicas)
    wanted = most_rows if config.micro_batch_size == "auto" else config.micro_batch_size
    smallest = smallest_batch(examples, batch_size)
    if validation_examples:
        smallest = min(smallest, smallest_batch(validation_examples, batch_size))
    return BatchPlan(
        steps=math.ceil(examples / batch_size),
        most_rows=most_rows,
        micro_batch_size=min(wanted, most_rows),
        never_empty=smallest >= replicas,
    )
