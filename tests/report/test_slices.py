"""Slices of a report: what slices lost, whether that is proven, and the gate on the worst of them.

The toy stages have two places of 40 and 60 examples and one of 5. Before, all but one of each large
one are right; the first loses 12 more, the second gains none.
"""

from __future__ import annotations

import io
import math
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console
from scipy import stats

from shrink.base.bootstrap import Resampled
from shrink.base.intervals import paired_interval
from shrink.contract.codec import from_plain, to_plain
from shrink.contract.report import Report
from shrink.contract.result import StageOutcome
from shrink.contract.slices import slice_evidence
from shrink.report.config import parse_gates
from shrink.report.diff import diff_reports, render_diff_markdown
from shrink.report.headline import headlines
from shrink.report.run_files import render_card
from shrink.report.sections import render_html, render_markdown, render_report
from shrink.report.slices import slice_lines, slice_table
from tests.report import toys
from tests.report.page import Page

SIZES = {"barn": 40, "field": 60, "sky": 5}


def right(wrong: int, size: int) -> list[float]:
    return [0.0] * wrong + [1.0] * (size - wrong)


def with_slices(
    outcome: StageOutcome, by: str = "place", examples: int = 105, **wrong: int
) -> StageOutcome:
    """The outcome with slices in which so many examples are wrong; of the others none."""
    metric = "recall" if by == "class" else "accuracy"
    scores = {name: right(wrong.get(name, 0), size) for name, size in SIZES.items()}
    slices = [
        {"name": name, "examples": len(s), "metrics": {metric: sum(s) / len(s)}}
        for name, s in scores.items()
    ]
    told = to_plain(outcome.result.slices)
    added = {"by": by, "metric": metric, "slices": slices}
    done = toys.with_result(outcome, examples=examples, slices=[*told, added])
    evidence = {slice_evidence(by, name): s for name, s in scores.items()}
    return replace(done, scores={**outcome.scores, **evidence})


def run(gates: dict[str, Any] | None = None, by: str = "place", **wrong: Any) -> Report:
    train, prune, quantize = toys.outcomes()
    found = toys.report(
        [
            with_slices(train, by, barn=1, field=1),
            with_slices(prune, by, barn=1, field=1),
            with_slices(quantize, by, **{"barn": 13, "field": 1, **wrong}),
        ],
        gates=gates,
    )
    return from_plain(Report, found)


def test_slices_have_paired_differences_and_limits_for_all_of_them() -> None:
    report = run()
    slicing = report.stages[2].slices[0]
    barn, field, sky = slicing.slices
    assert barn.delta is not None
    assert barn.delta_previous == barn.delta
    assert barn.test is not None
    assert barn.delta.value == pytest.approx(-12 / 40)
    interval = paired_interval(right(1, 40), right(13, 40))
    assert (barn.delta.low, barn.delta.high) == (interval.low, interval.high)
    # Two slices are judged together, each at 1 - 0.05 / 2.
    assert barn.test.verdict == "worse"
    together = paired_interval(right(1, 40), right(13, 40), 0.975)
    assert (barn.test.low, barn.test.high) == (together.low, together.high)
    assert field.test is not None
    assert field.test.verdict == "no proven difference"
    assert (sky.test, sky.reason) == (None, "fewer than 20 examples: no verdict")
    assert slicing.average == report.stages[2].delta["accuracy"].value  # type: ignore[union-attr]


def test_the_baseline_has_slices_without_differences() -> None:
    barn = run().stages[0].slices[0].slices[0]
    assert (barn.metrics, barn.test) == ({"accuracy": 39 / 40}, None)
    assert barn.delta is not None
    assert (barn.delta.value, barn.delta.low, barn.delta.high) == (0, 0, 0)
    assert barn.interval is not None


def test_limits_hold_for_the_slices_of_all_slicings_together() -> None:
    train, _, quantize = toys.outcomes()
    one = with_slices(with_slices(train, barn=1), "hour", barn=1)
    other = with_slices(with_slices(quantize, barn=8), "hour", field=5)
    found = from_plain(Report, toys.report([one, replace(other, previous=None)]))
    tests = {
        (slicing.by, row.name): row.test
        for slicing in found.stages[1].slices
        for row in slicing.slices
        if row.test is not None
    }
    assert len(tests) == 4
    together = paired_interval(right(1, 40), right(8, 40), 1 - 0.05 / 4)
    barn = tests["place", "barn"]
    assert (barn.low, barn.high) == (together.low, together.high)
    # Proven for this slice alone, not for one of four.
    alone = paired_interval(right(1, 40), right(8, 40)).high
    assert alone is not None
    assert barn.high is not None
    assert alone < 0 < barn.high
    assert barn.verdict == "no proven difference"


