"""PADs folded into convolutions: fewer tensors, the same bytes."""

from __future__ import annotations

import pytest

from shrink.compact.fold_pad import with_folded_pads
from shrink.compact.graph import Graph, read_graph, write_graph
from shrink.compact.sweep import swept
from tests.compact.runs import outputs_of
from tests.compact.toys import Net

VALID = 1
PLENTY = 10**9


def names(graph: Graph) -> list[str]:
    return [operator.name for operator in graph.operators]


@pytest.mark.parametrize("depthwise", [False, True])
@pytest.mark.parametrize(
    ("height", "stride", "rows", "kernel"),
    [
        (12, 1, (1, 1), 3),  # what SAME adds
        (12, 2, (0, 1), 3),
        (13, 2, (1, 1), 3),
        (12, 2, (1, 1), 4),  # a row above more than SAME would: the kernel grows
    ],
)
def test_a_pad_before_a_convolution_is_folded(
    height: int, stride: int, rows: tuple[int, int], kernel: int, depthwise: bool
) -> None:
    net = Net((1, height, height, 3))
    x = net.pad(net.conv(net.input, 4), rows, rows)
    content = net.file(net.conv(x, 5, (3, 3), stride, VALID, depthwise=depthwise))
    folded = with_folded_pads(read_graph(content), PLENTY)
    assert "PAD" not in names(folded)
    assert folded.tensors[folded.operators[-1].inputs[1]].shape[1:3] == (kernel, kernel)
    assert outputs_of(write_graph(folded)) == outputs_of(content)


def test_a_kernel_does_not_grow_beyond_the_work_that_is_allowed() -> None:
    net = Net((1, 12, 12, 3))
    x = net.pad(net.conv(net.input, 4), (1, 1), (1, 1))
    graph = read_graph(net.file(net.conv(x, 5, (3, 3), 2, VALID)))
    # 6 x 6 x 5 outputs of 4 channels, 16 weights each in place of 9.
    assert "PAD" in names(with_folded_pads(graph, 6 * 6 * 5 * 4 * 7 - 1))
    assert "PAD" not in names(with_folded_pads(graph, 6 * 6 * 5 * 4 * 7))


def test_a_kernel_whose_zero_is_not_known_does_not_grow() -> None:
    net = Net((1, 12, 12, 3))
    output = net.conv(net.pad(net.conv(net.input, 4), (1, 1), (1, 1)), 5, (3, 3), 2, VALID)
    net.graph.tensors[net.graph.operators[-1].inputs[1]].quantization.zeroPoint = None
    assert "PAD" in names(with_folded_pads(read_graph(net.file(output)), PLENTY))


def test_a_pad_that_others_read_stays() -> None:
    net = Net((1, 12, 12, 3))
    padded = net.pad(net.conv(net.input, 4), (1, 1), (1, 1))
    graph = read_graph(net.file(net.conv(padded, 5, (3, 3), 1, VALID), net.relu(padded)))
    assert "PAD" in names(with_folded_pads(graph, PLENTY))


def test_what_no_output_depends_on_is_swept() -> None:
    net = Net((1, 8, 8, 3))
    used = net.conv(net.input, 4)
    net.conv(net.conv(net.input, 4), 4)
    content = net.file(used)
    graph = swept(read_graph(content))
    assert names(graph) == ["CONV_2D"]
    assert outputs_of(write_graph(graph)) == outputs_of(content)
