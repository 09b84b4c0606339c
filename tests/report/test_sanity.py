"""What a report warns of: one warning per cause, with the figures and what to do."""

from __future__ import annotations

from typing import Any

import pytest

from shrink.base.errors import ReportWarning
from shrink.contract.codec import to_plain
from shrink.contract.result import StageOutcome
from shrink.report.sanity import data_warnings
from tests.report.plain import shape_problem, warnings_of
from tests.report.toys import EXAMPLES, outcome, report, with_result

GUESS = {
    "metric": "accuracy",
    "value": 0.25,
    "classes": ["circle", "cross", "square", "triangle"],
    "num_classes": 4,
    "low": 0.0,
    "high": 255.0,
    "rescales": False,
    "only_in_test": [],
    "only_in_train": [],
}


def guessed(stage: StageOutcome, **changes: Any) -> StageOutcome:
    return with_result(stage, guess={**GUESS, **changes})


def found(
    stages: list[StageOutcome], gates: dict[str, Any] | None = None, **settings: Any
) -> list[ReportWarning]:
    finals = settings.pop("finals", (stages[-1].name,))
    built = report(stages, gates, finals=finals, baseline=stages[0].name)
    assert shape_problem(built) is None
    return warnings_of(built)


def codes(*arguments: Any, **settings: Any) -> list[tuple[str, str | None]]:
    return [(warning.code, warning.stage) for warning in found(*arguments, **settings)]


def regression(name: str, error: float, previous: str | None, variance: float) -> StageOutcome:
    each = [0.5 * error, 1.5 * error] * (EXAMPLES // 2)
    stage = with_result(
        outcome(name, 0, 1000, previous),
        metrics={"mean_squared_error": error, "loss": error},
        guess={**GUESS, "metric": "mean_squared_error", "value": variance, "classes": []},
    )
    return StageOutcome(**{**vars(stage), "scores": {"mean_squared_error": each}})


def test_a_good_run_has_no_warnings() -> None:
    assert codes([guessed(outcome("train", 98, 1000, None)), outcome("q", 97, 500, "train")]) == []


def test_a_baseline_at_chance_is_told_once_with_its_causes() -> None:
    many = [1.0] * 250 + [0.0] * 750
    base = guessed(outcome("baseline", 25, 1000, None))
    base = StageOutcome(**{**vars(base), "scores": {"accuracy": many}})
    (warning,) = found([base, outcome("quantize", 24, 400, "baseline")])
    assert (warning.code, warning.stage) == ("baseline-at-chance", "baseline")
    assert warning.message.startswith(
        "accuracy is 25.0 %, no better than chance level (25.0 %, always predicting the most "
        "frequent of 4 classes)"
    )
    assert "circle, cross, square, triangle" in str(warning.hint)
    assert "inputs are 0 to 255" in str(warning.hint)
    assert "has no layer that scales them" in str(warning.hint)


@pytest.mark.parametrize(
    ("correct", "chance", "word"),
    [
        (331, 0.25, "hardly"),
        (250, 0.25, "no"),
        (100, 0.25, "no"),
        (960, 0.95, "not significantly"),
        (500, 0.25, None),
    ],
)
def test_a_baseline_is_compared_with_guessing_by_its_interval(
    correct: int, chance: float, word: str | None
) -> None:
    base = guessed(outcome("baseline", 0, 1000, None), value=chance)
    base = with_result(base, metrics={"accuracy": correct / 1000}, examples=1000)
    many = [1.0] * correct + [0.0] * (1000 - correct)
    told = found([StageOutcome(**{**vars(base), "scores": {"accuracy": many}})])
    if word is None:
        assert told == []
    else:
        assert f"{word} better than chance level" in told[0].message


def rare(stage: StageOutcome, counts: list[list[float]]) -> StageOutcome:
    """Return a stage that scored these counts of true (rows) and decided classes."""
    total = sum(map(sum, counts))
    right = int(sum(row[k] for k, row in enumerate(counts)))
    stage = guessed(stage, value=max(map(sum, counts)) / total, num_classes=len(counts))
    confusion = [{"output": "", "labels": ["no", "yes"], "counts": counts, "confused": []}]
    stage = with_result(
        stage,
        metrics={"accuracy": right / total},
        examples=int(total),
        details={"confusion": confusion},
    )
    scores = [1.0] * right + [0.0] * (int(total) - right)
    return StageOutcome(**{**vars(stage), "scores": {"accuracy": scores}})


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([[933, 37], [2, 28]], ["skewed-labels"]),  # recall 0.93 of 3 % positives
        ([[970, 0], [30, 0]], ["baseline-at-chance"]),
        ([[940, 30], [29, 1]], ["baseline-at-chance"]),
        ([[98, 0], [1, 1]], ["baseline-at-chance"]),  # right on one of two: no proof
    ],
)
def test_skewed_labels_are_judged_by_balanced_accuracy(
    counts: list[list[float]], expected: list[str]
) -> None:
    told = found([rare(outcome("baseline", 0, 1000, None), counts)])
    assert [one.code for one in told if one.code != "few-test-examples"] == expected
    if expected == ["skewed-labels"]:
        assert "balanced accuracy is 94.8 %" in told[0].message