def test_the_average_of_classes_is_that_of_their_examples() -> None:
    slicing = run(by="class").stages[2].slices[0]
    assert slicing.metric == "recall"
    assert slicing.average == round(-12 / 105, 12)


def test_classes_that_share_examples_have_no_average() -> None:
    """Of pixels: 105 examples hold a class each in the toys above, and 60 several of them."""
    train, prune, quantize = toys.outcomes()
    told = [
        with_slices(train, "class", 60, barn=1),
        with_slices(prune, "class", 60, barn=1),
        with_slices(quantize, "class", 60, barn=13),
    ]
    found = from_plain(Report, toys.report(told))
    slicing = found.stages[2].slices[0]
    assert slicing.average is None
    assert slicing.slices[0].delta is not None
    assert "paid more than the average" not in " ".join(map(str, headlines(found)))


def test_losses_of_few_examples_come_last_and_proven_ones_first() -> None:
    lines = slice_lines(run(sky=5).stages[2])
    assert [line.text for line in lines] == ["place = barn", "place = field", "place = sky"]
    assert [line.is_proven_loss for line in lines] == [True, False, False]


def test_the_headline_names_a_slice_that_paid_more_than_the_average() -> None:
    (headline,) = headlines(run())
    assert "Place = barn lost more than the average: its accuracy changed by -30.00" in (
        headline.sentence
    )
    (quiet,) = headlines(run(barn=2))
    assert "paid more" not in quiet.sentence


def printed(report: Report) -> str:
    stream = io.StringIO()
    render_report(report, Console(file=stream, width=120))
    return stream.getvalue()


def test_every_rendering_shows_who_lost_most() -> None:
    report = run()
    row = ("place = barn", "40", "97.50 %", "67.50 %")
    assert slice_table(report, report.stages[2]).rows[0][:4] == row
    for text in (printed(report), render_markdown(report), render_card(report, "ab")):
        assert "place = barn" in text
    page = Page(render_html(report)).text
    assert "largest losses by slice" in page
    assert page.index("place = barn") < page.index("place = field")
    assert "fewer than 20 examples: no verdict" in page


def test_the_terminal_is_silent_on_classes_that_lost_nothing_proven() -> None:
    assert "slice" not in printed(run(by="class", barn=2))
    assert "class barn" in printed(run(by="class"))
    told = "no proven loss in any of 2 slices of the test examples"
    assert told in " ".join(printed(run(barn=2)).split())
    assert told in render_html(run(by="class", barn=2))


def test_slices_that_are_all_too_small_prove_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SIZES:
        monkeypatch.setitem(SIZES, name, 14)
    text = render_html(run(barn=2))
    assert "quantize: no verdict on any of 3 slices of the test examples." in text
    assert "all verdicts hold" not in text


def test_slices_that_are_not_measured_are_counted() -> None:
    stages = [with_slices(one, barn=2) for one in toys.outcomes()]
    for index, one in enumerate(stages):
        (slicing,) = to_plain(one.result.slices)
        stages[index] = toys.with_result(one, slices=[{**slicing, "unlisted": 1800}])
    for settings in (0.05, {"limit": 0.05, "confidence": 0.95}):
        document = toys.report(stages, gates={"worst_slice_drop": settings})
        (result,) = from_plain(Report, document).gates
        assert result.passed
        assert "1,800 smaller slices are not measured" in str(result.reason)
    page = render_html(from_plain(Report, document))
    assert "1,801 more have no verdict" in page
    assert "1,800 smaller slices are not measured." in page


def gate(settings: Any, by: str = "place", **wrong: int) -> Any:
    (result,) = run({"worst_slice_drop": settings}, by, **wrong).gates
    return result


def test_the_gate_looks_at_the_worst_slice_with_enough_examples() -> None:
    missed = gate(0.05, sky=5)
    assert (missed.passed, missed.by, missed.slice) == (False, "place", "barn")
    assert missed.value == pytest.approx(0.3)
    assert gate(0.3).passed
    assert gate({"limit": 0.05, "stage": "prune"}).value == 0
    assert gate({"limit": 0.05, "level": "warn"}).level == "warn"


def test_the_gate_with_a_confidence_takes_the_corrected_interval() -> None:
    low = -(paired_interval(right(1, 40), right(13, 40), 0.975).high or 0)
    for limit, passed in ((low - 1e-6, False), (low + 1e-6, True)):
        result = gate({"limit": limit, "confidence": 0.95})
        assert (result.passed, result.low) == (passed, pytest.approx(low))
        assert result.reason == "the interval is corrected for 2 slices"


