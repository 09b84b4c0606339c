"""What became of a file that is to take less memory."""

from __future__ import annotations

from dataclasses import dataclass

from shrink.compact.arena import Target
from shrink.compact.borders import Border
from shrink.compact.decode.choice import Decoding
from shrink.compact.verify import Equality
from shrink.contract.compaction import Compaction, Int8Border, MemoryMap, RuntimeEquality

_ONE_ANSWER = "all of these inputs give one answer, so that equal outputs say little"


@dataclass(frozen=True)
class Compacted:
    """What became of a file.

    Attributes:
        content: the .tflite file; byte for byte the one that was given where nothing is gained.
        reason: why it is unchanged; empty where it is changed.
        done: what was done, a line each.
        macs_before: multiply-accumulates of the file that was given.
        macs_after: and of this one.
        arena_before: bytes of the smallest arena in which TFLite Micro's PyPI build allocates it;
            see `target`.
        arena_after: and this one.
        bound_bytes: what the arena would be with activations that take no more than the most bytes
            that are live at once; no plan of this file is lower.
        new_operators: kinds that a firmware's resolver needs, which the given file does not have.
        equality: how both files were compared; None where it is unchanged.
        memory_before: live bytes by operator of the file that was given.
        memory_after: and of this one; None where it is unchanged.
        borders: inputs and outputs that are int8 now, as requested.
        borders_left: why others are not.
        target: the runtime whose arena it is; of LiteRT it is what activations take.
        decode: how its kernels are stored; None where decode was not requested.
    """

    content: bytes
    reason: str
    done: tuple[str, ...]
    macs_before: int
    macs_after: int
    arena_before: int
    arena_after: int
    bound_bytes: int | None
    new_operators: tuple[str, ...]
    equality: Equality | None
    memory_before: MemoryMap
    memory_after: MemoryMap | None
    borders: tuple[Border, ...] = ()
    borders_left: tuple[str, ...] = ()
    target: Target = "tflm"
    decode: Decoding | None = None

    @property
    def changed(self) -> bool:
        """Whether it is another file."""
        return not self.reason

    @property
    def details(self) -> Compaction:
        """All of it but the file, as a report keeps it."""
        apart = ("content", "decode")
        rest = {name: value for name, value in vars(self).items() if name not in apart}
        if self.equality is not None:
            rest["equality"] = RuntimeEquality(**self.equality._asdict())
        rest["borders"] = tuple(Int8Border(**vars(border)) for border in self.borders)
        decode = None if self.decode is None else self.decode.details
        return Compaction(changed=self.changed, decode=decode, **rest)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a report says of it."""
        if not self.changed:
            return (f"the file is unchanged: {self.reason}", *self.borders_left)
        share = self.macs_after / max(1, self.macs_before) - 1
        assert self.equality is not None, "a changed file is compared"
        of = " of LiteRT" if self.target == "litert" else ""
        moved = "fell" if self.arena_after < self.arena_before else "went"
        return (
            f"the arena{of} {moved} from {self.arena_before:,} to {self.arena_after:,} bytes "
            f"({self.arena_after / self.arena_before - 1:+.1%}) for {share:+.1%} of "
            f"multiply-accumulates; outputs are equal to the byte on {self.equality.examples} "
            f"random inputs in {', '.join(self.equality.runtimes)}",
            *([] if self.equality.distinct else [_ONE_ANSWER]),
            *([f"the firmware must register {kinds}"] if (kinds := self._new_kinds) else []),
            *(str(border) for border in self.borders),
            *self.borders_left,
            *(self.decode.notes if self.decode is not None else ()),
        )

    @property
    def _new_kinds(self) -> str:
        return ", ".join(self.new_operators)