def test_targets_that_are_all_equal_are_named_as_the_cause() -> None:
    one_class = rare(outcome("baseline", 0, 1000, None), [[100.0, 0.0], [0.0, 0.0]])
    (warning,) = found([one_class])
    assert warning.code == "baseline-at-chance"
    assert "all test examples have the same target" in warning.message
    assert "every class" in str(warning.hint)
    assert (
        "all test examples have the same target"
        in found([regression("b", 0.1, None, 0.0)])[0].message
    )


def test_a_stage_that_loses_the_rare_class_is_at_chance_though_its_accuracy_rises() -> None:
    base = rare(outcome("baseline", 0, 1000, None), [[933, 37], [2, 28]])
    lost = rare(outcome("quantize", 0, 900, "baseline"), [[970, 0], [30, 0]])
    assert codes([base, lost]) == [("stage-at-chance", "quantize"), ("skewed-labels", "baseline")]


def test_a_stage_that_trained_at_chance_is_not_told_of_the_order_of_classes() -> None:
    told = found([guessed(outcome("train", 25, 1000, None))])[0]
    assert told.code == "baseline-at-chance"
    assert str(told.hint).startswith("check that it was trained for long enough; the normalisation")
    assert "circle" not in str(told.hint)


@pytest.mark.parametrize(
    ("high", "rescales", "first"),
    [(255.0, False, "--normalize-scale 1/255"), (1.0, True, "does it expect 0 to 255?")],
)
def test_inputs_of_another_scale_are_the_first_cause(
    high: float, rescales: bool, first: str
) -> None:
    base = guessed(outcome("baseline", 25, 1000, None), high=high, rescales=rescales)
    hint = str(found([base])[0].hint)
    assert hint.startswith("check the normalisation")
    assert hint.index(first) < hint.index("circle, cross")


@pytest.mark.parametrize(("high", "rescales"), [(255.0, True), (1.0, False), (49.0, False)])
def test_the_order_of_classes_is_the_first_cause_of_others(high: float, rescales: bool) -> None:
    base = guessed(outcome("baseline", 25, 1000, None), high=high, rescales=rescales)
    hint = str(found([base])[0].hint)
    assert hint.index("circle, cross") < hint.index("the normalisation")


@pytest.mark.parametrize(
    ("gates", "warned"),
    [
        ({"accuracy_drop": {"limit": 0.005}}, True),
        ({"accuracy_drop": {"limit": 0.01}}, False),
        ({"accuracy_drop": {"limit": 0}}, False),
        ({"accuracy_drop": {"limit": 0.005, "confidence": 0.95}}, False),
        ({"accuracy": {"limit": 0.005}}, False),
        ({"tflite_bytes": {"limit": 2000}}, False),
    ],
)
def test_a_gate_below_one_test_example_is_a_warning(gates: dict[str, Any], warned: bool) -> None:
    base = guessed(outcome("baseline", 98, 1000, None))  # of 100 examples
    told = found([base, outcome("quantize", 98, 500, "baseline")], gates)
    assert [one.code for one in told] == ["limit-below-resolution"] * warned
    for one in told:
        assert "100 test examples cannot resolve a drop of 0.5 points of accuracy" in one.message
        assert str(one.hint).startswith("use at least 200 test examples (data.test_split), and 600")


def test_what_makes_a_result_useless_comes_before_what_limits_it() -> None:
    base = guessed(outcome("baseline", 25, 1000, None))  # of 100 examples: a wide interval
    assert codes([base]) == [("baseline-at-chance", "baseline"), ("few-test-examples", None)]


