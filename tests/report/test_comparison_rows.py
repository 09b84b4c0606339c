"""Runs side by side: rows, fronts, spreads, warnings, and every rendering."""

from __future__ import annotations

import io
import itertools
import json
import math
import random
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from rich.console import Console

from docs.report_schema import compare_schema, compare_schema_text
from shrink.base.figures import figure_of
from shrink.base.files import json_text
from shrink.contract.codec import from_plain, to_plain
from shrink.contract.comparison import ComparedRow, Comparison
from shrink.contract.details import MetricDelta
from shrink.contract.report import DataSet, Failure
from shrink.contract.report_file import report_of
from shrink.contract.result import StepResult
from shrink.contract.slices import Slice, SliceTest, Slicing
from shrink.report.comparison import (
    comparison_table,
    difference_table,
    render_comparison,
    render_comparison_terminal,
)
from shrink.report.comparison_rows import (
    RunToCompare,
    compare_runs,
    front_points,
    points_of,
    shown_rows,
    spread_of,
)
from shrink.report.deltas import Verdict
from shrink.report.scatter import compared_plot
from shrink.report.slices import compared_slices_table
from tests.report.page import Page
from tests.report.plain import markup
from tests.report.toys import failure, outcome, report, with_result

SWEEP = Comparison(rows=(), title="digits", sweep=True)


def run(
    name: str, correct: int, tflite_bytes: int, folder: Path = Path("/none"), **changes: Any
) -> RunToCompare:
    """A run of two stages whose last has these figures."""
    stages = [
        outcome("train", 98, 100_000, None),
        outcome("quantize", correct, tflite_bytes, "train", training=False),
    ]
    made = report_of(report(stages, gates={"tflite_bytes": 60_000}))
    settings = {"prune.sparsity": name}
    title = f"prune.sparsity = {name}"
    return replace(RunToCompare(title, f"prune.sparsity={name}", folder, made, settings), **changes)


def three() -> Comparison:
    runs = [run("0.3", 97, 70_000), run("0.5", 95, 50_000), run("0.7", 90, 55_000)]
    return compare_runs(runs, SWEEP)


def test_compare_runs_has_a_row_for_each_run_with_its_own_differences() -> None:
    found = three()
    assert [row.status for row in found.rows] == ["missed", "passed", "passed"]
    assert found.rows[0].gates_missed == ("tflite_bytes",)
    assert found.rows[1].figures["tflite_bytes"] == 50_000
    change = found.rows[1].delta["accuracy"]
    assert change is not None
    assert change.value == pytest.approx(0.95 - 0.98)
    assert found.metric == "accuracy"


@pytest.mark.parametrize(("p50_ms", "expected"), [(0.23, False), (0.2, True)])
def test_latencies_within_the_noise_of_timing_make_no_front(p50_ms: float, expected: bool) -> None:
    latency = {"p50_ms": p50_ms, "p90_ms": 0.5, "threads": 1}  # the other's are 0.25 ms
    fast = with_result(outcome("train", 97, 100_000, None), latency=latency)
    runs = [
        replace(run(name, 97, 100_000), report=report_of(report([stage], finals=("train",))))
        for name, stage in (("0.5", outcome("train", 98, 100_000, None)), ("0.7", fast))
    ]
    fronts = {front.x for front in compare_runs(runs, SWEEP).fronts}
    assert ("p50_ms" in fronts) is expected


def printed(found: Comparison, width: int) -> list[str]:
    stream = io.StringIO()
    render_comparison_terminal(found, Console(file=stream, width=width))
    return stream.getvalue().splitlines()


def test_a_narrow_terminal_shows_sizes_below_long_names() -> None:
    names = [f"{n}, training.optimizer.learning_rate = 0.00{n}" for n in (1, 2)]
    found = compare_runs([run(name, 97, 50_000) for name in names], SWEEP)
    lines = printed(found, 80)
    assert max(map(len, lines)) <= 80
    for row in found.rows:
        assert "50.0 KB 0.50x" in " ".join(lines[lines.index(row.name) + 1].split())


