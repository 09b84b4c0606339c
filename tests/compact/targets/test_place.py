"""A placed file: the same bytes for a delegate, with what the real one leaves."""

from __future__ import annotations

import typing
from types import SimpleNamespace

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from shrink.base.errors import ModelError, StageError
from shrink.compact.targets.names import PLACED, PlacedTarget
from shrink.compact.targets.place import place
from shrink.tflite.model import packed, unpacked
from shrink.tflite.runtime import DelegateAnswer
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
    assert "the delegate of LiteRT" in placed.placement.by


def test_place_refuses_several_subgraphs() -> None:
    several = unpacked(chain())
    several.subgraphs = several.subgraphs * 2
    with pytest.raises(ModelError, match="2 subgraphs"):
        place(packed(several), "xnnpack")


def test_place_refuses_a_file_that_litert_does_not_prepare() -> None:
    net = Net((1, 8, 8, 4))
    broken = unpacked(net.file(net.conv(net.input, 4)))
    broken.subgraphs[0].operators[0].outputs = np.zeros(0, np.int32)
    with pytest.raises(StageError, match="LiteRT does not prepare the file"):
        place(packed(broken), "xnnpack")


def test_a_placement_lists_what_the_delegate_did_not_take(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = DelegateAnswer([0, 2], "9.9")
    run = SimpleNamespace(failure=None, answer=answer, output="")
    monkeypatch.setattr("shrink.compact.targets.place.run_child", lambda *_, **__: run)
    placement = place(chain(), "xnnpack").placement
    assert [one.operator for one in placement.on_cpu] == [1]
    assert placement.operators == 3