@pytest.mark.parametrize("both", [True, False])
def test_the_gate_names_a_slicing_that_it_does_not_check(both: bool) -> None:
    stages = [with_slices(one, barn=2) for one in toys.outcomes()]
    for index, one in enumerate(stages):
        (slicing,) = to_plain(one.result.slices)
        areas = [{**row, "metrics": {"roc_auc": 0.9}} for row in slicing["slices"]]
        other = {**slicing, "by": "class", "metric": "roc_auc", "slices": areas}
        stages[index] = toys.with_result(one, slices=[slicing, other] if both else [other])
    (result,) = from_plain(Report, toys.report(stages, gates={"worst_slice_drop": 0.1})).gates
    assert result.passed is both
    assert str(result.reason).startswith("class is not checked, as roc_auc has another unit")
    assert str(result.reason).endswith("`by: class` checks it")


def unlike(outcome: StageOutcome, name: str, value: float | None = None) -> StageOutcome:
    """The outcome with a slice of place that has another value, and no scores of its examples."""
    (slicing,) = to_plain(outcome.result.slices)
    slices = [
        {**one, "metrics": {"accuracy": value}} if one["name"] == name else one
        for one in slicing["slices"]
    ]
    told = {"undefined": {"accuracy": "no example has a label"}} if value is None else {}
    slices = [{**one, **told} if one["name"] == name else one for one in slices]
    scores = {k: v for k, v in outcome.scores.items() if k != slice_evidence("place", name)}
    done = toys.with_result(outcome, slices=[{**slicing, "slices": slices}])
    return replace(done, scores=scores)


def gate_of(settings: dict[str, Any], name: str, value: float | None) -> Any:
    """The gate's result where barn loses 1 of 40 and another slice has this value, unpaired."""
    train, _, quantize = toys.outcomes()
    stages = [
        with_slices(train, barn=1, field=1),
        replace(unlike(with_slices(quantize, barn=2, field=1), name, value), previous=None),
    ]
    found = toys.report(stages, gates={"worst_slice_drop": settings})
    (result,) = from_plain(Report, found).gates
    return result


def test_the_gate_with_a_confidence_judges_a_slice_without_limits_by_its_value() -> None:
    # field: 59 of 60 before, 35 of 60 now, which is 40 points less.
    missed = gate_of({"limit": 0.05, "confidence": 0.95}, "field", 35 / 60)
    assert (missed.passed, missed.slice, missed.value) == (False, "field", pytest.approx(24 / 60))
    assert missed.low is None
    why = "no interval without scores of the same examples; the point value decides"
    assert missed.reason == why
    # 58 of 60 is 1.7 points less; barn's interval begins below 5 points, and it lost most.
    kept = gate_of({"limit": 0.05, "confidence": 0.95}, "field", 58 / 60)
    assert (kept.passed, kept.slice, kept.value) == (True, "barn", pytest.approx(1 / 40))
    assert gate_of({"limit": 0.41, "confidence": 0.95}, "field", 35 / 60).slice == "field"


@pytest.mark.parametrize("settings", [{"limit": 1}, {"limit": 1, "confidence": 0.95}])
def test_the_gate_misses_where_a_slice_has_no_value_any_more(settings: dict[str, Any]) -> None:
    missed = gate_of(settings, "field", None)
    assert (missed.passed, missed.value, missed.level) == (False, None, "fail")
    assert missed.reason == (
        "place = field had a value in train, and has none: accuracy is not defined: "
        "no example has a label"
    )
    assert gate_of(settings, "sky", None).passed  # 5 examples: no verdict


def test_the_gate_names_the_slice_that_missed_it() -> None:
    report = run({"worst_slice_drop": 0.05})
    words = "place = barn: 30.00 points > 5 points"
    sentence = f"Gate worst_slice_drop of quantize missed: {words}."
    assert sentence.replace(">", "&gt;") in render_html(report)
    assert words in printed(report)


