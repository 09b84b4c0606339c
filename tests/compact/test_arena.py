"""Files for LiteRT: no plan, an arena as its own addresses say, and the same bytes."""

from __future__ import annotations

import numpy as np
import pytest

from shrink.compact import compact as whole
from shrink.compact import search
from shrink.compact.compact import compact
from shrink.contract.compaction import RuntimeEquality
from shrink.tflite.arena import litert_arena_bytes as arena_bytes
from shrink.tflite.interpreter import load
from shrink.tflite.model import PLAN_ENTRY, read_metadata
from tests.compact.runs import outputs_of
from tests.compact.test_compact import wide
from tests.compact.toys import Net


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, few in (("_STARTS", 2), ("_CHANGES", 60)):
        monkeypatch.setattr(search, name, few)


def test_an_arena_is_what_tensors_that_live_at_once_take() -> None:
    """All three: LiteRT keeps inputs to the end."""
    net = Net((1, 16, 16, 4))
    middle = net.conv(net.input, 8)
    content = net.file(net.conv(middle, 4))
    assert arena_bytes(content) == 16 * 16 * (4 + 8 + 4)


def test_a_wide_middle_is_never_whole_in_the_arena_of_litert() -> None:
    content = wide()
    found = compact(content, target="litert")
    assert found.changed
    assert found.target == "litert"
    assert found.arena_before == 48 * 24 * (48 + 48 + 4)  # the input lasts to the end
    assert found.arena_after < 0.6 * found.arena_before
    assert arena_bytes(found.content) == found.arena_after
    assert found.macs_after <= 1.05 * found.macs_before
    assert not read_metadata(found.content, PLAN_ENTRY)
    assert outputs_of(found.content) == outputs_of(content)
    assert found.memory_after is not None
    assert max(found.memory_after.live_bytes) <= found.arena_after
    assert "of LiteRT fell" in found.notes[0]
    # It has no plan that would tell that it is for a batch of 1.
    given = np.random.default_rng(0).normal(0, 20, (3, 48, 24, 4)).astype(np.float32)
    wanted, got = (load(one).predict(given)[0] for one in (content, found.content))
    assert got.tolist() == wanted.tolist()


def test_a_file_that_litert_holds_no_better_comes_back_as_it_is() -> None:
    net = Net((1, 2, 2, 4))
    content = net.file(net.conv(net.input, 4, (1, 1)))
    found = compact(content, target="litert")
    assert found.content == content
    assert found.arena_after == found.arena_before == arena_bytes(content)
    assert "found" in found.reason


def test_floats_that_would_come_out_otherwise_are_left_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    different = RuntimeEquality(
        examples=2, runtimes=("LiteRT reference",), different=("LiteRT XNNPACK",), distinct=True
    )
    monkeypatch.setattr(whole, "compare", lambda *_: different)
    content = wide()
    found = compact(content, target="litert")
    assert found.content == content
    assert "LiteRT XNNPACK" in found.reason
