"""The result of compacting a file."""

from __future__ import annotations

from shrink.compact.decode.choice import kernel_notes
from shrink.contract.compaction import Compaction, Rewritten
from shrink.contract.record import as_base, record

_ONE_ANSWER = "all of these inputs give the same outputs, so equality is weak evidence"


@record
class Compacted(Rewritten):
    """The rewritten .tflite file, or the given one where nothing is gained, and what was done."""

    content: bytes

    @property
    def details(self) -> Compaction:
        """All of it but the file, as a report keeps it."""
        return as_base(self, Compaction)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a report says of it."""
        if not self.changed:
            return (f"the file is unchanged: {self.reason}", *self.borders_left)
        share = self.macs_after / max(1, self.macs_before) - 1
        assert self.equality is not None, "a changed file is compared"
        moved = "fell" if self.arena_after < self.arena_before else "went"
        kinds = ", ".join(self.new_operators)
        return (
            f"the arena {moved} from {self.arena_before:,} to {self.arena_after:,} bytes "
            f"({self.arena_after / self.arena_before - 1:+.1%}) for {share:+.1%} of "
            f"multiply-accumulates; outputs are equal to the byte on {self.equality.examples} "
            f"random inputs in {', '.join(self.equality.runtimes)}",
            *([] if self.equality.distinct else [_ONE_ANSWER]),
            *([self.caution] if self.caution else []),
            *([f"the firmware must register {kinds}"] if kinds else []),
            *(str(border) for border in self.borders),
            *self.borders_left,
            *(kernel_notes(self.decode) if self.decode is not None else ()),
        )
