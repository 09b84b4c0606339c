"""How many inputs files are compared on, and that each file gets its own."""

from __future__ import annotations

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from shrink.base.errors import StageError
from shrink.compact.graph import write_graph
from shrink.compact.plan import plan
from shrink.compact.read import read_graph
from shrink.compact.verify import compare, examples_for, random_examples
from shrink.tflite.model import packed, unpacked
from shrink.tflite.runtime import MICRO
from tests.compact.toys import Net, chain, with_float_borders


@pytest.mark.parametrize(
    ("macs", "examples"),
    [(0, 20), (7_500_000, 20), (60_000_000, 20), (111_000_000, 10), (301_000_000, 4), (10**12, 4)],
)
def test_more_work_is_compared_on_fewer_examples(macs: int, examples: int) -> None:
    assert examples_for(macs) == examples


def test_an_error_in_one_of_several_examples_is_found() -> None:
    """The same file, but for a bias that counts where its channel is not clipped."""
    files = []
    for bias in (0, 40_000):
        net = Net((1, 8, 8, 2), seed=3)
        output = net.conv(net.input, 4)
        tensor = net.graph.operators[-1].inputs[2]
        stored = net.model.buffers[net.graph.tensors[tensor].buffer]
        values = stored.data.view("<i4").copy()
        values[1] += bias
        stored.data = values.view(np.uint8)
        files.append(net.file(output))
    examples = random_examples(read_graph(files[0]), 6)
    found = compare(files[0], [files[1]], examples)
    assert (found.examples, len(found.different)) == (6, 4)
    graph = read_graph(chain())
    planned = write_graph(graph, plan(graph, 1).offsets)
    several = compare(chain(), [planned, chain(), planned], random_examples(graph, 3))
    assert (several.different, len(several.runtimes)) == ((), 4)


def test_floats_are_drawn_from_all_that_the_file_quantizes_them_to() -> None:
    content = with_float_borders()
    (values,) = random_examples(read_graph(content), 20)
    low, high = 0.37 * (-128 + 5), 0.37 * (127 + 5)
    assert values.dtype == np.float32
    assert low <= values.min() < 0.9 * low < 0.9 * high < values.max() <= high


@pytest.mark.parametrize(("scale", "zero_points"), [(np.inf, [-5]), (0.37, None)])
def test_a_quantization_without_a_range_is_left_to_the_runtimes(
    scale: float, zero_points: list[int] | None
) -> None:
    model = unpacked(with_float_borders())
    inner = model.subgraphs[0]
    quantization = inner.tensors[inner.operators[0].outputs[0]].quantization
    quantization.scale, quantization.zeroPoint = [scale], zero_points
    content = packed(model)
    examples = random_examples(read_graph(content), 2)
    assert 0.9 < examples[0].std() < 1.1
    if zero_points:
        with pytest.raises(StageError, match="a runtime cannot run the file"):
            compare(content, [content], examples)


def test_tflite_micro_has_room_for_activations_that_are_far_larger_than_the_input() -> None:
    net = Net((1, 8, 8, 32))
    large = net.enlarge(net.enlarge(net.input, 8), 8)
    content = net.file(net.pool(large, 64, 64, True, schema.Padding.VALID))
    assert 512 * 512 * 32 + 64 * 64 * 32 > 8 << 20
    found = compare(content, [content], random_examples(read_graph(content), 1))
    assert MICRO in found.runtimes
