"""What earlier stages established, measured again after every later one."""

from __future__ import annotations

from dataclasses import dataclass

from shrink.errors import StageError
from shrink.stages.context import StageContext, StageResult
from shrink.stages.prune.masks import zero_fraction

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Claims:
    """The figures that a stage must keep, taken from its input before it runs."""

    sparsity: float | None

    @classmethod
    def of(cls, context: StageContext) -> Claims:
        """Measure the input of a stage that must keep something."""
        if "sparsity" not in context.claims:
            return cls(None)
        return cls(zero_fraction(context.load()))

    def check(self, outcome: StageResult, context: StageContext) -> None:
        """Raise `StageError` where the stage lost what an earlier one established."""
        if self.sparsity is None or outcome.model is None:
            return
        kept = zero_fraction(outcome.model)
        if kept < self.sparsity - _ROUNDING:
            raise StageError(
                f"the sparsity of an earlier stage was {self.sparsity:.2%} and is {kept:.2%} now",
                subject=context.name,
            )
