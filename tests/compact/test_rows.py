"""Rows of an operator's input that some rows of its output need, against a plain convolution."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from shrink.base.types import Array
from shrink.compact.read import read_graph
from shrink.compact.rows import (
    Window,
    interpolated,
    padded,
    repeated,
    rule_of,
    same_padding,
    sliding,
    transposed,
)
from tests.compact.toys import Net


def convolved(rows: Array, kernel: Array, stride: int, same: bool) -> Array:
    """A convolution of one column, by its definition (TensorFlow's `SAME`)."""
    if same:
        count = -(-len(rows) // stride)
        total = max((count - 1) * stride + len(kernel) - len(rows), 0)
        rows = np.pad(rows, (total // 2, total - total // 2))
    starts = range(0, len(rows) - len(kernel) + 1, stride)
    return np.array([rows[s : s + len(kernel)] @ kernel for s in starts])


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 7])
def test_a_window_gives_the_rows_that_were_asked_for(size: int, stride: int, same: bool) -> None:
    rng = np.random.default_rng(0)
    for height in (9, 10, 13, 16):
        rows, kernel = rng.integers(1, 100, height), rng.integers(1, 100, size)
        whole = convolved(rows, kernel, stride, same)
        rule = sliding(same, height, size, stride, len(whole))
        for first, last in itertools.combinations(range(len(whole) + 1), 2):
            window = rule.window(first, last)
            found = run(window, rows, kernel, stride, same)
            assert len(found) == window.last - window.first
            inside = found[first - window.first : last - window.first]
            assert inside.tolist() == whole[first:last].tolist()


def run(window: Window, rows: Array, kernel: Array, stride: int, same: bool) -> Array:
    return convolved(rows[window.start : window.end], kernel, stride, same)


def spread(rows: Array, kernel: Array, stride: int, outputs: int) -> Array:
    """A transposed convolution of one column, by its definition; TFLite crops evenly."""
    total = max(0, (len(rows) - 1) * stride + len(kernel) - outputs)
    found = np.zeros(len(rows) * stride + len(kernel) + outputs, int)
    for place, row in enumerate(rows):
        found[place * stride : place * stride + len(kernel)] += row * kernel
    return found[total // 2 : total // 2 + outputs]


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7])
def test_transposed_rows_come_from_all_rows_that_are_added_to_them(
    size: int, stride: int, same: bool
) -> None:
    rng = np.random.default_rng(0)
    least = (1 - stride) if same else size - stride
    for height, more in itertools.product((1, 6), range(least, least + stride)):
        if height * stride + more < 1:
            continue
        rows, kernel = rng.integers(1, 100, height), rng.integers(1, 100, size)
        whole = spread(rows, kernel, stride, height * stride + more)
        rule = transposed(height, size, stride, more)
        for first, last in itertools.combinations(range(len(whole) + 1), 2):
            window = rule.window(first, last)
            assert 0 <= window.start < window.end <= height
            found = spread(
                rows[window.start : window.end], kernel, stride, window.last - window.first
            )
            inside = found[first - window.first : last - window.first]
            assert inside.tolist() == whole[first:last].tolist()


def test_rows_of_zeros_are_added_where_a_window_touches_an_edge() -> None:
    rule = padded(above=2, height=5)
    # Output rows 0 .. 8: two of zeros, five of the input, two of zeros.
    assert rule.window(0, 4) == Window(0, 2, 0, 4)
    assert rule.window(3, 9) == Window(1, 5, 3, 9)
    assert rule.window(0, 1) == Window(0, 1, 0, 3)


def test_a_repeated_row_comes_from_the_row_that_it_copies() -> None:
    assert repeated(2).window(3, 6) == Window(1, 3, 2, 6)


def between(rows: Array, factor: int, centred: bool) -> Array:
    """Rows between rows, the first and the last one repeated beyond the edges."""
    at = np.arange(len(rows) * factor) / factor
    at = at + 0.5 / factor - 0.5 if centred else at
    return np.interp(at, np.arange(len(rows)), rows)


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("factor", [2, 4])
def test_interpolated_rows_come_from_the_rows_on_both_sides(factor: int, centred: bool) -> None:
    rows = np.random.default_rng(0).integers(0, 1000, 7).astype(float)
    whole = between(rows, factor, centred)
    rule = interpolated(factor, len(rows), centred)
    for first, last in itertools.combinations(range(len(whole) + 1), 2):
        window = rule.window(first, last)
        assert window is not None
        found = between(rows[window.start : window.end], factor, centred)
        inside = found[first - window.first : last - window.first]
        assert inside.tolist() == whole[first:last].tolist()


@pytest.mark.parametrize(
    ("height", "size", "stride", "above", "outputs"), [(96, 3, 2, 0, 48), (7, 3, 2, 1, 4)]
)
def test_same_padding_is_that_of_tensorflow(
    height: int, size: int, stride: int, above: int, outputs: int
) -> None:
    assert same_padding(height, size, stride) == (above, outputs)


def test_what_reads_a_type_that_tflite_micro_cannot_slice_runs_whole() -> None:
    rules = []
    for dtype in (schema.TensorType.UINT8, schema.TensorType.INT8):
        net = Net((1, 8, 8, 4))
        net.graph.tensors[net.input].type = dtype
        content = net.file(net.conv(net.same_scale(net.input, 0.5), 4))
        graph = read_graph(content)
        rules.append([rule_of(graph, operator) is None for operator in graph.operators])
    assert rules == [[True, False], [False, False]]
