"""How many inputs files are compared on, and that each file gets its own."""

from __future__ import annotations

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from shrink.compact.graph import write_graph
from shrink.compact.plan import plan
from shrink.compact.read import read_graph
from shrink.compact.verify import compare, examples_for, random_examples
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


def test_tflite_micro_has_room_for_activations_that_are_far_larger_than_the_input() -> None:
    net = Net((1, 8, 8, 32))
    large = net.enlarge(net.enlarge(net.input, 8), 8)
    content = net.file(net.pool(large, 64, 64, True, schema.Padding.VALID))
    assert 512 * 512 * 32 + 64 * 64 * 32 > 8 << 20
    found = compare(content, [content], random_examples(read_graph(content), 1))
    assert MICRO in found.runtimes
