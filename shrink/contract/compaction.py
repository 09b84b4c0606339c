"""Details of `compact`: live memory by operator, equality checks, stored kernels, placement."""

from __future__ import annotations

import dataclasses

from shrink.contract.codec import left_out
from shrink.contract.record import record


@record
class Holder:
    """A tensor whose bytes are needed at the peak.

    Attributes:
        live_bytes: of it that this or a later operator reads or writes.
        size_bytes: of all of it.
    """

    name: str = "?"
    live_bytes: int = 0
    size_bytes: int = 0


@record
class MemoryMap:
    """Bytes of activations that are needed while each operator of a file runs.

    Attributes:
        live_bytes: by operator, in the order of execution.
        origins: the operator of the given file, from 0, that each one is, or is a tile of; null
            for those that tiles add.
        peak_operator: kind of the first operator with the most bytes.
        holders: tensors of the given file whose bytes these are, most bytes first.
    """

    live_bytes: tuple[int, ...] = ()
    origins: tuple[int | None, ...] = ()
    peak_operator: str = "?"
    holders: tuple[Holder, ...] = ()


@record
class RuntimeEquality:
    """On how many inputs, and in which runtimes, outputs of two files were compared.

    Attributes:
        examples: inputs on which both files ran.
        runtimes: in which the first file runs.
        different: runtimes in which an output or the feature map is not equal to the byte, or
            another file fails; none of a file that is kept.
        distinct: whether the inputs give more than one answer; two files that always answer the
            same would seem equal whatever they compute.
    """

    examples: int
    runtimes: tuple[str, ...]
    different: tuple[str, ...] = ()
    distinct: bool


@record
class Int8Border:
    """An input or output that is int8 now.

    Attributes:
        side: input or output.
        place: among the inputs, or the outputs.
        given_type: of the given file, uint8 or float32.
        scale, zero_point: of the int8 values: real = scale * (value - zero_point).
    """

    side: str
    place: int
    name: str
    given_type: str
    scale: float
    zero_point: int

    def __str__(self) -> str:
        """Describe it for a report."""
        how = ", the same values less 128" if self.given_type == "uint8" else ""
        return (
            f"{self.side} {self.name} is int8 in place of {self.given_type}{how}: "
            f"scale {self.scale:.9g}, zero point {self.zero_point}"
        )


@record
class StoredKernel:
    """What became of one kernel that may be stored for TFLM_DECODE.

    Attributes:
        layer: name of what its operator writes.
        form: how it is stored now, or why it stays dense.
        parts: in how many parts it is decoded; 0 where it is dense.
        bytes_before: of its values.
        bytes_after: of all its parts' indices or masks, tables and values.
    """

    layer: str
    form: str
    parts: int
    bytes_before: int
    bytes_after: int


@record
class StoredKernels:
    """What became of a file's kernels.

    Attributes:
        reason: why the file is unchanged; empty where it is changed.
        file_bytes_before, arena_before: of the file before its kernels were stored otherwise; see
            `Compaction` for arenas.
        layers: the kernels, largest first.
    """

    changed: bool
    reason: str
    file_bytes_before: int
    file_bytes: int
    arena_before: int
    arena_after: int
    layers: tuple[StoredKernel, ...]


@record
class Compaction:
    """What became of a file's memory.

    Attributes:
        changed: whether it is another file.
        reason: why it is unchanged; empty where it is changed.
        done: what was done, a line each.
        macs_before, macs_after: multiply-accumulates of the given file, and of the new one.
        arena_before, arena_after: bytes of the smallest arena in which TFLite Micro's PyPI build
            allocates each file.
        bound_bytes: the arena with activations that take no more than the most bytes that are live
            at once. No plan of the new file's operators in their order is lower; other row tiles
            may need less. Null where the file is unchanged.
        equality: how both files were compared; null where the file is unchanged.
        memory_before: of the given file, whose tensors TFLite Micro keeps whole if it has no plan.
        memory_after: of the new one, whose plan frees each byte after its last use; null where
            there is none.
        new_operators: kinds that a firmware's resolver needs and the given file does not have.
        borders: inputs and outputs that are int8 now.
        borders_left: why others are not.
        decode: how kernels are stored, where that was requested.
        caution: what the comparison of outputs does not show.
        target: in reports of older versions, the runtime whose arena it is; of `litert`, the bytes
            of activations.
    """

    changed: bool | None = None
    reason: str = ""
    done: tuple[str, ...] = ()
    macs_before: int | None = None
    macs_after: int | None = None
    arena_before: int | None = None
    arena_after: int | None = None
    bound_bytes: int | None = None
    new_operators: tuple[str, ...] = ()
    equality: RuntimeEquality | None = None
    memory_before: MemoryMap | None = None
    memory_after: MemoryMap | None = None
    borders: tuple[Int8Border, ...] = ()
    borders_left: tuple[str, ...] = ()
    decode: StoredKernels | None = left_out(None)
    caution: str = left_out("")
    target: str | None = left_out(None)


@record
class Rewritten(Compaction):
    """A `Compaction` as it is made: a report that is read may lack these figures."""

    changed: bool = dataclasses.field()
    macs_before: int = dataclasses.field()
    macs_after: int = dataclasses.field()
    arena_before: int = dataclasses.field()
    arena_after: int = dataclasses.field()
    memory_before: MemoryMap = dataclasses.field()


@record
class CpuOperator:
    """An operator that stays on the CPU.

    Attributes:
        operator: its place in the file that is placed, from 0; null where it is not known.
        kind: the schema's name.
        tensor: the name of what it writes.
        reason: why it stays.
    """

    operator: int | None = None
    kind: str = "?"
    tensor: str = ""
    reason: str = ""


@record
class Compiled:
    """What a compiler for an NPU estimates of the file that it made.

    Attributes:
        compiler: with its version.
        system, memory_mode: what it assumes of memories and their speed, by its own names.
        clock_hz: of the NPU.
        sram_bytes, dram_bytes, flash_bytes: that the model takes of each memory; flash is the one
            off the chip.
        cycles: of one inference on the NPU.
        inference_ms: of one inference on the NPU, from these cycles.
        macs: multiply-accumulates of one inference.
    """

    compiler: str = "?"
    system: str = "?"
    memory_mode: str = "?"
    clock_hz: float | None = None
    sram_bytes: int | None = None
    dram_bytes: int | None = None
    flash_bytes: int | None = None
    cycles: int | None = None
    inference_ms: float | None = None
    macs: int | None = None


@record
class Placement:
    """Where the operators of a file run.

    Attributes:
        target: the accelerator or delegate.
        by: who says so.
        operators: how many the file has.
        on_cpu: those that the target does not take.
        compiled: of an NPU alone.
    """

    target: str = "?"
    by: str = "?"
    operators: int = 0
    on_cpu: tuple[CpuOperator, ...] = ()
    compiled: Compiled | None = left_out(None)
