"""The `compact` stage."""

from __future__ import annotations

from shrink.compact.compact import compact
from shrink.compact.targets.names import PLACED
from shrink.compact.targets.place import place
from shrink.contract.details import Details
from shrink.stages.compact.config import CompactConfig
from shrink.stages.context import StageContext, StageResult


def run(config: CompactConfig, context: StageContext) -> StageResult:
    """Rewrite the artifact; hand it on as it is, with the reason, where nothing is gained.

    Raises:
        ModelError: it cannot be rewritten.
        ResourceError: the compiler for its target is not installed.
        StageError: the runtime does not run it, it cannot be made to fit the arena, or the
            compiler for its target refuses it.
    """
    content = context.input_path().read_bytes()
    if config.target in PLACED:
        context.phase("placing")
        placed = place(content, config.target)
        return StageResult(
            tflite=placed.content,
            notes=placed.notes,
            details=Details(placement=placed.placement),
            cpu_operators=len(placed.placement.on_cpu),
            not_run=placed.not_run,
        )
    context.phase("compacting")
    found = compact(content, **config.arguments)
    details = Details(compact=found.details)
    return StageResult(tflite=found.content, notes=found.notes, details=details)