def test_a_name_that_is_wider_than_the_terminal_is_wrapped() -> None:
    names = [
        f"0.5, distill.temperature = 4, {'train.epochs = 20, ' * 10}seed = {n}" for n in (1, 2)
    ]
    found = compare_runs([run(name, 97, 50_000) for name in names], SWEEP)
    lines = printed(found, 80)
    assert max(map(len, lines)) <= 80
    for row in found.rows:
        assert row.name in " ".join(" ".join(lines).split())


def test_trials_are_labelled_by_their_whole_names() -> None:
    names = {"0: prune+quantize, prune.sparsity = 0.5": 97, "1: the recipe as it is": 98}
    runs = [
        replace(run("0.5", correct, 1000 * correct), name=name, settings={})
        for name, correct in names.items()
    ]
    found = compare_runs(runs, replace(SWEEP, split="validation"))
    plot = compared_plot(found, found.fronts[0])
    assert plot.caption.startswith(
        "0 prune+quantize, prune.sparsity = 0.5; 1 the recipe as it is. Filled (0, 1)"
    )


def test_an_outcome_that_all_rows_share_has_no_column_in_a_terminal() -> None:
    same = compare_runs([run("0.3", 97, 50_000), run("0.5", 95, 40_000)], SWEEP)
    assert not any("outcome" in line for line in printed(same, 80))
    assert any("outcome" in line for line in printed(three(), 80))


def test_a_page_begins_with_the_smallest_and_the_most_accurate_result() -> None:
    text = render_comparison(three())["compare.md"]
    assert "Lowest TFLite file size: prune.sparsity = 0.5 (50.0 KB, 95.00 %)" in text
    assert "Highest accuracy: prune.sparsity = 0.3 (70.0 KB, 97.00 %, gate missed)" in text


def test_marks_of_trials_have_the_numbers_of_the_trials() -> None:
    runs = [
        replace(run(name, c, b), name=f"{n}: prune, prune.sparsity = {name}")
        for n, name, c, b in ((4, "0.3", 97, 50_000), (7, "0.5", 95, 30_000))
    ]
    found = compare_runs(runs, replace(SWEEP, split="validation"))
    plot = compared_plot(found, found.fronts[0])
    assert plot.caption.startswith(
        "4 prune, prune.sparsity = 0.3; 7 prune, prune.sparsity = 0.5. Filled (7, 4):"
    )
    assert [label.text for label in plot.labels] == ["4", "7"]


def test_trials_that_break_a_limit_are_on_no_front_and_say_so() -> None:
    small = run("0.7", 40, 30_000)
    runs = [run("0.5", 95, 50_000), replace(small, broken=("max_drop",))]
    whole, kept = (
        compare_runs([runs[0], one], replace(SWEEP, split="validation")) for one in (small, runs[1])
    )
    assert [front.rows for front in whole.fronts if front.x == "tflite_bytes"] == [
        ("prune.sparsity = 0.7", "prune.sparsity = 0.5")
    ]
    assert {front.rows for front in kept.fronts} == {("prune.sparsity = 0.5",)}
    assert [front.x for front in kept.fronts] == [front.x for front in whole.fronts]
    assert [row.status for row in kept.rows] == ["passed", "missed"]
    text = render_comparison(kept)["compare.md"]
    assert "**prune.sparsity = 0.7**: missed: max" in text
    assert "No other within the limits is better" in text


def test_compare_runs_names_every_branch() -> None:
    stages = [outcome("train", 98, 100_000, None)]
    stages += [outcome(name, 90, 10_000, "train", training=False) for name in ("small", "tiny")]
    made = report_of(report(stages, finals=("small", "tiny")))
    rows = compare_runs([replace(run("0.3", 9, 9), report=made)], SWEEP).rows
    assert [row.name for row in rows] == [f"prune.sparsity = 0.3 / {n}" for n in ("small", "tiny")]


