"""The Edge TPU's public limits, each on a file that keeps or breaks it."""

from __future__ import annotations

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from shrink.compact.targets.edgetpu import staying
from shrink.compact.targets.view import read_view
from shrink.tflite.model import packed, unpacked
from tests.compact.toys import Net, chain

_CODE, _KIND = schema.BuiltinOperator, schema.BuiltinOptions


def test_staying_is_nothing_of_convolutions() -> None:
    assert staying(read_view(chain())) == {}


def test_staying_is_all_behind_the_first_that_is_not_mapped() -> None:
    net = Net((1, 8, 8, 4))
    first = net.conv(net.input, 4)
    bad = net.emit(_CODE.LEAKY_RELU, [first], net.tensor(net.shape(first), scale=1.0))
    found = staying(read_view(net.file(net.conv(bad, 4), first)))
    assert found[1] == "the Edge TPU has no such operator"
    assert found[2].startswith("it comes after operator 1, LEAKY_RELU")
    assert list(found) == [1, 2]


def test_staying_is_nothing_of_another_branch() -> None:
    """As the compiler told of a detector: of its two outputs the first was mapped whole."""
    net = Net((1, 8, 8, 4))
    first = net.conv(net.input, 4)
    bad = net.emit(_CODE.LEAKY_RELU, [first], net.tensor(net.shape(first), scale=1.0))
    other = net.conv(first, 8)
    joined = net.add(net.conv(bad, 4), first)
    assert list(staying(read_view(net.file(joined, other)))) == [1, 3, 4]


def _packed(axis: int) -> bytes:
    net = Net((2, 4))
    options = schema.PackOptionsT()
    options.axis, options.valuesCount = axis, 2
    output = net.tensor((2, 2, 4) if axis in (0, -3) else (2, 4, 2), scale=0.5)
    return net.file(
        net.emit(_CODE.PACK, [net.input, net.input], output, options, _KIND.PackOptions)
    )


def _split(axis: int) -> bytes:
    net = Net((1, 4, 4, 4))
    place = net.tensor((), schema.TensorType.INT32, data=np.array(axis, np.int32))
    options = schema.SplitOptionsT()
    options.numSplits = 1
    output = net.tensor((1, 4, 4, 4), scale=0.5)
    return net.file(net.emit(_CODE.SPLIT, [place, net.input], output, options, _KIND.SplitOptions))


def test_staying_counts_axes_from_both_ends() -> None:
    for axis in (0, -3):
        assert "along the batch" in staying(read_view(_packed(axis)))[0]
    assert staying(read_view(_packed(2))) == {}
    for axis in (0, -4):
        assert "splits the batch" in staying(read_view(_split(axis)))[0]
    assert staying(read_view(_split(-1))) == {}


def test_staying_names_limits_of_operators() -> None:
    net = Net((1, 8, 8, 4))
    ends = [net.conv(net.input, 4, dilation=2)]
    net.graph.operators[0].builtinOptions.dilationWFactor = 1
    assert staying(read_view(net.file(*ends))) == {0: "its dilation is 2 down and 1 across"}
    net = Net((1, 8, 8, 4))
    pooled = net.pool(net.input, 2, 2, True, schema.Padding.VALID)
    net.graph.operators[0].builtinOptions.fusedActivationFunction = 1
    assert staying(read_view(net.file(pooled))) == {0: "the activation RELU is part of it"}


def _softmax(shape: tuple[int, ...]) -> bytes:
    net = Net(shape)
    options = schema.SoftmaxOptionsT()
    options.beta = 1.0
    output = net.tensor(shape, scale=1 / 256)
    return net.file(net.emit(_CODE.SOFTMAX, [net.input], output, options, _KIND.SoftmaxOptions))


def test_staying_takes_a_softmax_over_one_dimension() -> None:
    assert staying(read_view(_softmax((1, 10)))) == {}
    assert "more than one dimension" in staying(read_view(_softmax((1, 4, 10))))[0]
    assert "at most 16,000" in staying(read_view(_softmax((1, 16_001))))[0]


def _mean(channels: int, axes: list[int]) -> bytes:
    net = Net((1, 4, 4, channels))
    wanted = net.tensor((len(axes),), schema.TensorType.INT32, data=np.array(axes, np.int32))
    shape = tuple(s for axis, s in enumerate((1, 4, 4, channels)) if axis not in axes)
    options = schema.ReducerOptionsT()
    output = net.tensor(shape, scale=0.5)
    kind = _KIND.ReducerOptions
    return net.file(net.emit(_CODE.MEAN, [net.input, wanted], output, options, kind))


def test_staying_takes_means_of_rows_columns_and_fours_of_channels() -> None:
    assert staying(read_view(_mean(6, [1, 2]))) == {}
    assert staying(read_view(_mean(8, [3]))) == {}
    assert "no multiple of 4" in staying(read_view(_mean(6, [3])))[0]
    assert "batch" in staying(read_view(_mean(6, [0, 1])))[0]


def test_staying_asks_for_8_bits_and_3_dimensions() -> None:
    batch = unpacked(chain())
    for tensor in batch.subgraphs[0].tensors:
        if tensor.buffer == 0:
            tensor.shape = np.array([2, *tensor.shape[1:]], np.int32)
    assert "more than 3 dimensions" in staying(read_view(packed(batch)))[0]
    wide = unpacked(chain())
    wide.subgraphs[0].tensors[wide.subgraphs[0].inputs[0]].type = schema.TensorType.INT16
    assert "is INT16" in staying(read_view(packed(wide)))[0]


def test_staying_leaves_a_float_border_without_ending_what_is_mapped() -> None:
    net = Net((1, 8, 8, 4))
    given = net.tensor((1, 8, 8, 4), schema.TensorType.FLOAT32)
    stored = net.emit(_CODE.QUANTIZE, [given], net.tensor((1, 8, 8, 4), scale=0.5))
    net.graph.inputs = [given]
    back = net.tensor((1, 8, 8, 4), schema.TensorType.FLOAT32)
    found = staying(read_view(net.file(net.emit(_CODE.DEQUANTIZE, [net.conv(stored, 4)], back))))
    assert list(found) == [0, 2]
    assert "is FLOAT32" in found[0]
