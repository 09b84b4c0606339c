"""What earlier stages established, measured again after every later one."""

from __future__ import annotations

from dataclasses import dataclass

from shrink.errors import StageError
from shrink.stages.context import StageContext, StageResult
from shrink.stages.prune.masks import Zeros, count_zeros
from shrink.tflite.flatbuffer import nonzero_parameters, parameters


@dataclass(frozen=True)
class Claims:
    """The figures that a stage must keep, taken from its input before it runs."""

    zeros: Zeros | None

    @classmethod
    def of(cls, context: StageContext) -> Claims:
        """Measure the input of a stage that must keep something."""
        return cls(count_zeros(context.load()) if "sparsity" in context.claims else None)

    def check(self, outcome: StageResult, context: StageContext) -> None:
        """Raise `StageError` where the stage lost what an earlier one established."""
        if self.zeros is None:
            return
        kept = _zeros_left(outcome)
        if kept < self.zeros.count:
            raise StageError(
                f"an earlier stage pruned {self.zeros.count:,} of {self.zeros.of:,} weights, and "
                f"only {kept:,} are zero now",
                subject=context.name,
            )


def _zeros_left(outcome: StageResult) -> int:
    if outcome.model is not None:
        return count_zeros(outcome.model).count
    content = outcome.tflite or b""
    return parameters(content) - nonzero_parameters(content)
