"""The stage: an artifact in, one with a smaller arena out, and what the report says of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from shrink.stages.compact.config import CompactConfig
from shrink.stages.compact.run import run
from tests.compact.test_compact import wide
from tests.compact.toys import Net
from tests.jobs import context_of


def test_run_gives_a_smaller_arena_and_says_what_it_took(tmp_path: Path) -> None:
    (tmp_path / "model.tflite").write_bytes(wide())
    context = context_of(tmp_path, kind="compact", inputs={"model": tmp_path / "model.tflite"})
    result = run(CompactConfig(), context)
    assert result.tflite is not None
    assert result.details is not None
    found = result.details["compact"]
    assert found["changed"]
    assert found["arena_after"] < 0.5 * found["arena_before"]
    assert found["new_operators"] == ("CONCATENATION", "SLICE")
    assert found["equality"]["different"] == ()
    assert result.notes[0].startswith(f"the arena fell from {found['arena_before']:,}")
    assert result.notes[1] == "the firmware must register CONCATENATION, SLICE"


def test_run_hands_on_what_it_cannot_improve(tmp_path: Path) -> None:
    net = Net((1, 2, 2, 4))
    content = net.file(net.conv(net.input, 4, (1, 1)))
    (tmp_path / "model.tflite").write_bytes(content)
    context = context_of(tmp_path, kind="compact", inputs={"model": tmp_path / "model.tflite"})
    result = run(CompactConfig(), context)
    assert result.tflite == content
    assert "unchanged" in result.notes[0]


def test_an_arena_and_a_share_of_work_are_not_both_given() -> None:
    with pytest.raises(ValidationError, match="give one of the two"):
        CompactConfig(arena_bytes=1000, max_extra_macs=0.1)
