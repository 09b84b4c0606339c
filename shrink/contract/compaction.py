"""What `compact` tells: memory over operators, proofs, stored kernels, and where operators run."""

from __future__ import annotations

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
        different: runtimes in which they are not equal to the byte; none of a file that is kept.
        distinct: whether the inputs give more than one answer.
    """

    examples: int
    runtimes: tuple[str, ...]
    different: tuple[str, ...] = ()
    distinct: bool


@record
class Int8Border:
    """An input or output that is int8 now; see `shrink.compact.borders.Border`."""

    side: str
    place: int
    name: str
    given_type: str
    scale: float
    zero_point: int


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
    """What became of a file's kernels; `shrink.compact.decode.choice.Decoding` tells of each."""

    changed: bool
    reason: str
    file_bytes_before: int
    file_bytes: int
    arena_before: int
    arena_after: int
    layers: tuple[StoredKernel, ...]


@record
class Compaction:
    """What became of a file's memory; `shrink.compact.compact.Compacted` tells of each.

    Attributes:
        memory_before: of the given file, whose tensors TFLite Micro keeps whole if it has no plan.
        memory_after: of the new one, whose plan frees each byte after its last use; null where
            there is none.
        new_operators: kinds that the given file does not have.
        borders: inputs and outputs that are int8 now.
        borders_left: why others are not.
        target: the runtime whose arena it is.
        decode: what became of kernels, where they were looked at.
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
    target: str | None = None
    decode: StoredKernels | None = left_out(None)


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
