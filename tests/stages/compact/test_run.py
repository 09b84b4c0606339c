"""The stage: an artifact in, one with a smaller arena out, and what the report says of it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from shrink.base.errors import ResourceError
from shrink.stages.compact.config import CompactConfig
from shrink.stages.compact.run import run
from tests.compact.test_compact import wide
from tests.compact.toys import Net, with_float_borders
from tests.jobs import context_of


def compacted(folder: Path, content: bytes, **settings: Any) -> Any:
    (folder / "model.tflite").write_bytes(content)
    context = context_of(folder, kind="compact", inputs={"model": folder / "model.tflite"})
    return run(CompactConfig.model_validate(settings), context)


def test_run_gives_a_smaller_arena_and_says_what_it_took(tmp_path: Path) -> None:
    result = compacted(tmp_path, wide())
    found = result.details.compact
    assert found.changed
    assert found.arena_after < 0.5 * found.arena_before
    assert found.new_operators == ("CONCATENATION", "SLICE")
    assert found.equality.different == ()
    assert result.notes[0].startswith(f"the arena fell from {found.arena_before:,}")
    assert result.notes[1] == "the firmware must register CONCATENATION, SLICE"


def test_run_hands_on_what_it_cannot_improve(tmp_path: Path) -> None:
    net = Net((1, 2, 2, 4))
    content = net.file(net.conv(net.input, 4, (1, 1)))
    result = compacted(tmp_path, content)
    assert result.tflite == content
    assert "unchanged" in result.notes[0]


def test_run_makes_borders_int8_and_says_their_scale(tmp_path: Path) -> None:
    result = compacted(tmp_path, with_float_borders(), int8_io=True)
    border = result.details.compact.borders[0]
    assert (border.side, border.given_type, border.zero_point) == ("input", "float32", -5)
    assert border.scale == pytest.approx(0.37)
    assert "input t0 is int8 in place of float32: scale 0.370000005, zero point -5" in result.notes


def test_an_arena_and_a_share_of_work_are_not_both_given() -> None:
    with pytest.raises(ValidationError, match="give one of the two"):
        CompactConfig(arena_bytes=1000, max_extra_macs=0.1)


def test_run_places_a_file_in_a_delegate_and_counts_what_stays(tmp_path: Path) -> None:
    net = Net((1, 8, 8, 4))
    content = net.file(net.pool(net.conv(net.input, 4), 2, 2, True, 1))
    result = compacted(tmp_path, content, target="xnnpack")
    assert result.tflite == content
    assert (result.cpu_operators, result.not_run) == (1, "")
    assert result.details.placement.on_cpu[0].kind == "AVERAGE_POOL_2D"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"target": "ethos-u55-64", "max_extra_macs": 0.1}, "tflm, not for ethos"),
        ({"target": "xnnpack", "arena_bytes": 9000}, "for target: tflm, not for xnn"),
        ({"target": "xnnpack", "int8_io": True}, "for target: tflm, not for xnnpack"),
        ({"target": "xnnpack", "decode": "auto"}, "decode: it is for target: tflm, not for xnn"),
    ],
)
def test_a_key_of_another_target_names_its_own(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        CompactConfig.model_validate(given)


@pytest.mark.parametrize("given", [{"arena_bytes": 9000}, {"target": "ethos-u55-64"}])
def test_a_configuration_can_be_read_again_as_a_worker_is_given_it(given: dict[str, Any]) -> None:
    config = CompactConfig.model_validate(given)
    assert CompactConfig.model_validate(config.model_dump(by_alias=True)) == config


def test_a_missing_compiler_is_said_before_anything_is_computed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    CompactConfig(target="xnnpack").check_installed()
    with pytest.raises(ResourceError, match="Vela, which compiles for ethos-u55-64"):
        CompactConfig(target="ethos-u55-64").check_installed()