@pytest.mark.parametrize(("error", "expected"), [(9.0, True), (7.9, False), (30.0, True)])
def test_a_regression_is_compared_with_the_variance(error: float, expected: bool) -> None:
    told = found([regression("baseline", error, None, variance=10.0)])
    assert [w.code for w in told] == (["baseline-at-chance"] if expected else [])
    assert not told or "always predicting the mean" in told[0].message


@pytest.mark.parametrize(
    ("examples", "correct", "expected"),
    [(3, 3, True), (20, 20, True), (100, 50, True), (100, 99, False)],
)
def test_few_examples_are_told_by_the_interval_that_they_leave(
    examples: int, correct: int, expected: bool
) -> None:
    base = guessed(outcome("baseline", 98, 1000, None))
    base = with_result(base, metrics={"accuracy": correct / examples}, examples=examples)
    values = [1.0] * correct + [0.0] * (examples - correct)
    told = found([StageOutcome(**{**vars(base), "scores": {"accuracy": values}})])
    assert [w.code for w in told] == (["few-test-examples"] if expected else [])
    if examples == 3:  # Wilson: 3 / (3 + 1.95996^2) = 0.43850
        assert told[0].message == (
            "only 3 test examples: the 95 % interval of accuracy is 43.9 % to 100.0 %"
        )


def test_a_large_drop_is_a_warning_unless_a_gate_looks_at_it() -> None:
    stages = [guessed(outcome("train", 98, 1000, None)), outcome("s90", 20, 900, "train")]
    (warning,) = found(stages)
    assert (warning.code, warning.stage) == ("large-drop", "s90")
    assert warning.message == (
        "accuracy fell by 78.00 points, from 98.0 % to 20.0 %, which is no better than chance "
        "level (25.0 %), and no gate looks at it"
    )
    assert "{accuracy_drop: 0.02}" in str(warning.hint)
    assert codes(stages, {"accuracy_drop": 0.9}) == []
    assert codes(stages, {"accuracy": 0.5}) == []


def test_a_result_above_chance_is_not_called_chance() -> None:
    guess = {**GUESS, "value": 0.1}
    stages = [
        with_result(outcome("train", 98, 1000, None), guess=guess), outcome("s90", 24, 900, "train")
    ]  # fmt: skip
    (warning,) = found(stages)
    assert "which is hardly better than chance level (10.0 %)" in warning.message


@pytest.mark.parametrize(("limit", "expected"), [(39_999_999, True), (40_000_000, False)])
def test_a_training_above_its_memory_limit_is_a_warning(limit: int, expected: bool) -> None:
    training = {"replicas": 1, "epochs": 2, "memory_limit_bytes": limit}
    stage = with_result(guessed(outcome("train", 98, 1000, None)), training=training)
    assert codes([stage]) == ([("over-memory-limit", "train")] if expected else [])


@pytest.mark.parametrize(
    ("before", "after", "lost"), [(0.5, 0.0, True), (0.5, 0.4, False), (0.05, 0.0, False)]
)
def test_training_that_fills_the_zeros_of_a_pruned_model_is_a_warning(
    before: float, after: float, lost: bool
) -> None:
    stages = []
    for name, zeros, previous in (("baseline", before, None), ("train", after, "baseline")):
        stage = guessed(outcome(name, 98, 40_000, previous))
        # Biases, which begin as zeros, are in the parameters alone.
        size = {**to_plain(stage.result)["size"], "nonzero_parameters": 8_000 * (name == "train")}
        rows = [{"name": "d", "type": "Dense", "parameters": 10_000, "sparsity": zeros}]
        stages.append(with_result(stage, size=size, details={"layers": rows}))
    assert codes(stages) == ([("zeros-lost", "train")] if lost else [])


def test_a_large_drop_is_of_a_result_not_of_a_stage_on_the_way() -> None:
    base = guessed(outcome("train", 98, 1000, None))
    pruned, tuned = outcome("prune", 40, 500, "train"), outcome("distill", 97, 500, "prune")
    assert codes([base, pruned, tuned]) == []
    branch = outcome("other", 50, 500, "train")
    assert codes([base, tuned, branch], finals=("distill", "other")) == [("large-drop", "other")]


def test_a_small_or_unproven_drop_is_no_warning() -> None:
    base = guessed(outcome("train", 98, 1000, None))
    assert codes([base, outcome("q", 90, 500, "train")]) == []
    unproven = StageOutcome(**{**vars(outcome("q", 70, 500, "train")), "scores": {}})
    assert codes([base, unproven]) == []


