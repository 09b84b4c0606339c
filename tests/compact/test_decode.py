"""Kernels stored for TFLM_DECODE: less flash, the same bytes in TFLite Micro."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from tflite_micro import runtime

from shrink.base.errors import ModelError
from shrink.base.types import Array
from shrink.compact import compact as whole_module
from shrink.compact.compact import compact
from shrink.compact.decode.choice import _choices, _Option
from shrink.compact.decode.kernels import kernels, with_decode
from shrink.compact.graph import write_graph
from shrink.compact.read import read_graph
from shrink.compact.result import Compacted
from shrink.contract.compaction import StoredKernels
from shrink.graph.macs import macs_figure
from shrink.tflite.interpreter import load
from shrink.tflite.litert_twin import DECODE, dense_twin, has_decode
from shrink.tflite.model import packed, read, unpacked
from shrink.tflite.runtime import MICRO
from shrink.tflite.weights import nonzero_parameters, parameters
from tests.compact.runs import allocates, outputs_of
from tests.compact.toys import Net


def sparse(shape: tuple[int, ...], seed: int = 0, share: float = 0.8) -> Array:
    rng = np.random.default_rng(seed)
    values = rng.integers(-127, 128, shape)
    return np.where(rng.random(shape) < share, 0, values).astype(np.int8)


def shared(shape: tuple[int, ...], count: int) -> Array:
    """Few values, others in each of the channels."""
    rng = np.random.default_rng(count)
    table = np.sort(rng.integers(-127, 128, (shape[0], count)), axis=1)
    return np.take_along_axis(table, rng.integers(0, count, shape), axis=1).astype(np.int8)


def layers(weights: Array, scales: int = 1) -> bytes:
    """Two dense layers, the second from as many values as the first has units."""
    net = Net((1, weights.shape[1]))
    first = net.dense(net.input, weights, scales)
    return net.file(net.dense(first, sparse((10, weights.shape[0]), 1)))


def decode(content: bytes, arena_bytes: int | None = None) -> tuple[Compacted, StoredKernels]:
    """Compact a file that is small enough as it is, and store its kernels."""
    found = compact(content, arena=arena_bytes, decode=True)
    assert found.decode is not None
    return found, found.decode


def stored(content: bytes, parts: int = 1) -> bytes:
    """Return a file whose first kernel is stored in so many parts."""
    graph = read_graph(content)
    found, _ = kernels(graph)
    return write_graph(with_decode(graph, found, {found[0].index: parts}))


def in_micro(content: bytes) -> list[bytes]:
    """Outputs of TFLite Micro for the inputs of `outputs_of`."""
    rng = np.random.default_rng(3)
    one = runtime.Interpreter.from_bytes(content, arena_size=4_000_000)
    shape = read(content)[0].tensors[read(content)[0].inputs[0]].shape
    found = []
    for given in [rng.integers(-128, 128, shape).astype(np.int8) for _ in range(2)]:
        one.set_input(given, 0)
        one.invoke()
        found.append(np.array(one.get_output(0)).tobytes())
    return found


@pytest.fixture(scope="module")
def pruned() -> bytes:
    return layers(sparse((128, 256)), 128)


@pytest.fixture(scope="module")
def whole(pruned: bytes) -> tuple[Compacted, StoredKernels]:
    return decode(pruned, 60_000)


def test_zeros_are_left_out_and_outputs_stay(
    pruned: bytes, whole: tuple[Compacted, StoredKernels]
) -> None:
    found, kept = whole
    assert found.changed
    # A bit for each of 32,768 weights and a fifth of the bytes, all in all less than half.
    assert kept.file_bytes < 0.6 * kept.file_bytes_before
    assert kept.file_bytes == len(found.content)
    wanted = outputs_of(pruned)
    assert in_micro(found.content) == wanted[3]
    assert len(set(wanted[3])) == 2
    assert outputs_of(dense_twin(found.content)) == wanted
    assert allocates(found.content, found.arena_after)
    assert not allocates(found.content, found.arena_after - 64)
    assert kept.layers[0].form == "bit mask"
    assert kept.layers[0].bytes_before == 128 * 256


def test_the_file_is_read_as_its_dense_twin(
    pruned: bytes, whole: tuple[Compacted, StoredKernels]
) -> None:
    found = whole[0].content
    assert has_decode(found)
    assert parameters(found) == parameters(pruned)
    assert nonzero_parameters(found) == nonzero_parameters(pruned)
    assert macs_figure(found) == macs_figure(pruned)
    assert macs_figure(found).value == 128 * 256 + 10 * 128
    given = np.random.default_rng(0).normal(size=(3, 256)).astype(np.float32)
    assert np.array_equal(load(found).predict(given)[0], load(pruned).predict(given)[0])


def test_a_small_arena_decodes_a_layer_in_parts(
    pruned: bytes, whole: tuple[Compacted, StoredKernels]
) -> None:
    before, after = whole[0].arena_before, whole[0].arena_after
    found, kept = decode(pruned, before + 12_000)
    assert kept.changed
    assert found.arena_after <= before + 12_000 < after
    assert kept.layers[0].parts > 1
    assert kept.file_bytes < 0.8 * kept.file_bytes_before
    assert in_micro(found.content) == outputs_of(pruned)[3]


@pytest.mark.parametrize("parts", [2, 7, 11, 128])
def test_parts_are_concatenated_ten_at_a_time(pruned: bytes, parts: int) -> None:
    content = stored(pruned, parts)
    assert in_micro(content) == outputs_of(pruned)[3]
    joins = [o for o in read(content)[0].operators if o.name == "CONCATENATION"]
    assert all(len(one.inputs) <= 10 for one in joins)


@pytest.mark.parametrize("parts", [1, 3])
def test_convolutions_are_decoded_by_their_own_axis(parts: int) -> None:
    net = Net((1, 6, 5, 8))
    wide = net.conv(net.conv(net.input, 48, (3, 3)), 0, depthwise=True)
    content = net.file(net.conv(wide, 12, (1, 1)))
    graph = read_graph(content)
    found, _ = kernels(graph)
    assert [kernel.channel_axis for kernel in found] == [0, 3, 0]
    chosen = {kernel.index: parts if kernel.splits else 1 for kernel in found}
    assert sum(kernel.splits for kernel in found) == 2
    decoded = write_graph(with_decode(graph, found, chosen))
    assert in_micro(decoded) == outputs_of(content)[3]
    assert outputs_of(dense_twin(decoded)) == outputs_of(content)


@pytest.mark.parametrize("count", [2, 4, 5, 12, 16, 27, 60, 90])
def test_tables_of_one_to_seven_bits_are_read_by_the_runtime(count: int) -> None:
    one_scale = shared((1, 8192), count).reshape(64, 128)
    for weights, scales in ((shared((64, 1050), count), 64), (one_scale, 1)):
        content = layers(weights, scales)
        form = kernels(read_graph(content))[0][0].form().form
        assert f"{max(1, (count - 1).bit_length())} bit" in form
        assert form.startswith("one table" if scales == 1 else "a table a channel")
        assert in_micro(stored(content)) == outputs_of(content)[3]


def one_table(scales: int) -> bytes:
    """A layer whose channels all have the same few values."""
    rng = np.random.default_rng(5)
    return layers(rng.choice(np.array([-90, -7, 3, 77], np.int8), (64, 256)), scales)


def test_one_table_for_channels_with_scales_of_their_own_is_read_right() -> None:
    content = one_table(64)
    assert kernels(read_graph(content))[0][0].form().form == "one table, 2 bits"
    assert in_micro(stored(content)) == outputs_of(content)[3]


def test_such_a_table_with_its_length_as_distance_would_be_read_wrong() -> None:
    """What the runtime does with it silently, and why the distance is 0."""
    content = one_table(64)
    model = unpacked(stored(content))
    inner = model.subgraphs[0]
    custom = [n for n, code in enumerate(model.operatorCodes) if code.customCode]
    operator = next(one for one in inner.operators if one.opcodeIndex in custom)
    buffer = model.buffers[inner.tensors[operator.inputs[1]].buffer]
    buffer.data = np.array(buffer.data)
    assert buffer.data[6] == 0
    buffer.data[6] = 4
    assert in_micro(packed(model)) != outputs_of(content)[3]


def without_zero_points(content: bytes) -> bytes:
    model = unpacked(content)
    for tensor in model.subgraphs[0].tensors:
        if tensor.quantization is not None and len(tensor.quantization.scale) > 1:
            tensor.quantization.zeroPoint = None
    return packed(model)


def test_scales_without_zero_points_are_left_alone() -> None:
    # TFLite Micro then sees one channel, and would read every channel from the first table.
    graph = read_graph(without_zero_points(layers(shared((64, 210), 4), 64)))
    found, others = kernels(graph)
    assert [kernel.values.shape for kernel in found] == [(10, 64)]
    assert [graph.tensors[index].shape for index in others] == [(64, 210)]


def test_constants_of_types_that_nothing_computes_are_passed_over(pruned: bytes) -> None:
    model = unpacked(pruned)
    for tensor in model.subgraphs[0].tensors:
        if model.buffers[tensor.buffer].data is not None:
            tensor.type = schema.TensorType.COMPLEX64
    assert kernels(read_graph(packed(model))) == ([], [])


def test_a_kernel_of_which_another_operator_takes_the_values_stays(pruned: bytes) -> None:
    model = unpacked(pruned)
    inner = model.subgraphs[0]
    first, second = (one.inputs[1] for one in inner.operators)
    inner.tensors[second].buffer = inner.tensors[first].buffer
    inner.tensors[second].shape = np.array([256, 128], np.int32)
    found, others = kernels(read_graph(packed(model)))
    assert not found
    assert set(others) == {first, second}


def test_noise_comes_back_as_it_is() -> None:
    net = Net((1, 256))
    noise = np.random.default_rng(0).integers(-127, 128, (64, 256)).astype(np.int8)
    content = net.file(net.dense(net.input, noise))
    found, kept = decode(content, 1_000_000)
    assert not found.changed
    assert found.content == content
    assert kept.reason == (
        "compressing kernels saves less than 1% of the file: prune or cluster before quantize"
    )
    assert kept.reason in found.reason
    assert kept.layers[0].form == "dense: compressing it saves too little"


def test_small_kernels_are_no_reason_to_prune() -> None:
    net = Net((1, 16))
    content = net.file(net.dense(net.input, sparse((10, 16))))
    assert decode(content)[1].reason == "no int8 kernel is large enough to be compressed"


def test_without_an_arena_to_meet_flash_must_pay_for_it(pruned: bytes) -> None:
    found, kept = decode(pruned)
    assert found.content == pruned
    assert "less than 4 times as much flash" in kept.reason  # it has zeros enough
    narrow, kept = decode(pruned, found.arena_before)
    assert narrow.content == pruned
    assert kept.reason == ("decoding kernels does not fit the arena: allow a larger arena")


@pytest.mark.parametrize(("limit", "count"), [(None, 1), (1000, 4), (210, 1), (200, 0)])
def test_below_a_limit_the_kernel_that_saves_most_comes_first(
    limit: int | None, count: int
) -> None:
    options = {index: [_Option(1, 100, 0, 210)] for index in range(1, 10)}
    found = _choices({**options, 0: [_Option(1, 50_000, 0, 210)]}, 10_000, limit)
    assert [len(one.parts) for one in found] == [count] * (count > 0)
    assert all(0 in one.parts and one.growth == 210 * count for one in found)


def test_an_arena_that_was_estimated_too_low_is_no_reason_to_store_nothing() -> None:
    net = Net((1, 128))
    end = net.input
    for seed in range(8):
        end = net.dense(end, sparse((128, 128), seed, 0.6 + 0.04 * seed))
    found, kept = decode(net.file(end), 15_872)
    assert kept.changed
    assert found.arena_after <= 15_872
    assert kept.file_bytes < 0.75 * kept.file_bytes_before


def test_compact_says_what_became_of_arena_and_flash(
    whole: tuple[Compacted, StoredKernels],
) -> None:
    found: Any = whole[0]
    assert DECODE in found.new_operators
    assert found.arena_after <= 60_000
    assert "LiteRT reference (kernels dense)" in found.equality.runtimes
    assert "TFLite Micro" in found.equality.runtimes
    told = found.details.decode
    assert told.file_bytes == len(found.content) < told.file_bytes_before
    assert told.layers[0].form == "bit mask"
    assert any("LiteRT does not know TFLM_DECODE" in note for note in found.notes)


def test_a_file_that_stores_kernels_so_is_not_rewritten_again(
    whole: tuple[Compacted, StoredKernels],
) -> None:
    with pytest.raises(ModelError, match="stored for TFLM_DECODE already; compact the file that"):
        compact(whole[0].content)


def test_without_the_key_kernels_stay_dense(pruned: bytes) -> None:
    found = compact(pruned, arena=60_000)
    assert found.decode is None
    assert found.content == pruned


def with_values(content: bytes, change: Callable[[Array], Array]) -> bytes:
    """Change the values of every kernel of int8 with 1,024 weights or more."""
    model = unpacked(content)
    inner = model.subgraphs[0]
    for one in {int(operator.inputs[1]) for operator in inner.operators}:
        tensor = inner.tensors[one]
        if math.prod(int(size) for size in tensor.shape) >= 1024:
            buffer = model.buffers[tensor.buffer]
            buffer.data = change(np.array(buffer.data).view(np.int8)).view(np.uint8)
    return packed(model)


def test_parts_of_an_operator_share_what_it_keeps_for_its_channels() -> None:
    net = Net((1, 8, 8, 96))
    net.conv(net.input, 192)
    content = with_values(net.file(len(net.graph.tensors) - 1), lambda v: v // 16 * 16)
    found, kept = decode(content)
    assert kept.changed
    assert kept.layers[0].form == "one table, 4 bits"
    assert kept.layers[0].parts > 1
    saved = kept.file_bytes_before - kept.file_bytes
    assert saved > 4 * (found.arena_after - found.arena_before)
    assert in_micro(found.content) == outputs_of(content)[3]


def deep() -> bytes:
    rng = np.random.default_rng(7)
    net = Net((1, 32, 32, 4))
    middle = net.conv(net.conv(net.input, 32), 16, stride=2)
    output = net.conv(net.conv(middle, 64, stride=4), 64)
    return with_values(net.file(output), lambda v: np.where(rng.random(v.shape) < 0.8, 0, v))


@pytest.mark.slow
def test_tiles_and_stored_kernels_go_together() -> None:
    content = deep()
    untouched = compact(content)
    both = compact(content, arena=untouched.arena_after + 12_000, decode=True)
    alone = compact(content, decode=True, max_extra_macs=0)
    assert both.decode is not None
    assert both.decode.changed
    assert len(both.content) < 0.8 * len(content)
    assert any("row tiles" in line for line in both.done)
    assert both.arena_after < min(alone.arena_after, alone.arena_before)
    assert both.bound_bytes is not None
    assert both.arena_after <= 1.05 * both.bound_bytes
    assert in_micro(both.content) == outputs_of(content)[3]
    assert len(set(in_micro(both.content))) == 2


@pytest.mark.slow
def test_stored_kernels_with_other_outputs_leave_the_rest_of_the_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    content = deep()
    fits = compact(content).arena_after + 12_000
    tiled, compared = compact(content, arena=fits), whole_module._equality
    assert tiled.changed
    assert decode(content, fits)[1].changed

    def different_where_kernels_are_stored(graph: Any, bordered: Any, version: Any, n: int) -> Any:
        found = compared(graph, bordered, version, n)
        return replace(found, different=(MICRO,)) if has_decode(version.content) else found

    monkeypatch.setattr(whole_module, "_equality", different_where_kernels_are_stored)
    found, kept = decode(content, fits)
    assert (found.changed, found.content) == (True, tiled.content)
    assert not kept.changed
    assert kept.reason == "compressed kernels give other outputs in TFLite Micro"
    assert kept.file_bytes == kept.file_bytes_before == len(tiled.content)
    assert kept.arena_after == kept.arena_before == tiled.arena_after
    assert not any("bytes, " in line for line in found.done)


def test_stored_kernels_with_other_outputs_are_the_reason_for_a_file_as_it_was(
    pruned: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = whole_module._equality
    monkeypatch.setattr(
        whole_module, "_equality", lambda *given: replace(compared(*given), different=(MICRO,))
    )
    found, kept = decode(pruned, 60_000)
    assert (found.changed, found.content) == (False, pruned)
    assert kept.reason == "compressed kernels give other outputs in TFLite Micro"
    assert kept.file_bytes == kept.file_bytes_before == len(pruned)
