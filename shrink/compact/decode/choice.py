"""Which kernels to store for TFLM_DECODE, and in how many parts to make them dense.

A kernel saves flash and costs arena: its dense bytes, of which fewer are needed at once the more
parts it is cut into, and what TFLite Micro keeps for each operator. For every height of the arena
each kernel takes the parts that save most flash below it. Where an arena is to be met, kernels are
stored in the order of the flash that they save for each byte that lasts, as long as they fit, and
the height is the one that saves most. Where none is, a byte of arena counts as four of flash:
microcontrollers have about four times as much flash as memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from shrink.compact.arena import LEAST_GAIN, Version
from shrink.compact.blocks import blocks_of
from shrink.compact.cost import channels_tail, tail_of
from shrink.compact.decode.kernels import Kernel, bounds, kernels, shown_name, with_decode
from shrink.compact.graph import Graph, write_graph
from shrink.compact.plan import plan
from shrink.contract.compaction import StoredKernel, StoredKernels
from shrink.tflite.arena import arena_of
from shrink.tflite.litert_twin import DECODE, NOT_IN_LITERT
from shrink.tflite.memory import aligned, live_bytes

FLASH_OF_ARENA = 4
"""Bytes of flash that a byte of arena may cost, where no arena is to be met."""
_PARTS = (1, 2, 3, 4, 6, 8, 10, 14, 20, 30, 40, 60, 80, 100)
"""Numbers of parts that each kernel is tried in."""
_TRIES = 6
"""Choices, best by estimate first, whose files are made and allocated."""
_DECODE_FLASH, _PART_FLASH = 190, 300
"""Bytes of a file for each TFLM_DECODE with its tensors, and for each copy of an operator more."""
_DECODE_TAIL, _PART_TAIL = 210, 60
"""Bytes of arena that last for each TFLM_DECODE, and for each copy more beside its operator."""


def kernels_done(found: StoredKernels) -> tuple[str, ...]:
    """Return a line for each kernel that is stored in another way."""
    return tuple(
        f"{one.layer}: {one.bytes_before:,} -> {one.bytes_after:,} bytes, {one.form}"
        + (f", decoded in {one.parts} parts" if one.parts > 1 else "")
        for one in found.layers
        if one.parts
    )


def kernel_notes(found: StoredKernels) -> tuple[str, ...]:
    """Return what a report says of stored kernels."""
    if not found.changed:
        return (f"no kernel is compressed for {DECODE}: {found.reason}",)
    saved = found.file_bytes / found.file_bytes_before - 1
    return (
        f"kernels compressed for {DECODE}: the file fell from {found.file_bytes_before:,} to "
        f"{found.file_bytes:,} bytes ({saved:+.1%}), the arena went from "
        f"{found.arena_before:,} to {found.arena_after:,}; {NOT_IN_LITERT}: metrics are of the "
        "same file with its kernels dense, whose outputs are equal to the byte",
        *kernels_done(found),
    )


class _Option(NamedTuple):
    """A kernel decoded in so many parts.

    Attributes:
        parts: how many.
        saved: bytes of flash, estimated.
        need: bytes of activations while its operators run.
        tail: bytes of arena that last, estimated.
    """

    parts: int
    saved: int
    need: int
    tail: int


class _Choice(NamedTuple):
    """Parts by kernel, and what they save and cost, estimated."""

    parts: dict[int, int]
    saved: int
    growth: int


def store_kernels(given: Version, fits: int | None) -> tuple[StoredKernels, Version]:
    """Store kernels for TFLM_DECODE where that makes a file smaller.

    Args:
        given: a file that TFLite Micro runs; its memory plan is made anew.
        fits: bytes of the arena that it may take; None where a byte of it counts as four of flash.

    Returns:
        What became of the kernels, and the new file, or the given one where nothing is gained.
    """
    graph, content, before = given.graph, given.content, given.arena
    found, others = kernels(graph)
    cells = (cell for block in blocks_of(graph) for cell in block.cells)
    live = live_bytes(cells, len(graph.operators))
    options = {kernel.index: list(_options(graph, kernel, live)) for kernel in found}
    limit = None if fits is None else fits - before
    made, parts, why = given, dict[int, int](), _why_none([*options.values()], len(content), limit)
    peak = max(live, default=0)
    choices = _choices(options, peak, limit)
    for _ in range(_TRIES):
        if not choices:
            break
        choice = choices.pop(0)
        changed = with_decode(graph, found, choice.parts)
        planned = plan(changed)
        stored = write_graph(changed, planned.offsets)
        arena, saved = arena_of(stored).value, len(content) - len(stored)
        if arena is None or saved < LEAST_GAIN * len(content):
            continue
        if saved > FLASH_OF_ARENA * (arena - before) if limit is None else arena - before <= limit:
            made, parts = Version(changed, planned, stored, arena, given.done), choice.parts
            break
        if limit is not None:  # its growth was estimated too low
            choices = _choices(options, peak, choice.growth - (arena - before - limit))
    return StoredKernels(
        changed=made is not given,
        reason="" if made is not given else why,
        file_bytes_before=len(content),
        file_bytes=len(made.content),
        arena_before=before,
        arena_after=made.arena,
        layers=_layers(graph, found, others, parts),
    ), made


def _why_none(options: Sequence[Sequence[_Option]], size: int, limit: int | None) -> str:
    """Return why no kernel of a file of so many bytes is stored."""
    if not options:
        return "no int8 kernel is large enough to be compressed"
    most = sum(max(0, *(one.saved for one in several)) for several in options)
    if most < LEAST_GAIN * size:
        return (
            f"compressing kernels saves less than {LEAST_GAIN:.0%} of the file: prune or cluster "
            "before quantize"
        )
    if limit is None:
        return (
            "compressing kernels needs more arena, and saves less than "
            f"{FLASH_OF_ARENA} times as much flash: set --arena-bytes (arena_bytes in a recipe) to "
            "allow more arena"
        )
    return "decoding kernels does not fit the arena: allow a larger arena"


def _choices(
    options: Mapping[int, Sequence[_Option]], peak: int, limit: int | None
) -> list[_Choice]:
    """Return choices, best first; none that saves nothing.

    Args:
        options: in how many parts each kernel can be decoded, by its tensor's index.
        peak: bytes that activations take while all kernels are dense.
        limit: by which the arena may grow; None where a byte of it counts as four of flash.
    """
    rate, choices = FLASH_OF_ARENA if limit is None else 0, {}
    for height in sorted({max(peak, one.need) for several in options.values() for one in several}):
        best = {
            index: max(
                (one for one in several if one.need <= height),
                key=lambda one: one.saved - rate * one.tail,
                default=_Option(1, 0, 0, 0),
            )
            for index, several in options.items()
        }
        taken, left = dict[int, _Option](), math.inf if limit is None else limit
        left -= max(height - peak, 0)
        for index in sorted(best, key=lambda i: best[i].tail / max(best[i].saved, 1)):
            one = best[index]
            if one.saved > rate * one.tail and one.tail <= left:
                taken[index] = one
                left -= one.tail
        need = max((one.need for one in taken.values()), default=0)
        growth = max(need - peak, 0) + sum(one.tail for one in taken.values())
        choice = _Choice(
            {index: taken[index].parts for index in sorted(taken)},
            sum(one.saved for one in taken.values()),
            growth,
        )
        if taken and (limit is not None or choice.saved > rate * growth):
            choices[tuple(choice.parts.items())] = choice
    return sorted(choices.values(), key=lambda one: (rate * one.growth - one.saved, one.growth))


def _options(graph: Graph, kernel: Kernel, live: Sequence[int]) -> Iterator[_Option]:
    channels, before = len(kernel.values), kernel.values.nbytes
    for parts in _PARTS if kernel.splits else (1,):
        if parts > channels:
            return
        spans = bounds(channels, parts)
        forms = [kernel.form(*span) for span in spans]
        stored = sum(aligned(len(f.stored)) + aligned(len(f.ancillary)) for f in forms)
        copies, readers = parts - 1, len(kernel.readers)
        overhead = parts * _DECODE_FLASH + readers * copies * _PART_FLASH
        dense = max(aligned(kernel.values[slice(*span)].nbytes) for span in spans)
        need, tail = 0, 0
        for number in kernel.readers:
            operator = graph.operators[number]
            need = max(need, live[number + 1] + dense)
            if parts > 1 and not _joins_in_place(graph, number):
                output = graph.tensors[operator.outputs[0]].size_bytes
                need = max(need, live[number + 1] + aligned(output))
            # Each copy has its share of the channels: together they hold what the operator held.
            each = _PART_TAIL + tail_of(graph, operator) - channels_tail(graph, operator)
            tail += parts * _DECODE_TAIL + copies * each
        yield _Option(parts, before - stored - overhead, need, tail)


def _joins_in_place(graph: Graph, number: int) -> bool:
    """Whether the parts of an operator's output lie in it, one behind the other."""
    shape = graph.tensors[graph.operators[number].outputs[0]].shape
    return all(size == 1 for size in shape[:-1])