def test_page_tells_the_worst_outcome_of_a_run_with_branches() -> None:
    stages = [outcome("train", 98, 100_000, None)]
    stages += [outcome("small", 90, 10_000, "train", training=False)]
    stages += [outcome("large", 90, 70_000, "train", training=False)]
    made = report_of(report(stages, finals=("small", "large"), gates={"tflite_bytes": 60_000}))
    found = compare_runs([replace(run("0.3", 9, 9), report=made), run("0.5", 95, 50_000)], SWEEP)
    assert [row.status for row in found.rows] == ["passed", "missed", "passed"]
    page = Page(render_comparison(found)["compare.html"])
    told = page.text.partition("Reports")[2]
    assert "prune.sparsity = 0.3 : GATE MISSED" in told
    assert "prune.sparsity = 0.5 : PASSED" in told
    assert "1 passed, 1 missed a gate" in page.text


def test_compare_runs_keeps_a_failed_run_with_its_reason() -> None:
    stages = [
        outcome("train", 98, 100_000, None),
        replace(
            outcome("quantize", 0, 0, "train", training=False),
            status="failed",
            result=StepResult(),
            error=failure(type="StageError", message="no operator for it", hint="another scheme"),
        ),
    ]
    failed = replace(run("0.5", 9, 9), report=report_of(report(stages)))
    lost = from_plain(Failure, {"type": "DataError", "message": "no such file"})
    gone = replace(run("0.7", 9, 9), report=None, error=lost)
    never = replace(run("0.9", 9, 9), report=None)
    found = compare_runs([run("0.3", 97, 50_000), failed, gone, never], SWEEP)
    assert [row.status for row in found.rows] == ["passed", "failed", "failed", "not run"]
    told = render_comparison(found)["compare.md"]
    assert "no operator for it (hint: another scheme)" in told
    assert "no such file" in told


def test_a_page_of_runs_has_their_differences_to_the_first() -> None:
    runs = [run("a", 97, 50_000), run("b", 95, 25_000), run("c", 97, 50_000)]
    found = compare_runs(runs, Comparison(rows=(), title="3 runs"))
    table = difference_table(found)
    assert {row[0]: row[1:3] for row in table.rows} == {
        "prune.sparsity = b": ("-2.00", "-25.0 KB (0.50x)"),
        "prune.sparsity = c": ("same", "same"),
    }
    shown, sweep = (Page(render_comparison(one)["compare.html"]).text for one in (found, three()))
    assert "Differences to prune.sparsity = a" in shown
    assert "Differences to" not in sweep


def test_front_points_are_those_that_nothing_beats() -> None:
    rng = random.Random(3)
    for x, y in (("tflite_bytes", "accuracy"), ("accuracy", "f1_macro"), ("loss", "macs")):
        rows = [
            ComparedRow(
                name=str(n),
                run=str(n),
                settings={},
                status="finished",
                figures={x: rng.randrange(8), y: rng.randrange(8)},
                intervals={},
                delta={},
            )
            for n in range(30)
        ]
        points = points_of(rows, x, y)
        sign = [1 if figure_of(name).larger_is_better else -1 for name in (x, y)]
        better = {
            a.name: any(
                sign[0] * (b.x - a.x) >= 0
                and sign[1] * (b.y - a.y) >= 0
                and (sign[0] * (b.x - a.x) > 0 or sign[1] * (b.y - a.y) > 0)
                for b in points
            )
            for a in points
        }
        found = front_points(points, x, y)
        assert {p.name for p in found} == {name for name, beaten in better.items() if not beaten}
        assert all(sign[1] * (b.y - a.y) >= 0 for a, b in itertools.pairwise(found))


