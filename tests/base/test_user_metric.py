"""What a user's metric is called, and which names it cannot have."""

from __future__ import annotations

import jsonschema
import pytest

from shrink.base.figures import metric_figure, target_of
from shrink.base.metrics import metrics_json_schema
from shrink.base.user_metric import key_of_entry, user_metric_of, user_metric_of_mapping
from shrink.report.config import why_unmeasured


@pytest.mark.parametrize(
    ("settings", "key", "higher", "unit"),
    [
        ({"name": "m.py:cost"}, "cost_score", True, "none"),
        ({"name": "m.py:cost", "better": "lower"}, "cost_loss", False, "none"),
        ({"name": "m.py:hits", "unit": "fraction"}, "hits_accuracy", True, "fraction"),
        (
            {"name": "m.py:misses", "better": "lower", "unit": "fraction"},
            *("misses_error_rate", False, "fraction"),
        ),
        ({"name": "m.py:angle_error"}, "angle_error", False, "none"),
        ({"name": "m.py:own_accuracy"}, "own_accuracy", True, "fraction"),
        ({"name": "m.py:word_error_rate"}, "word_error_rate", False, "fraction"),
        ({"name": "m.py:angle_error", "better": "higher"}, "angle_error_score", True, "none"),
    ],
)
def test_key_tells_direction_and_unit(
    settings: dict[str, object], key: str, higher: bool, unit: str
) -> None:
    own = user_metric_of_mapping(settings)
    assert own is not None
    assert own.key == key
    figure = metric_figure(key)
    assert (figure.larger_is_better, figure.unit) == (higher, unit)
    assert user_metric_of(own.entry) == own
    assert key_of_entry(own.entry) == key
    target = target_of(f"{key}_drop")
    assert target is not None
    assert target.kind == "drop"


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"name": "m.py:cost", "beter": "lower"}, "did you mean better"),
        ({"name": "m.py:cost", "better": "up"}, "must be higher or lower, not 'up'"),
        ({"name": "m.py:cost", "unit": "ms"}, "must be none or fraction"),
        ({"name": "m.py:balanced", "unit": "fraction"}, "a metric of shrink"),
    ],
)
def test_functions_are_refused(settings: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        user_metric_of_mapping(settings)


def test_a_gate_knows_the_functions_of_the_recipe_alone() -> None:
    assert why_unmeasured("cost_loss", ("m.py:cost(better=lower, unit=none)",)) is None
    missing = why_unmeasured("coast_loss", ("m.py:cost(better=lower, unit=none)",))
    assert missing is not None
    assert missing[1] == "did you mean cost_loss?"


def test_schema_takes_functions() -> None:
    listed = ["m.py:cost", {"name": "m.py:cost", "better": "lower", "unit": "fraction"}]
    jsonschema.validate(listed, metrics_json_schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate([{"name": "m.py:cost", "better": "up"}], metrics_json_schema())
