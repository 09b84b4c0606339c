"""Memory plans: as low as their bound, and right."""

from __future__ import annotations

import pytest

from shrink.base.errors import ModelError
from shrink.compact.graph import Graph, write_graph
from shrink.compact.order import in_best_order
from shrink.compact.plan import plan
from shrink.compact.read import read_graph
from shrink.compact.schedule import Schedule, Tiling, even_cuts
from shrink.compact.segment import GraphInfo, Segment
from shrink.tflite.memory import live_bytes
from tests.compact.random_tilings import cells_of, in_tiles
from tests.compact.runs import allocates, outputs_of
from tests.compact.toys import Net, chain, random_net, with_uint8_borders


def tiled_chain(tiles: int, kept: bool, upward: bool = False) -> tuple[Graph, Schedule]:
    info = GraphInfo(read_graph(chain()))
    segment = Segment(info, 0, 3)
    cuts = even_cuts(segment.rows, tiles)
    tensors = frozenset(segment.outputs if kept else ())
    tiling = Tiling(0, 3, cuts, tensors, upward=upward)
    return in_tiles(info, [tiling]), Schedule(segment, tiling)


def test_a_chain_takes_what_its_widest_operator_reads_and_writes() -> None:
    graph = read_graph(chain())
    found = plan(graph, 10)
    assert found.size_bytes == found.bound_bytes == 2 * 16 * 8 * 24
    write_graph(graph, found.offsets)  # refuses a wrong plan


def test_a_plan_of_many_equal_peaks_is_as_low_as_one_of_them() -> None:
    net = Net((1, 4, 4, 8))
    x = net.input
    for _ in range(120):
        widened = net.conv(x, 48, (1, 1))
        x = net.add(x, net.conv(net.conv(widened, 0, depthwise=True), 8, (1, 1)))
        net.graph.tensors[x].quantization.scale[:] = 0.5  # it would outgrow float32
    # The shortcut, with what the depthwise convolution reads and writes.
    assert plan(read_graph(net.file(x))).size_bytes == 4 * 4 * (8 + 48 + 48)


@pytest.mark.parametrize("upward", [False, True])
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("tiles", [2, 3, 5, 16])
def test_a_schedule_costs_what_its_operators_keep_alive(
    tiles: int, kept: bool, upward: bool
) -> None:
    graph, schedule = tiled_chain(tiles, kept, upward)
    assert len(schedule.steps) == len(graph.operators)
    live = live_bytes(cells_of(graph), len(graph.operators))
    assert schedule.cost.peak_bytes == max(live)
    found = plan(graph, 200)
    assert found.size_bytes >= found.bound_bytes >= max(live)
    write_graph(graph, found.offsets)  # refuses a wrong plan


def test_kept_rows_are_not_computed_again() -> None:
    again, kept = tiled_chain(4, kept=False)[1].cost, tiled_chain(4, kept=True)[1].cost
    # The widening convolution reads 4 channels and writes 24; two of three inner edges of a tile
    # of the depthwise one need a row above and below.
    widening, narrowing = 8 * 24 * 4, 8 * 4 * 24
    assert again.macs - kept.macs == 6 * widening
    depthwise = kept.macs - 16 * widening - 16 * narrowing
    assert depthwise == (16 + 6) * 8 * 24 * 9


def test_outputs_roll_over_the_input_rows_that_are_dead() -> None:
    net = Net((1, 64, 8, 4))
    info = GraphInfo(read_graph(net.file(net.conv(net.input, 4))))
    graph = in_tiles(info, [Tiling(0, 1, even_cuts(64, 8))])
    # As it stands, input and output lie side by side: 2 x 64 x 8 x 4 bytes.
    assert plan(info.graph, 10).size_bytes == 4096
    found = plan(graph, 200)
    assert found.size_bytes < 2700
    write_graph(graph, found.offsets)  # refuses a wrong plan


def decoder(columns: int = 12) -> bytes:
    net = Net((1, 12, columns, 8))
    x = net.transposed(net.conv(net.input, 16), 16, 3, 2)
    return net.file(net.conv(net.transposed(net.conv(x, 8), 8, 4, 2, 1), 2))


@pytest.mark.parametrize("kept", [False, True])
def test_transposed_convolutions_need_work_memory_of_a_tile_alone(kept: bool) -> None:
    content = decoder()
    info = GraphInfo(read_graph(content))
    # Sums of 50 x 50 x 8 in int32, and the tensors on both sides.
    assert max(info.peaks) == 50 * 50 * 8 * 5 + 24 * 24 * 8
    segment = Segment(info, 1, 5)
    tensors = frozenset(segment.outputs if kept else ())
    tiling = Tiling(1, 5, even_cuts(segment.rows, 4), tensors)
    graph = in_tiles(info, [tiling])
    live = live_bytes(cells_of(graph), len(graph.operators))
    assert Schedule(segment, tiling).cost.peak_bytes == pytest.approx(max(live), abs=16)
    found = plan(graph, 300)
    assert found.size_bytes < 0.5 * max(info.peaks)
    planned = write_graph(graph, found.offsets)
    lasting = sum(GraphInfo(graph).tails)
    assert allocates(planned, found.size_bytes + 2 * lasting)
    assert not allocates(planned, found.size_bytes + lasting // 2)
    assert outputs_of(planned) == outputs_of(content)


def test_tensors_are_aligned_where_work_memory_may_begin_at_their_ends() -> None:
    info = GraphInfo(read_graph(decoder(columns=7)))
    graph = in_tiles(info, [Tiling(0, 5, (13, 26, 39))])
    found = plan(graph, 100)
    assert all(offset % 16 == 0 for offset in found.offsets.values())
    assert outputs_of(write_graph(graph, found.offsets)) == outputs_of(decoder(columns=7))


def test_uint8_borders_take_no_memory_of_their_own() -> None:
    content = with_uint8_borders()
    graph = in_best_order(read_graph(content))
    found = plan(graph, 10)
    # Input and output of the depthwise convolution; 512 bytes each at the borders.
    assert found.size_bytes == found.bound_bytes == 2 * 16 * 8 * 24
    for border in (graph.operators[0], graph.operators[-1]):
        assert found.offsets[border.inputs[0]] == found.offsets[border.outputs[0]]
    assert outputs_of(write_graph(graph, found.offsets)) == outputs_of(content)


def test_what_is_read_again_is_not_written_over() -> None:
    net = Net((1, 8, 8, 4))
    wide = net.conv(net.input, 4)
    other = net.same_scale(wide, 2 * net.scale(wide))
    content = net.file(net.add(net.conv(other, 4), wide))
    graph = read_graph(content)
    found = plan(graph, 50)
    assert abs(found.offsets[wide] - found.offsets[other]) >= 256
    assert outputs_of(write_graph(graph, found.offsets)) == outputs_of(content)


@pytest.mark.parametrize("seed", range(5))
def test_a_moved_tensor_is_a_fault(seed: int) -> None:
    graph = read_graph(random_net(seed))
    offsets = dict(plan(graph, 20).offsets)
    write_graph(graph, offsets)
    operator = next(o for o in graph.operators if o.name == "CONV_2D")
    offsets[operator.outputs[0]] = offsets[operator.inputs[0]]
    with pytest.raises(ModelError, match="memory plan is wrong"):
        write_graph(graph, offsets)