def test_a_front_of_latencies_begins_beyond_their_noise() -> None:
    values = {"a": (98, 0.2), "b": (97, 0.1995), "c": (96, 0.19), "d": (95, 0.17), "e": (94, 0.3)}
    runs = []
    for name, (correct, p50_ms) in values.items():
        latency = {"p50_ms": p50_ms, "p90_ms": 0.5, "threads": 1}
        stage = with_result(outcome("train", correct, 100_000, None), latency=latency)
        made = report_of(report([stage], finals=("train",)))
        runs.append(replace(run(name, 97, 1), name=name, report=made))
    fronts = {front.x: front.rows for front in compare_runs(runs, SWEEP).fronts}
    assert fronts["p50_ms"] == ("d", "a")


def test_fronts_begin_with_the_metric_against_the_size() -> None:
    first = three().fronts[0]
    assert (first.x, first.y) == ("tflite_bytes", "accuracy")
    assert first.rows == ("prune.sparsity = 0.5", "prune.sparsity = 0.3")


def test_spread_of_is_students_interval() -> None:
    values = [0.91, 0.94, 0.90, 0.95, 0.93]
    spread = spread_of(values)
    deviation = math.sqrt(sum((v - 0.926) ** 2 for v in values) / 4)
    half = 2.776445 * deviation / math.sqrt(5)  # t(4) at 97.5 %, from a table
    assert spread.mean == pytest.approx(statistics.fmean(values))
    assert spread.deviation == pytest.approx(deviation)
    assert (spread.low, spread.high) == pytest.approx((0.926 - half, 0.926 + half))
    one = spread_of([0.5])
    assert (one.mean, one.deviation, one.low) == (0.5, None, None)
    equal = spread_of([0.9, 0.9, 0.9])  # no proof that a fourth seed would be equal too
    assert (equal.deviation, equal.low, equal.high) == (0.0, None, None)
    assert spread_of([0.98, 1.0], (0.0, 1.0)).high == 1.0  # 1.117 by t(1)


def test_no_accuracy_of_repeats_is_above_100_percent() -> None:
    runs = [run(f"s{n}", 99 + n, 50_000, combination="c") for n in range(2)]
    (row,) = compare_runs(runs, Comparison(rows=(), title="d", sweep=True, repeat=2)).repeats
    accuracy = row.figures["accuracy"]
    assert accuracy.mean == pytest.approx(0.995)
    assert accuracy.high == 1.0


def repeated() -> Comparison:
    runs = [
        run(
            f"{sparsity}, training.seed = {seed}",
            96 - seed - (4 if sparsity == "0.5" else 0),
            50_000 if sparsity == "0.3" else 30_000,
            settings={"prune.sparsity": sparsity, "training.seed": str(seed)},
            combination=f"prune.sparsity = {sparsity}",
        )
        for sparsity in ("0.3", "0.5")
        for seed in range(3)
    ]
    return compare_runs(runs, Comparison(rows=(), title="digits", sweep=True, repeat=3))


def test_repeats_are_a_row_with_their_runs_beneath() -> None:
    found = repeated()
    assert [one.name for one in found.repeats] == ["prune.sparsity = 0.3", "prune.sparsity = 0.5"]
    text = render_comparison(found)["compare.md"]
    lines = [line for line in text.splitlines() if line.startswith("| prune")]
    assert "95.00 % ± 1.00 \\[92.52, 97.48\\]" in lines[0]  # 95 ± t(2) 4.303 · 1 / √3
    assert text.count("training.seed = 1") == 2
    assert {name for front in found.fronts for name in front.rows} <= {
        one.name for one in found.repeats
    }


def test_repeats_of_runs_with_branches_are_a_row_for_each_branch() -> None:
    stages = [outcome("train", 98, 100_000, None)]
    stages += [outcome(name, 90, 10_000, "train", training=False) for name in ("small", "tiny")]
    made = report_of(report(stages, finals=("small", "tiny")))
    runs = [replace(run(f"{seed}", 9, 9), report=made, combination="c") for seed in range(2)]
    found = compare_runs(runs, Comparison(rows=(), title="digits", sweep=True, repeat=2))
    assert [(one.name, len(one.rows)) for one in found.repeats] == [
        ("c / small", 2),
        ("c / tiny", 2),
    ]


