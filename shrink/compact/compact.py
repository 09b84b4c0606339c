"""A .tflite file rewritten so that it computes the same bytes in a smaller arena."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from shrink.base.errors import StageError
from shrink.base.figures import unit_hint
from shrink.compact.arena import LEAST_GAIN, Version, allocated_as_given, allocated_bytes
from shrink.compact.borders import Bordered, with_int8_borders
from shrink.compact.columns import with_columns
from shrink.compact.cost import graph_macs, graph_tail, temporary_bytes
from shrink.compact.decode.choice import kernels_done, store_kernels
from shrink.compact.graph import Graph, write_graph
from shrink.compact.memory_map import has_plan, memory_map
from shrink.compact.passes import simplified, with_static_shapes
from shrink.compact.plan import Plan, Planned, plan, plan_below
from shrink.compact.read import read_graph
from shrink.compact.result import Compacted
from shrink.compact.schedule import Tiling
from shrink.compact.search import Search
from shrink.compact.segment import GraphInfo
from shrink.compact.verify import (
    compare,
    does_not_run,
    examples_for,
    last_feature_map,
    random_examples,
    with_output,
)
from shrink.contract.compaction import RuntimeEquality, StoredKernels
from shrink.tflite.litert_twin import dense_twin, has_decode
from shrink.tflite.runtime import MICRO, XNNPACK

DEFAULT_EXTRA_MACS = 0.05
_SHARES = (0.0, 0.02, 0.05, 0.1, 0.25, 0.5)
"""Of extra multiply-accumulates, tried one after the other where an arena is to be met."""


def compact(
    model: bytes,
    *,
    arena: int | None = None,
    max_extra_macs: float = DEFAULT_EXTRA_MACS,
    int8_io: bool = False,
    decode: bool = False,
) -> Compacted:
    """Return a file with equal outputs that takes less memory where it runs.

    Args:
        model: a .tflite file.
        arena: bytes of the one that it shall fit, with as little extra work as is found; None for
            the smallest that is found.
        max_extra_macs: the share of multiply-accumulates that may come to those of the file, where
            no arena is given.
        int8_io: whether inputs and outputs of uint8 and float32 become int8.
        decode: whether to store kernels for TFLM_DECODE afterwards, which saves flash; see
            `shrink.compact.decode.choice`.

    Raises:
        ModelError: the file is no TFLite model, or one that cannot be rewritten.
        StageError: the runtime cannot allocate it, or it cannot be made to fit.
    """
    graph = read_graph(model)
    before = allocated_as_given(model, graph)
    bordered = with_int8_borders(graph) if int8_io else Bordered(graph)
    tiled: Version | None = None
    why = ""
    if not graph.operators:
        why = "it has no operators"
    elif arena is not None and before <= arena and not bordered.borders:
        why = f"it fits {arena:,} bytes already"
    else:
        shares = _shares(max_extra_macs) if arena is None else _SHARES
        tiled = _best(bordered.graph, shares, arena)
        if arena is not None and tiled.arena > arena:
            possible = min(tiled.arena, before)
            meant = unit_hint(possible, arena)
            raise StageError(
                f"cannot fit the model into {arena:,} bytes (smallest arena found: "
                f"{possible:,}, original: {before:,})",
                hint=f"{meant and f'{meant}; '}--arena-bytes {possible}, or a smaller model",
            )
        little = arena is None and _is_little(tiled.arena, before)
        if little and not bordered.borders:
            why, tiled = _no_gain(tiled, before), None
    version, kernels = tiled, None
    if decode:
        given = tiled or Version(bordered.graph, _UNPLANNED, model, before)
        kernels, stored = store_kernels(given, arena)
        version = stored if kernels.changed else tiled
        why = f"{why}; {kernels.reason}"
    if version is None:
        return _unchanged(model, bordered, before, why, kernels)
    macs, kinds = graph_macs(graph), {o.name for o in graph.operators}
    planned = bool(version.plan.offsets)
    equality = _equality(graph, bordered, version, examples_for(macs))
    if equality.different and kernels is not None and kernels.changed:
        kernels = dataclasses.replace(
            kernels,
            changed=False,
            reason=f"compressed kernels give other outputs in {', '.join(equality.different)}",
            file_bytes=kernels.file_bytes_before,
            arena_after=kernels.arena_before,
            layers=(),
        )
        if tiled is not None:  # the rest of the work may stay
            version, equality = tiled, _equality(graph, bordered, tiled, examples_for(macs))
    if planned and MICRO not in equality.runtimes:
        raise does_not_run()
    if equality.different:
        runtimes = ", ".join(equality.different)
        why = f"the rewritten file does not give the same outputs in {runtimes}"
        if arena is not None and before > arena:
            raise StageError(
                f"cannot fit the model into {arena:,} bytes (original: {before:,}): {why}"
            )
        kernels = kernels if tiled is None else None  # they were stored in a file that is dropped
        return _unchanged(model, Bordered(graph, left=bordered.left), before, why, kernels)
    return Compacted(
        content=version.content,
        changed=True,
        done=(*version.done, *(kernels_done(kernels) if kernels is not None else ())),
        macs_before=macs,
        macs_after=graph_macs((tiled or bordered).graph),
        arena_before=before,
        arena_after=version.arena,
        bound_bytes=version.arena - version.plan.size_bytes + version.plan.bound_bytes,
        new_operators=tuple(sorted({o.name for o in version.graph.operators} - kinds)),
        equality=equality,
        memory_before=memory_map(graph, has_plan(graph)),
        memory_after=memory_map(version.graph, planned=planned),
        borders=bordered.borders,
        borders_left=bordered.left,
        decode=kernels,
        caution=_TRANSPOSED_IN_CMSIS_NN if _transposed(version.graph) > _transposed(graph) else "",
    )


def _best(graph: Graph, shares: Sequence[float], arena: int | None) -> Version:
    """Return the version with the smallest arena, or the first that fits the one that is given.

    Where none can fit, it is the smallest with the most work that any may take.
    """
    versions = _versions(graph, shares)
    best = next(versions)
    if arena is not None and _least(best) > arena:
        return _best(graph, shares[-1:], None)
    while arena is None or best.arena > arena:
        if (version := next(versions, None)) is None:
            break
        best = min(best, version, key=lambda one: one.arena)
    return best


def smallest_arena(model: bytes, enough: int, max_extra_macs: float = DEFAULT_EXTRA_MACS) -> int:
    """Return the arena that a file takes in TFLite Micro once it is compacted, in bytes.

    Nothing is written or compared: for a search over models, of which many are tried.

    Args:
        model: a .tflite file.
        enough: the arena to fit. Nothing is searched for that would be smaller still, nor where
            input, output and what lasts take more; the result is then an arena above it.
        max_extra_macs: the share of multiply-accumulates that may come to those of the file.

    Raises:
        ModelError: the file is no TFLite model, or one that cannot be rewritten.
        StageError: TFLite Micro cannot allocate it.
    """
    graph = read_graph(model)
    before = smallest = allocated_as_given(model, graph)
    if smallest <= enough or not graph.operators:
        return smallest
    for version in _versions(graph, _shares(max_extra_macs)):
        smallest = min(smallest, version.arena)
        fits = smallest <= enough and not _is_little(smallest, before)
        if fits or _least(version) > enough:
            break
    return before if _is_little(smallest, before) else smallest


def _shares(most: float) -> tuple[float, ...]:
    """Return the shares to search with: a search with less may find what one with more does not."""
    return (DEFAULT_EXTRA_MACS, most) if most > DEFAULT_EXTRA_MACS else (most,)


def _least(version: Version) -> int:
    """Return what no arena is below: what lasts, and the largest input or output."""
    graph = version.graph
    sizes = [graph.tensors[index].size_bytes for index in (*graph.inputs, *graph.outputs)]
    return version.arena - version.plan.size_bytes + max(sizes, default=0)


def _is_little(arena: int, before: int) -> bool:
    """Return whether a file would come back as it is, for as little as this saves."""
    return arena > (1 - LEAST_GAIN) * before


def _no_gain(best: Version, before: int) -> str:
    if best.arena >= before:
        return f"no order, plan or row tiling found takes less than its {before:,} bytes"
    return f"the best rewrite found saves {before - best.arena:,} of its {before:,} bytes"


def _versions(graph: Graph, shares: Sequence[float]) -> Iterator[Version]:
    """Yield rewritten graphs, first without row tiles, then with tiles of rising extra work."""
    macs = graph_macs(graph)
    plain, done = simplified(graph)
    yield (version := _written(plain, plan(plain), done))
    if not plain.operators:
        return  # no output depends on any
    if temporary_bytes(plain) >= version.plan.size_bytes:
        return  # more operators only raise what TFLite Micro takes while it plans
    info = GraphInfo(with_columns(plain))
    for share in shares:
        left = int(share * macs) + macs - sum(info.macs)
        found = Search(info, left, _planned).best()
        if found is not None and found.planned is not None:
            tiles = _described(info.graph, found.candidate.tilings)
            yield _written(found.planned.graph, found.planned.plan, (*done, *tiles))


def _transposed(graph: Graph) -> int:
    return sum(operator.name == "TRANSPOSE_CONV" for operator in graph.operators)


def _described(graph: Graph, tilings: Sequence[Tiling]) -> Iterator[str]:
    """Yield a line for each tiling; operators have the numbers that they have in the given file."""
    for tiling in tilings:
        names = [
            f"{operator.name} {number}"
            for operator, number in zip(graph.operators, graph.origins, strict=True)
        ][tiling.start : tiling.end]
        ends = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
        yield f"{ends} in {len(tiling.cuts) + 1} row tiles"


_TRANSPOSED_IN_CMSIS_NN = (
    "transposed convolutions: for some shapes CMSIS-NN gives other bytes than the kernels compared "
    "here, for the given file too; if you use CMSIS-NN, compare on the device"
)
_UNPLANNED = Plan({}, 1 << 62, 0)


def _planned(graph: Graph, limit: int) -> Planned | None:
    """Plan a graph for TFLite Micro; hundreds of tensors take more while it plans than after."""
    tail, temporary = graph_tail(graph), temporary_bytes(graph)
    if tail + temporary >= limit:
        return None
    found = plan_below(graph, limit - tail)
    if found is None:
        return None
    return Planned(graph, found, max(found.size_bytes, temporary) + tail)


def _written(graph: Graph, planned: Plan, done: Sequence[str]) -> Version:
    content = write_graph(graph, planned.offsets)
    done = (*done, f"an arena plan for {len(planned.offsets)} tensors")
    return Version(graph, planned, content, allocated_bytes(content), done)


def _unchanged(
    model: bytes,
    bordered: Bordered,
    arena: int,
    reason: str,
    kernels: StoredKernels | None = None,
) -> Compacted:
    graph = bordered.graph
    macs = graph_macs(graph)
    return Compacted(
        content=model,
        changed=False,
        reason=reason,
        macs_before=macs,
        macs_after=macs,
        arena_before=arena,
        arena_after=arena,
        memory_before=memory_map(graph, has_plan(graph)),
        borders_left=bordered.left,
        decode=kernels,
    )


KERNELS_DENSE = " (kernels dense)"
"""Behind the name of a runtime that ran the file with its kernels written out."""


def _equality(graph: Graph, bordered: Bordered, version: Version, count: int) -> RuntimeEquality:
    """Compare outputs and feature maps of a version with those of the given graph.

    Where a border is int8 now, the tensor behind it is compared. LiteRT runs kernels that are
    stored for TFLM_DECODE dense.

    LiteRT keeps operators whose shapes are computed from XNNPACK, which rounds some in another way
    than kernels of its own. Where these shapes are constants now, as in files that are planned for
    TFLite Micro, XNNPACK is compared on the graph with these constants, and is not among the
    runtimes in which the given file's bytes come out.
    """
    feature = last_feature_map(graph, version.graph)
    with_feature = with_output(version.graph, feature)
    contents = write_graph(with_feature, plan(with_feature, 1).offsets), version.content
    twins, stored = [dense_twin(one) for one in contents], list(filter(has_decode, contents))
    examples = random_examples(bordered.graph, count)
    given = bordered.as_given(examples)
    wanted = with_output(dataclasses.replace(graph, outputs=bordered.graph.outputs), feature)
    equality = compare(write_graph(wanted), twins, examples, given, stored)
    static = with_static_shapes(wanted)
    computed = static.operators != wanted.operators and bool(version.plan.offsets)
    if computed and equality.different == (XNNPACK,):
        again = compare(write_graph(static), twins, examples, given, stored)
        if not again.different:
            runtimes = tuple(name for name in equality.runtimes if name != XNNPACK)
            equality = dataclasses.replace(equality, runtimes=runtimes, different=())
    if not stored:
        return equality
    named = (name if name == MICRO else f"{name}{KERNELS_DENSE}" for name in equality.runtimes)
    return dataclasses.replace(equality, runtimes=tuple(named))
