"""Figures: the registry and how values are printed."""

from __future__ import annotations

import pytest

from shrink.base.figures import (
    figures_of,
    format_change,
    format_ratio,
    format_value,
    metric_figure,
)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0, "bytes", "0 B"),
        (999, "bytes", "999 B"),
        (1000, "bytes", "1.00 KB"),
        (1234, "bytes", "1.23 KB"),
        (999_400, "bytes", "999 KB"),
        (999_600, "bytes", "1.00 MB"),
        (12_345_678, "bytes", "12.3 MB"),
        (2_000_000_000, "bytes", "2.00 GB"),
        (812, "count", "812"),
        (12_500_000, "count", "12.5 M"),
        (0.3, "ms", "0.30 ms"),
        (123.4, "ms", "123 ms"),
        (0.1, "ms", "0.10 ms"),
        (0.0213, "ms", "21.3 µs"),
        (0.000004, "ms", "0.004 µs"),
        (0.0, "ms", "0.00 ms"),
        (0.0944, "points", "9.44 points"),
        (-0.002778, "points", "-0.28 points"),
        (0.00002, "points", "0.002 points"),
        (12.34, "s", "12.3 s"),
        (59.99, "s", "60.0 s"),
        (200, "s", "3 min 20 s"),
        (7260, "s", "2 h 01 min"),
        (0.98334, "fraction", "98.33 %"),
        (0.10345, "none", "0.1035"),
    ],
)
def test_format_value_prints_three_digits_and_the_unit(value: float, unit: str, text: str) -> None:
    assert format_value(value, unit) == text  # type: ignore[arg-type]


def test_format_change_carries_a_sign_and_prints_fractions_in_points() -> None:
    assert format_change(-1000, "bytes") == "-1.00 KB"
    assert format_change(0.0, "count") == "+0"
    assert format_change(float("nan"), "fraction") == "+nan"
    assert format_change(-0.003, "fraction") == "-0.30"


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (-0.001, "ms", "-1.00 µs"),
        (-0.00002, "fraction", "-0.002"),
        (0.0, "fraction", "+0.00"),
        (-0.0, "ms", "+0.00 ms"),
    ],
)
def test_format_change_prints_no_difference_as_none(value: float, unit: str, text: str) -> None:
    assert format_change(value, unit) == text  # type: ignore[arg-type]


def test_format_ratio_prints_decimals_below_10() -> None:
    assert [format_ratio(ratio) for ratio in (0.256, 9.99, 10, None)] == [
        "0.26x",
        "9.99x",
        "10x",
        "-",
    ]


def test_figures_of_lists_the_groups_of_the_report_in_order() -> None:
    assert figures_of("size") == (
        "file_bytes",
        "gzip_bytes",
        "tflite_bytes",
        "parameters",
        "nonzero_parameters",
        "macs",
    )
    assert figures_of("memory")[0] == "training_peak_bytes"
    assert figures_of("latency") == ("p50_ms", "p90_ms", "cpu_operators")


def test_metric_figure_knows_which_way_is_better() -> None:
    assert metric_figure("top5_accuracy").larger_is_better
    assert not metric_figure("loss").larger_is_better
    assert not metric_figure("a_metric_of_tomorrow").larger_is_better
