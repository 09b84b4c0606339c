"""`shrink compact`: a .tflite file rewritten to take less memory, and what that cost."""

from __future__ import annotations

from typing import Any

from shrink.base import files
from shrink.compact.compact import compact
from shrink.contract.events import Send
from shrink.contract.job import CompactJob


def compact_file(job: CompactJob, send: Send) -> dict[str, Any]:
    """Write the job's file to its target, rewritten or as it is, and say what became of it.

    Raises:
        ModelError: the file cannot be rewritten.
        StageError: TFLite Micro does not run it, or it cannot be made to fit.
    """
    content = job.model.path.read_bytes()
    found = compact(content, arena_bytes=job.arena_bytes, max_extra_macs=job.max_extra_macs)
    files.sweep(job.target.parent)
    files.write_bytes(job.target, found.content)
    return {
        "path": str(job.target),
        **found.details,
        "file_bytes_before": len(content),
        "file_bytes": len(found.content),
    }
