"""The `compact` stage."""

from __future__ import annotations

from shrink.compact.compact import compact
from shrink.stages.compact.config import CompactConfig
from shrink.stages.context import StageContext, StageResult


def run(config: CompactConfig, context: StageContext) -> StageResult:
    """Rewrite the artifact; hand it on as it is, with the reason, where nothing is gained.

    Raises:
        ModelError: it cannot be rewritten.
        StageError: TFLite Micro does not run it, or it cannot be made to fit the arena.
    """
    context.phase("compacting")
    content = context.input_path().read_bytes()
    found = compact(content, arena_bytes=config.arena_bytes, max_extra_macs=config.max_extra_macs)
    return StageResult(tflite=found.content, notes=found.notes, details={"compact": found.details})
