"""A placed file: the same bytes for a delegate, with what the real one leaves."""

from __future__ import annotations

import typing

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from shrink.base.errors import ModelError
from shrink.compact.targets.names import PLACED, PlacedTarget
from shrink.compact.targets.place import place
from shrink.tflite.model import packed, unpacked
from tests.compact.toys import Net, chain


def test_the_type_of_targets_names_all_of_them() -> None:
    assert typing.get_args(PlacedTarget) == PLACED


def test_place_in_xnnpack_leaves_the_file_as_it_is_and_asks_the_delegate() -> None:
    net = Net((1, 8, 8, 4))
    pooled = net.pool(net.conv(net.input, 4), 2, 2, True, schema.Padding.VALID)
    content = net.file(pooled)
    placed = place(content, "xnnpack")
    assert placed.content == content
    assert placed.not_run == ""
    (left,) = placed.placement.on_cpu
    assert (left.operator, left.kind) == (1, "AVERAGE_POOL_2D")
    assert "float alone" in left.reason
    assert "the delegate of LiteRT" in placed.placement.by


def test_place_refuses_several_subgraphs() -> None:
    several = unpacked(chain())
    several.subgraphs = several.subgraphs * 2
    with pytest.raises(ModelError, match="2 subgraphs"):
        place(packed(several), "edgetpu")


def test_place_refuses_an_operator_that_lacks_what_it_needs() -> None:
    net = Net((1, 8, 8, 4))
    broken = unpacked(net.file(net.conv(net.input, 4)))
    broken.subgraphs[0].operators[0].outputs = np.zeros(0, np.int32)
    with pytest.raises(ModelError, match="corrupt"):
        place(packed(broken), "xnnpack")
    net = Net((1, 1, 1, 4))
    broken = unpacked(net.file(net.emit(schema.BuiltinOperator.SOFTMAX, [], net.input)))
    with pytest.raises(ModelError, match="lacks an input"):
        place(packed(broken), "edgetpu")


def test_xnnpack_rules_refuse_scales_of_zero() -> None:
    net = Net((1, 8, 8, 4))
    broken = unpacked(net.file(net.add(net.input, net.input)))
    graph = broken.subgraphs[0]
    graph.tensors[graph.outputs[0]].quantization.scale = np.zeros(1, np.float32)
    with pytest.raises(ModelError, match="corrupt"):
        place(packed(broken), "xnnpack")
