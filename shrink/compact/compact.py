"""A .tflite file that computes the same bytes in less memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from shrink.base import files
from shrink.base.errors import InternalError, StageError
from shrink.base.types import JsonObject
from shrink.compact.bands import Banding
from shrink.compact.choose import choose
from shrink.compact.cost import graph_macs, temporary_bytes
from shrink.compact.fold_pad import with_folded_pads
from shrink.compact.graph import Graph, read_graph, write_graph
from shrink.compact.memory_map import has_plan, memory_map
from shrink.compact.order import in_best_order
from shrink.compact.plan import Plan, plan, plan_below
from shrink.compact.search import Search
from shrink.compact.stretch import Survey
from shrink.compact.sweep import swept
from shrink.compact.verify import (
    Equality,
    compare,
    examples_for,
    last_feature_map,
    random_examples,
    with_output,
)
from shrink.contract.codec import to_plain
from shrink.contract.details import MemoryMap
from shrink.tflite.arena import arena_bytes as measured_arena

DEFAULT_EXTRA_MACS = 0.05
_LADDER = (0.0, 0.02, 0.05, 0.1, 0.25, 0.5)
"""Shares of the multiply-accumulates, tried one after the other where an arena is to be met."""
_TRIES, _STARTS, _CANDIDATES = 8000, 6, 40
_MOVES = 1500
_PLAN_ATTEMPTS = 20_000
_LEAST_GAIN = 0.01
"""Less than this share of the arena is not worth a larger file and another operator."""

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
        arena_before: bytes of the smallest arena in which TFLite Micro's wheel allocates it.
        arena_after: and this one.
        bound_bytes: what the arena would be with activations that take no more than the most bytes
            that are live at once; no plan of this file is lower.
        new_operators: kinds that a firmware's resolver needs, which the given file does not have.
        equality: how both files were compared; None where it is unchanged.
        memory_before: live bytes by operator of the file that was given.
        memory_after: and of this one; None where it is unchanged.
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

    @property
    def changed(self) -> bool:
        """Whether it is another file."""
        return not self.reason

    @property
    def details(self) -> JsonObject:
        """All of it but the file, as plain data."""
        plain = {name: value for name, value in vars(self).items() if name != "content"}
        equality = None if self.equality is None else self.equality._asdict()
        maps = {name: to_plain(plain[name]) for name in ("memory_before", "memory_after")}
        return {"changed": self.changed, **plain, "equality": equality, **maps}

    @property
    def notes(self) -> tuple[str, ...]:
        """What a report says of it."""
        if not self.changed:
            return (f"the file is unchanged: {self.reason}",)
        share = self.macs_after / max(1, self.macs_before) - 1
        assert self.equality is not None, "a changed file is compared"
        return (
            f"the arena fell from {self.arena_before:,} to {self.arena_after:,} bytes "
            f"({self.arena_after / self.arena_before - 1:+.1%}) for {share:+.1%} of "
            f"multiply-accumulates; outputs are equal to the byte on {self.equality.examples} "
            f"random inputs in {', '.join(self.equality.runtimes)}",
            *([] if self.equality.distinct else [_ONE_ANSWER]),
            *([f"the firmware must register {kinds}"] if (kinds := self._new_kinds) else []),
        )

    @property
    def _new_kinds(self) -> str:
        return ", ".join(self.new_operators)


class _Version(NamedTuple):
    """A rewritten graph with its plan, and the smallest arena of its file."""

    graph: Graph
    plan: Plan
    content: bytes
    arena: int
    bandings: tuple[Banding, ...]


def compact(
    model: bytes,
    *,
    arena_bytes: int | None = None,
    max_extra_macs: float = DEFAULT_EXTRA_MACS,
) -> Compacted:
    """Return a file with equal outputs that takes less memory in TFLite Micro.

    Args:
        model: a .tflite file.
        arena_bytes: the arena that it shall fit, with as little extra work as is found; None for
            the smallest that is found.
        max_extra_macs: the share of multiply-accumulates that may come to those of the file, where
            no arena is given.

    Raises:
        ModelError: the file is no TFLite model, or one that cannot be rewritten.
        StageError: TFLite Micro cannot allocate it, or it cannot be made to fit.
    """
    graph = read_graph(model)
    before = _arena_before(model, graph)
    if arena_bytes is not None and before <= arena_bytes:
        return _unchanged(model, graph, before, f"it fits {arena_bytes:,} bytes already")
    best: _Version | None = None
    shares = (max_extra_macs,) if arena_bytes is None else _LADDER
    for version in _versions(graph, shares):
        if best is None or version.arena < best.arena:
            best = version
        if arena_bytes is not None and not _least(version) <= arena_bytes < best.arena:
            break
    assert best is not None
    if arena_bytes is not None and best.arena > arena_bytes:
        possible = min(best.arena, before)
        raise StageError(
            f"no way was found into an arena of {arena_bytes:,} bytes: the smallest takes "
            f"{possible:,}, of {before:,} as given",
            hint=f"--arena-bytes {possible}, or a smaller model",
        )
    if arena_bytes is None and best.arena > (1 - _LEAST_GAIN) * before:
        return _unchanged(model, graph, before, _no_gain(best, before))
    return _checked(model, graph, before, best)


def _least(version: _Version) -> int:
    """Return what no arena is below: what lasts, and the largest input or output."""
    graph = version.graph
    sizes = [graph.tensors[index].size_bytes for index in (*graph.inputs, *graph.outputs)]
    return version.arena - version.plan.size_bytes + max(sizes, default=0)


def _no_gain(best: _Version, before: int) -> str:
    if best.arena >= before:
        return f"no order, plan or bands were found that take less than its {before:,} bytes"
    return f"the best that was found saves {before - best.arena:,} of its {before:,} bytes"


def _versions(graph: Graph, shares: Sequence[float]) -> Iterator[_Version]:
    """Yield rewritten graphs, first without bands, then with those of rising extra work."""
    macs, graph = graph_macs(graph), swept(graph)
    for number, share in enumerate(shares):
        folded = with_folded_pads(graph, int(share * macs))
        ordered = in_best_order(folded)
        plain = ordered.graph if ordered.exact else folded
        if number == 0:
            version = _written(plain, (), plan(plain, _PLAN_ATTEMPTS))
            yield version
            if temporary_bytes(plain) >= version.plan.size_bytes:
                return  # more operators only raise what TFLite Micro takes while it plans
        survey = Survey(plain)
        left = int(share * macs) + macs - survey.macs
        search = Search(survey, left, _TRIES)
        candidates = search.candidates(_STARTS, _CANDIDATES)
        choice = choose(survey, search, candidates, _MOVES)
        if choice.candidate.bandings:
            again = plan_below(choice.graph, _PLAN_ATTEMPTS, choice.plan.size_bytes)
            yield _written(choice.graph, choice.candidate.bandings, again or choice.plan)


def _written(graph: Graph, bandings: tuple[Banding, ...], found: Plan) -> _Version:
    content = write_graph(graph, found.offsets)
    return _Version(graph, found, content, _arena_of(content), bandings)


def _arena_before(model: bytes, graph: Graph) -> int:
    """Return the arena of a file as it was given, or of its graph written anew.

    TFLite Micro does not find the operators of files that hold only the deprecated operator codes,
    as converters wrote them before 2021.
    """
    try:
        return _arena_of(model)
    except StageError:
        again = write_graph(graph)
        if again == model:
            raise
        return _arena_of(again)


def _arena_of(content: bytes) -> int:
    with tempfile.TemporaryDirectory(prefix="shrink-compact-") as folder:
        path = Path(folder) / "model.tflite"
        files.write_bytes(path, content)
        figure = measured_arena(path)
    if figure.value is None:
        raise StageError(
            f"TFLite Micro, for which a file is compacted, does not run it: {figure.reason}",
            hint="quantize to int8 with target: tflm",
        )
    return figure.value


def _unchanged(model: bytes, graph: Graph, arena: int, reason: str) -> Compacted:
    macs = graph_macs(graph)
    before = memory_map(graph, has_plan(graph))
    return Compacted(model, reason, (), macs, macs, arena, arena, None, (), None, before, None)


def _checked(model: bytes, graph: Graph, before: int, version: _Version) -> Compacted:
    """Return what became of the file, once outputs and feature maps are equal."""
    feature = last_feature_map(graph, version.graph)
    shown = with_output(version.graph, feature)
    shown_content = write_graph(shown, plan(shown, 1).offsets)
    macs, macs_after = graph_macs(graph), graph_macs(version.graph)
    examples = random_examples(graph, examples_for(macs))
    wanted = write_graph(with_output(graph, feature))
    equality = compare(wanted, (shown_content, version.content), examples)
    if equality.different:
        runtimes = ", ".join(equality.different)
        raise InternalError(f"the compacted file does not give the same outputs in {runtimes}")
    kinds = {operator.name for operator in graph.operators}
    return Compacted(
        content=version.content,
        reason="",
        done=tuple(_done(graph, version)),
        macs_before=macs,
        macs_after=macs_after,
        arena_before=before,
        arena_after=version.arena,
        bound_bytes=version.arena - version.plan.size_bytes + version.plan.bound_bytes,
        new_operators=tuple(sorted({o.name for o in version.graph.operators} - kinds)),
        equality=equality,
        memory_before=memory_map(graph, has_plan(graph)),
        memory_after=memory_map(version.graph, planned=True),
    )


def _done(graph: Graph, version: _Version) -> Iterator[str]:
    pads = [sum(o.name == "PAD" for o in one.operators) for one in (graph, version.graph)]
    if pads[1] < pads[0]:
        yield f"{pads[0] - pads[1]} PADs folded into the convolutions that read them"
    if not version.bandings and version.graph.operators != graph.operators:
        yield "operators in another order, those left out that no output depends on"
    for banding in version.bandings:
        count = len(banding.cuts) + 1
        yield f"operators {banding.start} to {banding.end - 1} in {count} bands of rows"
    yield f"a place in the arena for each of {len(version.plan.offsets)} tensors"