def test_half_the_way_to_chance_is_large_however_few_points_it_is() -> None:
    many = {"accuracy": 0.98}, {"accuracy": 0.94}
    base, result = (
        StageOutcome(
            **{
                **vars(guessed(with_result(outcome(name, 0, 1000, p), metrics=m), value=0.91)),
                "scores": {"accuracy": [1.0] * n + [0.0] * (1000 - n)},
            }
        )
        for name, p, m, n in (("train", None, many[0], 980), ("q", "train", many[1], 940))
    )
    assert [w.code for w in found([base, result])] == ["large-drop"]


def test_an_error_that_doubles_towards_guessing_is_a_large_drop() -> None:
    base = regression("train", 1.0, None, variance=10.0)
    (warning,) = found([base, regression("q", 6.0, "train", variance=10.0)])
    assert warning.code == "large-drop"
    assert warning.message.startswith("mean_squared_error rose, from 1 to 6")


def test_an_error_that_rises_by_half_is_a_large_drop_however_bad_a_guess_is() -> None:
    base = regression("train", 1.0, None, variance=1000.0)
    (warning,) = found([base, regression("q", 1.6, "train", variance=1000.0)])
    assert warning.code == "large-drop"
    assert found([base, regression("q", 1.4, "train", variance=1000.0)]) == []


def test_a_quantized_file_that_grew_is_a_warning() -> None:
    base = guessed(outcome("baseline", 98, 30_000, None))
    (warning,) = found([base, outcome("quantize", 98, 121_000, "baseline")])
    assert (warning.code, warning.stage) == ("artifact-larger-than-source", "quantize")
    assert "unrolls no recurrent layer" in str(warning.hint)
    assert "121 KB instead of 30.0 KB" in warning.message
    assert "dynamic_wi8_afp32" in str(warning.hint)
    assert codes([base, outcome("quantize", 98, 30_100, "baseline")]) == []
    grown = with_result(
        outcome("quantize", 98, 121_000, "baseline"), memory={"arena_bytes": 99_000}
    )
    (warning,) = found([base, grown])
    assert "so is its tensor arena: 99.0 KB instead of 24.0 KB" in warning.message


def test_classes_of_one_split_only_are_named() -> None:
    base = guessed(outcome("baseline", 98, 1000, None), only_in_test=["eel"])
    assert found([base]) == []  # nothing trains
    (warning,) = found([base, outcome("prune", 98, 900, "baseline")])
    assert warning.code == "classes-missing-from-split"
    assert warning.message == (
        "a class is in the test examples and not in the training examples: eel"
    )


def test_data_warnings_tell_what_a_report_would_before_it_is_made() -> None:
    found = data_warnings(1, ("a", "b"), ("c",))
    assert [warning.code for warning in found] == [
        "few-test-examples",
        "classes-missing-from-split",
    ]
    assert found[0].message.startswith("only 1 test example,")
    assert "larger data.test_split" in (found[0].hint or "")
    assert "test_split" not in (data_warnings(1, (), ("c",), tests_all=True)[0].hint or "")
    assert found[1].message.endswith("not in the training examples: c")
    enough = data_warnings(100, ("a", "b"), ("a",))
    assert [warning.message for warning in enough] == [
        "a class is in the training examples and not in the test examples: b"
    ]
    assert data_warnings(100, ("a",), ("a",)) == []


@pytest.mark.parametrize(
    ("decibels", "outputs", "warned"),
    [
        ([38.4, -10.5], 2, True),
        ([38.4, 10.1], 2, False),
        ([None, 13.3], 2, False),
        ([-3.0], 1, False),
    ],
)
def test_an_output_that_quantization_drowned_is_named_where_a_mean_hides_it(
    decibels: list[float | None], outputs: int, warned: bool
) -> None:
    rows = [
        {"output": i, "compared": form, "snr_db": value, "cosine": 0.2}
        for i, quantized in enumerate(decibels)
        for form, value in (
            ("keras to float tflite", 140.0),
            ("float tflite to quantized", quantized),
        )
    ]
    details = {
        "task": {"outputs": [{"name": name} for name in ("mass", "angle")[:outputs]]},
        "audit": {"agreement": rows},
    }
    made = with_result(regression("quantize", 1.0, "train", 9.0), details=details)
    told = [
        w for w in found([regression("train", 1.0, None, 9.0), made]) if w.code == "outputs-lost"
    ]
    assert bool(told) == warned
    for warning in told:
        assert "angle (signal to noise -10.5 dB)" in warning.message
        assert "mass" not in warning.message
