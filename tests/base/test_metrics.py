"""Keys of metrics, and what follows from them."""

from __future__ import annotations

import jsonschema
import pytest

from shrink.base.figures import metric_figure, target_of
from shrink.base.metrics import (
    METRICS,
    check_metric,
    key_of_mapping,
    metric_of,
    metrics_json_schema,
)


@pytest.mark.parametrize(
    ("settings", "key", "arguments"),
    [
        ({"name": "recall", "class": "cat"}, "recall_cat", {"class": "cat"}),
        ({"name": "recall", "class": 3}, "recall_3", {"class": "3"}),
        ({"name": "recall"}, "recall", {}),
        ({"name": "top_k", "k": 3}, "top_k_3", {"k": 3}),
        ({"name": "top_k"}, "top_k", {"k": 5}),
        ({"name": "quantile_loss", "quantile": 0.9}, "quantile_loss_0.9", {"quantile": 0.9}),
        (
            {"name": "false_accepts_per_hour", "miss_rate": 0.05, "seconds": 1, "class": "hey_you"},
            "false_accepts_per_hour_0.05_1_hey_you",
            {"miss_rate": 0.05, "seconds": 1, "class": "hey_you"},
        ),
        (
            {"name": "partial_roc_auc", "class": "cat"},
            "partial_roc_auc_0.1_cat",
            {"max_fpr": 0.1, "class": "cat"},
        ),
    ],
)
def test_a_mapping_and_its_key_are_one_metric(settings: dict, key: str, arguments: dict) -> None:
    assert key_of_mapping(settings) == key
    found = metric_of(key)
    assert found is not None
    assert found.name == settings["name"]
    assert found.arguments == arguments
    jsonschema.validate([settings, key], metrics_json_schema())


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"name": "recal"}, "did you mean recall"),
        ({"name": "recall", "clas": "cat"}, "unknown argument 'clas'"),
        ({"name": "recall", "class": "macro"}, "must be a class's name or number"),
        ({"name": "recall", "class": 1.5}, "must be a class's name or number"),
        ({"name": "recall", "class": "a, b"}, "give the class's number"),
        ({"name": "top_k", "k": 1.5}, "whole number"),
        ({"name": "top_k", "k": 0}, "above 0"),
        ({"name": "quantile_loss", "quantile": 1}, "below 1"),
        ({"name": "false_accepts_per_hour", "seconds": 1}, "'miss_rate' is missing"),
        ({"name": "roc_auc", "k": 1}, "unknown argument 'k'; it takes class"),
    ],
)
def test_key_of_mapping_refuses_what_it_cannot_mean(settings: dict, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        key_of_mapping(settings)


@pytest.mark.parametrize(
    ("key", "complaint"),
    [
        ("f1_", "unknown metric"),
        ("top_k_x", "unknown metric"),
        ("rocauc", "did you mean roc_auc"),
        ("false_accepts_per_hour", "needs arguments"),
        ("mean_squared_error_cat", "unknown metric"),
    ],
)
def test_check_metric_refuses_what_is_none(key: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        check_metric(key)


@pytest.mark.parametrize("name", METRICS)
def test_a_drop_is_a_worsening_of_every_metric(name: str) -> None:
    target = target_of(f"{name}_drop")
    assert target is not None
    assert target.kind == "drop"
    assert target.figure.name == name
    assert target.figure.larger_is_better == METRICS[name].higher_is_better


def test_target_of_knows_metrics_with_arguments_and_none_by_chance() -> None:
    target = target_of("recall_cat_drop")
    assert target is not None
    assert (target.kind, target.figure.name) == ("drop", "recall_cat")
    rise = target_of("false_accepts_per_hour_0.05_1_rise")
    assert rise is not None
    assert (rise.kind, rise.figure.name) == ("rise", "false_accepts_per_hour_0.05_1")
    assert target_of("acuracy_drop") is None
    assert target_of("recal_cat") is None


def test_figures_have_their_own_units_and_directions() -> None:
    assert metric_figure("f1_macro").text(0.5) == "50.00 %"
    assert metric_figure("roc_auc").text(0.98765) == "0.9877"
    assert metric_figure("false_accepts_per_hour_0.05_1").text(1.5) == "1.5 per hour"
    assert not metric_figure("false_accepts_per_hour_0.05_1").larger_is_better
    assert metric_figure("r2").can_be_negative
    assert metric_figure("a_user_score").larger_is_better