def _layers(
    graph: Graph, found: Sequence[Kernel], others: Sequence[int], parts: Mapping[int, int]
) -> tuple[StoredKernel, ...]:
    rows = [_layer(graph, kernel, parts.get(kernel.index, 0)) for kernel in found]
    for index in others:
        tensor = graph.tensors[index]
        reason = f"{DECODE} is not known to read it"
        rows.append(_dense(tensor.name or f"tensor {index}", reason, tensor.size_bytes))
    return tuple(sorted(rows, key=lambda one: -one.bytes_before))


def _layer(graph: Graph, kernel: Kernel, parts: int) -> StoredKernel:
    name, before = shown_name(graph, kernel), kernel.values.nbytes
    if not parts:
        return _dense(name, "compressing it saves too little", before)
    forms = [kernel.form(*span) for span in bounds(len(kernel.values), parts)]
    kinds = list(dict.fromkeys(one.form for one in forms))
    return StoredKernel(
        layer=name,
        form=" or ".join(kinds),
        parts=parts,
        bytes_before=before,
        bytes_after=sum(one.size_bytes for one in forms),
    )


def _dense(name: str, reason: str, size: int) -> StoredKernel:
    return StoredKernel(
        layer=name, form=f"dense: {reason}", parts=0, bytes_before=size, bytes_after=size
    )
