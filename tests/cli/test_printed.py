"""What commands print for people, from results made by hand."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from shrink.cli.flags import flags_of
from shrink.cli.tools import bench_lines
from shrink.recipe.bundle import bundled_recipes
from shrink.stages import STAGES
from shrink.tools.show import Bench, show_inspection, show_profile

PEAKS = ("training_peak_bytes", "training_peak_predicted_bytes")


def printed(show: Any, result: dict[str, Any], width: int = 80) -> list[str]:
    stream = io.StringIO()
    show(result, Console(file=stream, width=width))
    return stream.getvalue().splitlines()


@pytest.mark.parametrize("kind", STAGES)
def test_help_shows_defaults_as_a_recipe_spells_them(kind: str) -> None:
    helps = [flag.help for flag in flags_of(STAGES[kind])]
    assert not [text for text in helps if "Undefined" in text or "default: {}" in text]


def test_every_bundled_recipe_is_described_in_whole_sentences() -> None:
    for recipe in bundled_recipes():
        assert recipe.summary.endswith("."), recipe.name
        assert "\n" not in recipe.summary
        assert "#" not in recipe.summary


def test_bench_has_digits_below_a_tenth_of_a_millisecond_and_no_dash_for_memory() -> None:
    found: Bench = {
        "path": "m.tflite",
        "p50_ms": 0.0123,
        "p90_ms": 0.25,
        "inferences_per_s": 81_300.0,
        "threads": 1,
        "examples": 0,
        "inference_peak_bytes": None,
        "file_bytes": 10,
        "machine": "m",
        "notes": [],
    }
    text = "\n".join(bench_lines(found))
    assert "p50 12.3 µs, p90 0.25 ms (1 thread)" in text
    assert "memory      not measured" in text
    assert "5 bytes above any model's" in "\n".join(
        bench_lines({**found, "inference_peak_bytes": 5})
    )


def test_inspect_keeps_its_first_line_whole_whatever_the_width() -> None:
    path = "a/long/path/" * 12 + "model.keras"
    found = {"path": path, "form": "keras", "parameters": 1_000, "layers": []}
    assert printed(show_inspection, found)[0] == f"{path}: 1,000 parameters"


def test_profile_names_the_batch_sizes_that_it_could_not_count() -> None:
    rows = [(1, None, None), (2, None, None), (4, 9_000_000, None), (8, None, 18_000_000)]
    curve = [dict(zip(("batch_size", *PEAKS), row, strict=True)) for row in rows]
    names = (*PEAKS, "training_host_peak_bytes", "largest_batch_size", "memory_limit_bytes")
    found: dict[str, Any] = {"batch_size": 4, "devices": ["CPU:0"], "split": None, "curve": curve}
    found |= {**dict.fromkeys(names), "layers": [], "trace": [], "notes": []}
    lines = [line.split() for line in printed(show_profile, found)]
    assert ["4", "9.00", "MB", "-"] in lines
    assert ["8", "-", "18.0", "MB"] in lines
    assert not [line for line in lines if line in (["1"], ["2"])]
    assert [
        "too",
        "small",
        "for",
        "the",
        "allocator",
        "to",
        "count:",
        "batch",
        "size",
        "1,",
        "2",
    ] in lines