def test_a_repeat_without_a_report_stays_beneath_its_combination() -> None:
    def seeds(name: str, lost: int) -> list[RunToCompare]:
        runs = [
            run(
                f"{name}, training.seed = {seed}",
                95,
                50_000,
                settings={"prune.sparsity": name, "training.seed": str(seed)},
                combination=f"prune.sparsity = {name}",
            )
            for seed in range(3)
        ]
        return [replace(one, report=None) if n == lost else one for n, one in enumerate(runs)]

    titled = Comparison(rows=(), title="digits", sweep=True, repeat=3)
    found = compare_runs([*seeds("0.3", lost=1), *seeds("0.5", lost=0)], titled)
    assert [(row[0], row[1]) for row in comparison_table(found).rows] == [
        ("prune.sparsity = 0.3", "2 of 3 runs"),
        ("- training.seed = 0", "PASSED"),
        ("- training.seed = 1", "NOT RUN"),
        ("- training.seed = 2", "PASSED"),
        ("prune.sparsity = 0.5", "2 of 3 runs"),
        ("- training.seed = 0", "NOT RUN"),
        ("- training.seed = 1", "PASSED"),
        ("- training.seed = 2", "PASSED"),
    ]


def on_examples(one: RunToCompare, test_examples: str) -> RunToCompare:
    """A run that was measured on these test examples."""
    assert one.report is not None
    data = DataSet(fingerprint="f", test_examples=test_examples)
    return replace(one, report=replace(one.report, data=data))


def test_compare_runs_warns_of_other_test_examples() -> None:
    tests = ("ab", "ab", "ac")
    runs = [on_examples(run(f"0.{n}", 90 + n, 50_000 + n), t) for n, t in enumerate(tests)]
    first, second, third = (row.tested_on for row in compare_runs(runs, SWEEP).rows)
    assert first == second != third
    (warning,) = compare_runs(runs, SWEEP).warnings
    assert "not tested on the same examples" in warning
    assert "prune.sparsity = 0.0, prune.sparsity = 0.1 | prune.sparsity = 0.2" in warning
    assert compare_runs(runs, SWEEP).fronts == ()
    assert compare_runs(runs[:2], SWEEP).warnings == ()
    assert compare_runs(runs[:2], SWEEP).fronts


@pytest.mark.parametrize(
    ("seeds", "single", "parts"),
    [
        ({"A": "ab", "B": "ab"}, "", None),
        ({"A": "aa", "B": "bb"}, "", "A | B"),  # a test split of its own each
        ({"A": "ab", "B": "cd"}, "", "A | B"),
        ({"A": "ab", "B": "a"}, "", None),  # a seed of B is missing
        ({"A": "ab", "B": "c"}, "", "A | B"),
        ({"A": "aa", "B": "aa"}, "a", None),
        ({"A": "aa", "B": "aa"}, "b", "A, B | prune.sparsity = alone"),
        ({"A": "ab", "B": "ab"}, "a", "A, B | prune.sparsity = alone"),
    ],
)
def test_compare_runs_warns_of_other_test_examples_of_repeats(
    seeds: dict[str, str], single: str, parts: str | None
) -> None:
    runs = [
        on_examples(run(f"{name}{seed}", 90, 50_000, combination=name), letter)
        for name, letters in seeds.items()
        for seed, letter in enumerate(letters)
    ]
    runs += [on_examples(run("alone", 90, 50_000), letter) for letter in single]
    told = compare_runs(runs, replace(SWEEP, repeat=2)).warnings
    drawn = any(len(set(letters)) > 1 for letters in seeds.values())
    assert [text for text in told if text.startswith("each seed ")] == list(told[:drawn])
    rest = [text.partition(": ")[2] for text in told[drawn:]]
    assert rest == ([] if parts is None else [parts])


