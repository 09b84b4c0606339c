"""What commands print for people, from results made by hand."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from shrink.cli.flags import flags_of
from shrink.cli.tools import bench_lines
from shrink.contract.findings import (
    Bench,
    KerasInspection,
    LayerMemory,
    PeakRow,
    Profile,
    StepMoment,
)
from shrink.recipe.bundle import bundled_recipes
from shrink.stages import STAGES
from shrink.tools.show import show_inspection, show_profile


def printed(show: Any, result: object, width: int = 80) -> list[str]:
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
    found = Bench(
        path="m.tflite",
        p50_ms=0.0123,
        p90_ms=0.25,
        inferences_per_s=81_300.0,
        threads=1,
        examples=0,
        inference_peak_bytes=None,
        file_bytes=10,
        machine="m",
        notes=(),
    )
    text = "\n".join(bench_lines(found))
    assert "p50 12.3 µs, p90 0.25 ms (1 thread)" in text
    assert "memory      not measured" in text
    known = replace(found, inference_peak_bytes=5)
    assert "5 bytes above any model's" in "\n".join(bench_lines(known))


def test_inspect_keeps_its_first_line_whole_whatever_the_width() -> None:
    path = "a/long/path/" * 12 + "model.keras"
    found = KerasInspection(path=path, inputs=(), outputs=(), parameters=1_000, layers=())
    assert printed(show_inspection, found)[0] == f"{path}: 1,000 parameters"


def test_profile_names_the_batch_sizes_that_it_could_not_count() -> None:
    rows = [(1, None, None), (2, None, None), (4, 9_000_000, None), (8, None, 18_000_000)]
    curve = tuple(
        PeakRow(batch_size=size, training_peak_bytes=peak, training_peak_predicted_bytes=expected)
        for size, peak, expected in rows
    )
    found = Profile(
        model="m",
        batch_size=4,
        training_peak_bytes=9_000_000,
        training_peak_predicted_bytes=None,
        largest_batch_size=None,
        memory_limit_bytes=None,
        training_host_peak_bytes=600_000_000,
        curve=curve,
        split=None,
        layers=(
            LayerMemory(
                name="conv", activation_bytes=3_000_000, parameter_bytes=0, peak_bytes=6_000_000
            ),
        ),
        step=(
            StepMoment(layer="conv", phase="forward", alive_bytes=3_000_000),
            StepMoment(layer="conv", phase="backward", alive_bytes=6_000_000),
        ),
        devices=("CPU:0",),
        trace=(),
        notes=(),
    )
    lines = [line.split() for line in printed(show_profile, found)]
    assert ["▄█"] in lines
    assert ["conv", "6.00", "MB", "3.00", "MB", "0", "B"] in lines
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
