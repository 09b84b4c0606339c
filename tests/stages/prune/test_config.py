"""What a recipe may say of pruning, and what belongs to the other method."""

from __future__ import annotations

from typing import Any

import pytest

from shrink.base.errors import RecipeError
from shrink.recipe.load import recipe_from_mapping
from shrink.recipe.schema import dump_recipe
from shrink.stages.prune.config import PruneConfig


def recipe(prune: dict[str, Any]) -> dict[str, Any]:
    stages = [{"prune": prune}]
    return {"name": "r", "model": "m.keras", "data": {"source": "digits"}, "stages": stages}


@pytest.mark.parametrize(
    ("prune", "message"),
    [
        ({"ratio": 0.3}, "ratio belongs to method channels"),
        ({"method": "magnitude", "importance": "l1"}, "importance belongs to method channels"),
        ({"method": "channels", "ratio": 0.3, "sparsity": 0.5}, "sparsity belongs to method mag"),
        ({"method": "channels", "ratio": 0.3, "ramp": 0.6}, "ramp belongs to method magnitude"),
        ({"method": "channels"}, "needs ratio, or a budget"),
        ({"method": "channels", "ratio": 0.3, "macs": 0.5}, "macs and ratio contradict"),
        ({"method": "channels", "ratio": 1.0}, "less than 1"),
        ({"method": "channels", "macs": 1.5}, "less than 1"),
        ({"method": "channels", "ratios": {"a": 2.0}}, "less than 1"),
        ({"method": "channels", "file_bytes": "60 potatoes"}, "unknown unit"),
        ({"method": "channels", "ratio": 0.3, "file_precision": "int8"}, "needs file_bytes"),
        ({"method": "channels", "ratios": {"a": 0.3}, "allocation": "sensitivity"}, "ratios say"),
        (
            {"method": "channels", "arena_bytes": "9KB", "max_extra_macs": 0.1},
            "max_extra_macs needs arena: compacted",
        ),
        (
            {
                "method": "channels",
                "macs": 0.5,
                "allocation": "global",
                "importance": "least_squares",
            },
            "least_squares gives no scores",
        ),
        ({"method": "channels", "ratio": 0.3, "steps": 3, "epochs": 2}, "at least as many epochs"),
        (
            {"method": "channels", "ratio": 0.3, "steps": 2, "rebuild": False},
            "need `rebuild: true`",
        ),
        ({"method": "channels", "macs": 0.5, "rebuild": False}, "macs needs `rebuild: true`"),
        ({"method": "channels", "ratio": 0.3, "alpha": 0.5}, "need `teacher: self`"),
        (
            {"method": "channels", "macs": 0.5, "sensitivity_metric": "f1_macro"},
            "'sensitivity_metric' was removed",
        ),
        ({"method": "channels", "ratio": 0.5, "importance": "apoz"}, "apoz was removed"),
        ({"method": "channels", "ratio": 0.3, "teacher": "self", "epochs": 0}, "needs epochs"),
        ({"pattern": "2:4", "sparsity": 0.6}, "2:4 is a sparsity of 0.5"),
        ({"pattern": "2:4", "ramp": 0.3}, "2:4 is chosen once"),
        ({"sparsity": 0.3, "initial_sparsity": 0.5}, "initial_sparsity 0.5 is above sparsity 0.3"),
        ({"pattern": "1:3"}, "must be 'unstructured', '2:4' or 'block'"),
        ({"method": "filters", "ratio": 0.3}, "must be 'magnitude', 'channels' or 'layers'"),
    ],
)
def test_recipe_refuses_what_does_not_belong_together(prune: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message) as caught:
        recipe_from_mapping(recipe(prune), "test")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "prune",
    [
        {},
        {"method": "magnitude", "sparsity": 0.8, "schedule": "constant"},
        {"pattern": "2:4"},
        {"pattern": "block", "sparsity": 0.7},
        {"method": "channels", "ratio": 0.3},
        {"method": "channels", "ratios": {"conv*": 0.3}, "exclude": ["head"]},
        {"method": "channels", "file_bytes": "60KB", "file_precision": "int8"},
        {"method": "channels", "arena_bytes": "9KB", "file_precision": "int8"},
        {
            "method": "channels",
            "arena_bytes": "9KB",
            "file_precision": "int8",
            "arena": "compacted",
        },
        {
            "method": "channels",
            "arena_bytes": "9KB",
            "file_precision": "int8",
            "arena": "compacted",
            "max_extra_macs": 0.25,
        },
        {"method": "channels", "macs": 0.5, "allocation": "sensitivity"},
        {"method": "channels", "macs": 0.5, "temperature": 3.0, "alpha": 0.2},
        {"method": "channels", "macs": 0.5, "steps": 8},
        {"method": "channels", "macs": 0.5, "teacher": "self", "alpha": 0.5},
    ],
)
def test_dumped_configuration_is_read_again(prune: dict[str, Any]) -> None:
    first = recipe_from_mapping(recipe(prune), "test").recipe
    again = recipe_from_mapping(dump_recipe(first), "test").recipe
    assert again == first
    stage = first.stages[0]
    assert PruneConfig.model_validate(stage.model_dump(mode="json", by_alias=True)) == stage


def test_established_is_sparsity_only_where_zeros_stay() -> None:
    assert PruneConfig().preserved() == ("sparsity",)
    assert PruneConfig(method="channels", ratio=0.3).preserved() == ()
    assert PruneConfig(method="channels", ratio=0.3, rebuild=False).preserved() == ("sparsity",)