def test_runs_without_repeats_stand_beside_combinations() -> None:
    seeds = [
        run(f"0.5, training.seed = {n}", 90 + n, 50_000, combination="prune.sparsity = 0.5")
        for n in range(3)
    ]
    alone = [run("best", 97, 90_000), run("beaten", 80, 90_000), run("small", 50, 10_000)]
    found = compare_runs([*seeds, *alone], Comparison(rows=(), title="5 runs", repeat=3))
    front = found.fronts[0]
    assert (front.x, front.y) == ("tflite_bytes", "accuracy")
    assert front.rows == (
        "prune.sparsity = small",
        "prune.sparsity = 0.5",
        "prune.sparsity = best",
    )
    points = points_of(shown_rows(found.rows, found.repeats), "tflite_bytes", "accuracy")
    assert [(p.x, round(p.y, 9)) for p in points] == [
        (50_000, 0.91),
        (90_000, 0.97),
        (90_000, 0.8),
        (10_000, 0.5),
    ]
    plot = compared_plot(found, front)
    assert markup(plot).count("<circle") == 4
    assert "of single runs on the test examples" in plot.caption


def test_comparison_is_read_as_it_was_written() -> None:
    found = repeated()
    plain = json.loads(json_text(to_plain(found)))
    assert to_plain(from_plain(Comparison, plain)) == plain


def test_schema_file_is_current_and_accepts_a_comparison() -> None:
    path = Path(__file__).parents[2] / "docs" / "compare.schema.json"
    assert path.read_text("utf-8") == compare_schema_text(), "run `python -m docs.refresh schema`"
    for found in (three(), repeated()):
        jsonschema.validate(json.loads(json_text(to_plain(found))), compare_schema())


def test_page_closes_its_tags_and_has_no_script() -> None:
    found = compare_runs([run("<b>&0.3", 97, 70_000), run("0.5", 95, 50_000)], SWEEP)
    page = Page(render_comparison(found)["compare.html"])
    assert page.open == []
    assert "script" not in page.tags()
    assert "prune.sparsity = <b>&0.3" in page.text
    assert len(set(page.values("id"))) == len(page.values("id"))
    assert not any(value.startswith(("http", "//")) for value in page.values("href"))
    assert "accuracy (%)" in page.text
    assert "TFLite file size (bytes)" in page.text


def sliced(name: str, *changes: tuple[str, float, Verdict]) -> RunToCompare:
    """A run whose last stage tells of these classes: name, change of the recall, verdict."""
    made = run(name, 95, 50_000)
    assert made.report is not None
    *before, last = made.report.stages
    rows = tuple(
        Slice(
            name=one,
            examples=30,
            metrics={"recall": 0.9 + change},
            delta=MetricDelta(value=change, low=change - 0.1, high=change + 0.1),
            test=SliceTest(low=None, high=None, verdict=verdict),
        )
        for one, change, verdict in changes
    )
    stages = (*before, replace(last, slices=(Slicing(by="class", metric="recall", slices=rows),)))
    return replace(made, report=replace(made.report, stages=stages))


def test_slices_stand_beside_each_other_the_largest_loss_first() -> None:
    cat: tuple[str, float, Verdict] = ("cat", -0.02, "no proven difference")
    dog: tuple[str, float, Verdict] = ("dog", -0.2, "worse")
    only: tuple[str, float, Verdict] = ("fox", -0.5, "worse")
    found = compare_runs([sliced("0.3", cat, dog, only), sliced("0.5", cat, dog)], SWEEP)
    table = compared_slices_table(found)
    assert table is not None
    assert table.heads == ("slice", "prune.sparsity = 0.3", "prune.sparsity = 0.5")
    assert table.rows == (
        ("class dog: recall", "70.00 % (-20.00, lost)", "70.00 % (-20.00, lost)"),
        ("class cat: recall", "88.00 % (-2.00)", "88.00 % (-2.00)"),
    )
    files = render_comparison(found)
    assert "class dog: recall" in Page(files["compare.html"]).text
    assert "class dog: recall" in files["compare.md"]
    assert json.loads(files["compare.json"])["rows"][0]["slices"][1]["verdict"] == "worse"
    assert compared_slices_table(three()) is None
