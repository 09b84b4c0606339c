"""`shrink compact`: a .tflite file rewritten to take less memory, and what that cost."""

from __future__ import annotations

from typing import TypedDict

from shrink.base import files
from shrink.base.foreign import JsonObject
from shrink.compact.compact import compact
from shrink.contract.events import Send
from shrink.contract.job import CompactJob


class RuntimeEquality(TypedDict):
    """On how many inputs, and in which runtimes, outputs of two files are equal to the byte."""

    examples: int
    runtimes: list[str]
    distinct: bool


class Rewriting(TypedDict):
    """What became of a file, beside the memory maps; see `shrink.compact.compact.Compacted`."""

    path: str
    changed: bool
    reason: str
    done: list[str]
    arena_before: int
    arena_after: int
    bound_bytes: int | None
    macs_before: int
    macs_after: int
    new_operators: list[str]
    equality: RuntimeEquality | None
    file_bytes_before: int
    file_bytes: int


def compact_file(job: CompactJob, send: Send) -> JsonObject:
    """Write the job's file to its target, rewritten or as it is, and say what became of it.

    Returns:
        A `Rewriting`, and the memory by operator before and after.

    Raises:
        ModelError: the file cannot be rewritten.
        StageError: TFLite Micro does not run it, or it cannot be made to fit.
    """
    content = job.model.path.read_bytes()
    compacted = compact(content, arena_bytes=job.arena_bytes, max_extra_macs=job.max_extra_macs)
    files.sweep(job.target.parent)
    files.write_bytes(job.target, compacted.content)
    return {
        "path": str(job.target),
        **compacted.details,
        "file_bytes_before": len(content),
        "file_bytes": len(compacted.content),
    }