def test_the_gate_looks_at_one_slicing_where_it_names_one() -> None:
    assert gate({"limit": 0.5, "by": "place"}).passed
    unknown = gate({"limit": 0.5, "by": "site"})
    assert (unknown.passed, unknown.value) == (False, None)
    assert unknown.reason == "there is no slicing site; there is place"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"worst_slice_drop": {"ratio": 0.5}}, "takes a limit"),
        ({"worst_slice_drop": {"limit": 1, "against": "x.json"}}, "against was removed for slices"),
        ({"worst_slice_drop": {"limit": "2 KB"}}, "must be a plain number"),
        ({"accuracy_drop": {"limit": 0.1, "by": "place"}}, "'by' goes with worst_slice_drop"),
    ],
)
def test_gates_refuse_what_they_cannot_do(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_gates(settings)


def test_diff_shows_the_slices_that_changed() -> None:
    text = render_diff_markdown(diff_reports(run(barn=1), run(barn=13)))
    row = next(line for line in text.splitlines() if line.startswith("| place"))
    assert row.startswith("| place = barn: accuracy | 97.50 % (+0.00) | 67.50 % (-30.00")
    assert "place = field" not in text


def test_resamples_prove_nothing_that_one_example_makes_up() -> None:
    def f1(outcome: StageOutcome, lost: float) -> StageOutcome:
        key, values = slice_evidence("place", "barn"), [0.9] * 39 + [0.9 - 40 * lost]
        evidence = Resampled(0.9 - lost, (0.9 - lost,) * 400, tuple(values), "one draw")
        slices = [{"name": "barn", "examples": 40, "metrics": {"f1_macro": evidence.value}}]
        told = {"by": "place", "metric": "f1_macro", "slices": slices}
        done = toys.with_result(outcome, slices=[told])
        return replace(done, previous=None, scores={**outcome.scores, key: evidence})

    train, _, quantize = toys.outcomes()
    found = from_plain(Report, toys.report([f1(train, 0.0), f1(quantize, 0.01)]))
    test = found.stages[1].slices[0].slices[0].test
    assert test is not None
    # No resample is at 0 or above, but one example alone makes up the difference.
    assert test.verdict == "no proven difference"
    assert test.low is not None
    assert test.low < 0
    assert test.high is not None
    assert test.high > 0


def resampled(outcome: StageOutcome, lost: float, slices: int, **more: Any) -> StageOutcome:
    """The outcome with slices whose F1 is lower by `lost` in each of 400 resamples, all alike."""
    spread = [0.2 * math.sin(k) for k in range(1, 901)]
    values = tuple(0.9 - lost + (one - sum(spread) / 900) * (lost > 0) for one in spread)
    evidence = Resampled(0.9 - lost, (0.9 - lost,) * 400, values, "one draw")
    if more.get("why"):
        evidence = Resampled(0.9 - lost, (), (), "one draw", more["why"])
    names = [f"site{k}" for k in range(slices)]
    rows = [{"name": n, "examples": 900, "metrics": {"f1_macro": evidence.value}} for n in names]
    told = {"by": "place", "metric": "f1_macro", "slices": rows}
    done = toys.with_result(outcome, slices=[told])
    scores = {slice_evidence("place", name): evidence for name in names}
    return replace(done, previous=None, scores={**outcome.scores, **scores})


@pytest.mark.parametrize("slices", [10, 11, 60])
def test_a_loss_of_many_slices_is_proven_though_resamples_are_few(slices: int) -> None:
    train, _, quantize = toys.outcomes()
    stages = [resampled(train, 0.0, slices), resampled(quantize, 0.05, slices)]
    rows = from_plain(Report, toys.report(stages)).stages[1].slices[0].slices
    assert len(rows) == slices
    # A sine of 0.2 has a deviation of 0.141, so that t is -0.05 / (0.141 / 30) = -10.6.
    half = float(stats.t.isf(0.025 / slices, 899)) * 0.2 / math.sqrt(2 * 900)
    for row in rows:
        assert row.test is not None
        assert row.test.verdict == "worse"
        assert row.test.low is not None
        assert row.test.high is not None
        assert row.test.low == pytest.approx(-0.05 - half, rel=0.02)
        assert row.test.high == pytest.approx(-0.05 + half, rel=0.02)


def test_a_slice_without_an_interval_says_why_it_has_no_test() -> None:
    train, _, quantize = toys.outcomes()
    why = "no interval: 600 calls of the function would take 90 s"
    stages = [resampled(train, 0.0, 1, why=why), resampled(quantize, 0.1, 1, why=why)]
    (row,) = from_plain(Report, toys.report(stages)).stages[1].slices[0].slices
    assert row.delta is not None
    assert row.delta.value == pytest.approx(-0.1)
    assert row.delta.low is None
    assert (row.test, row.reason) == (None, why)


def test_a_slice_that_the_baseline_does_not_have_says_so() -> None:
    train, _, quantize = toys.outcomes()
    stages = [resampled(train, 0.0, 1), resampled(quantize, 0.1, 2)]
    row = from_plain(Report, toys.report(stages)).stages[1].slices[0].slices[1]
    assert row.reason == "not compared: the baseline has no such slice to pair with"
    unpaired = replace(quantize, previous=None)
    other = unlike(with_slices(unpaired), "field", 35 / 60)
    told = from_plain(Report, toys.report([with_slices(train), other])).stages[1].slices[0]
    assert told.slices[1].reason == ("no interval: no scores of the same examples to pair with")
