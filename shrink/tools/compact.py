"""`shrink compact` without a run folder."""

from __future__ import annotations

from shrink.base import files
from shrink.compact.compact import compact
from shrink.compact.targets.names import PLACED
from shrink.compact.targets.place import place
from shrink.contract.compaction import Rewritten
from shrink.contract.events import Send
from shrink.contract.findings import Placing, Rewriting
from shrink.contract.job import CompactJob
from shrink.contract.record import as_base


def compact_file(job: CompactJob, send: Send) -> Rewriting | Placing:
    """Write the job's file to its target, rewritten or as it is, and say what became of it.

    Raises:
        ModelError: the file cannot be rewritten.
        StageError: the runtime does not run it, or it cannot be made to fit.
    """
    content = job.model.path.read_bytes()
    if job.runtime in PLACED:
        placed = place(content, job.runtime)
        files.remove_leftovers(job.target.parent)
        files.write_bytes(job.target, placed.content)
        return Placing(
            path=str(job.target),
            changed=placed.content != content,
            placement=placed.placement,
            file_bytes_before=len(content),
            file_bytes=len(placed.content),
        )
    compacted = compact(content, **job.arguments)
    files.remove_leftovers(job.target.parent)
    files.write_bytes(job.target, compacted.content)
    return Rewriting(
        **vars(as_base(compacted, Rewritten)),
        path=str(job.target),
        file_bytes_before=len(content),
        file_bytes=len(compacted.content),
    )
