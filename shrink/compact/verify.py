"""Whether two files compute the same bytes, in every runtime that is at hand."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeAlias

import numpy as np

from shrink.base.errors import StageError
from shrink.base.types import Array
from shrink.compact.graph import Graph
from shrink.contract.compaction import RuntimeEquality
from shrink.tflite.arena import run_in_runtimes
from shrink.tflite.interpreter import random_values
from shrink.tflite.runtime import LITERT, MICRO

_TIMEOUT_S = 600.0
_MOST_EXAMPLES, _LEAST_EXAMPLES = 20, 4
_MACS_OF_ALL = 1_200_000_000
"""About 3 s of a file in all runtimes, the reference kernels most of it."""
_AT_ONCE = 2
ALL = (*LITERT, MICRO)
Answers: TypeAlias = Mapping[str, Sequence[Array]]
"""Outputs (n, ...) of a file by runtime."""


def examples_for(macs: int) -> int:
    """Return on how many inputs to compare models of so many multiply-accumulates."""
    return max(_LEAST_EXAMPLES, min(_MOST_EXAMPLES, _MACS_OF_ALL // max(1, macs)))


def last_feature_map(graph: Graph, other: Graph) -> int | None:
    """Return the last tensor of more than one row or column that operators of both write.

    Random classifiers give one answer to all inputs; their feature maps differ.
    """
    written = {index for operator in other.operators for index in operator.outputs}
    for operator in reversed(graph.operators):
        for index in operator.outputs:
            shape = graph.tensors[index].shape
            if index in written and len(shape) == 4 and shape[1] * shape[2] > 1:
                return index
    return None


def with_output(graph: Graph, index: int | None) -> Graph:
    """Return the graph with one more output, unless it is one already."""
    if index is None or index in graph.outputs:
        return graph
    return dataclasses.replace(graph, outputs=(*graph.outputs, index))


def random_examples(graph: Graph, count: int) -> list[Array]:
    """Return inputs (count, ...) as they are stored; see `random_values`.

    Floats that a QUANTIZE reads come from all of its range; others are drawn from N(0, 1).
    """
    rng, found = np.random.default_rng(0), []
    for index in graph.inputs:
        tensor = graph.tensors[index]
        shape = (count, *tensor.shape[1:])
        if tensor.dtype in ("FLOAT32", "FLOAT16"):
            low, high = _quantized_range(graph, index) or (0.0, 0.0)
            drawn = rng.uniform(low, high, shape) if low < high else rng.normal(size=shape)
            found.append(drawn.astype(tensor.dtype.lower()))
        else:
            found.append(random_values(rng, shape, np.dtype(tensor.dtype.lower())))
    return found


def _quantized_range(graph: Graph, index: int) -> tuple[float, float] | None:
    for operator in graph.operators:
        if operator.name == "QUANTIZE" and operator.inputs[0] == index:
            to = graph.tensors[operator.outputs[0]]
            single = len(to.scales) == len(to.zero_points) == 1 and math.isfinite(to.scales[0])
            if to.dtype in ("INT8", "UINT8", "INT16") and single:
                limits, zero = np.iinfo(to.dtype.lower()), to.zero_points[0]
                return to.scales[0] * (limits.min - zero), to.scales[0] * (limits.max - zero)
    return None


def compare(
    one: bytes,
    others: Sequence[bytes],
    examples: Sequence[Array],
    given: Sequence[Array] | None = None,
    micro_only: Sequence[bytes] = (),
) -> RuntimeEquality:
    """Compare the outputs of files on the same inputs: LiteRT's kernels, and TFLite Micro's.

    Args:
        one: a .tflite file.
        others: that must give what it gives; outputs that they have less are not compared.
        examples: an array (n, ...) for each input, as stored.
        given: the same inputs as the first file takes them, where it takes them otherwise.
        micro_only: files that must give it in TFLite Micro, with operators unknown to LiteRT.

    Raises:
        StageError: LiteRT cannot run the first one, or no runtime did. Others that it cannot run
            are different.
    """
    runs = [(one, given or examples, ALL)]
    runs += [(content, examples, ALL) for content in others]
    runs += [(content, examples, (MICRO,)) for content in micro_only]
    with ThreadPoolExecutor(_AT_ONCE) as pool:  # each waits for a process
        jobs = [pool.submit(_answers, *run) for run in runs]
        wanted, *found = jobs[0].result(), *map(_answers_or_none, jobs[1:])
    if not wanted:
        raise does_not_run()
    different = tuple(
        name
        for name in wanted
        if not all(
            name in answers and _equal(wanted[name], answers[name])
            for answers, (_, _, runtimes) in zip(found, runs[1:], strict=True)
            if name in runtimes
        )
    )
    last = next(iter(wanted.values()))[-1]
    distinct = len(examples[0]) < 2 or any(not np.array_equal(row, last[0]) for row in last[1:])
    return RuntimeEquality(
        examples=len(examples[0]), runtimes=tuple(wanted), different=different, distinct=distinct
    )


def _answers_or_none(job: Future[Answers]) -> Answers:
    try:
        return job.result()
    except StageError:
        return {}


def does_not_run() -> StageError:
    """Return the error of a file that was allocated, but that no runtime ran."""
    return StageError(
        "its runtime allocates the file but does not run it, so its outputs cannot be compared",
        hint="`shrink inspect` lists its operators",
    )


def _equal(wanted: Sequence[Array], found: Sequence[Array]) -> bool:
    """Whether types and bytes are the same; a pass may give a feature map another shape."""
    return all(
        a.dtype == b.dtype and a.tobytes() == b.tobytes()
        for a, b in zip(wanted, found, strict=False)
    )


def _answers(content: bytes, examples: Sequence[Array], runtimes: Sequence[str]) -> Answers:
    """Return the outputs (n, ...) of a file by runtime; without TFLite Micro if it cannot run it.

    Raises:
        StageError: LiteRT cannot.
    """
    run, answers = run_in_runtimes(
        content, examples, runtimes, may_lack_micro=True, timeout_s=_TIMEOUT_S
    )
    if run.failure is not None:
        raise StageError(f"a runtime cannot run the file: {run.failure}")
    return answers
