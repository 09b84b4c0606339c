"""A resolved recipe names the task that was taken; a verb goes on with what was stated alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shrink.contract.codec import from_plain
from shrink.contract.details import Task
from shrink.recipe.load import recipe_from_mapping
from shrink.recipe.plan import build_plan
from shrink.recipe.resolution import stated_task, with_taken_task
from shrink.task.config import TaskConfig


def _output(name: str, loss: str, from_logits: bool | None, by: str = "compiled") -> dict[str, Any]:
    told = {"name": name, "loss": loss, "loss_by": by}
    return {**told, "from_logits": from_logits, "from_logits_by": "graph"}


def _told(*outputs: dict[str, Any], weights: tuple[float, ...] = (1.0,)) -> Task:
    told = {
        "outputs": list(outputs),
        "loss_weights": list(weights),
        "metrics": ["accuracy"],
        "metrics_by": "compiled",
        "monitor": "accuracy",
    }
    return from_plain(Task, told)


ONE = _told(_output("d", "binary_crossentropy", False))
TWO = _told(
    _output("a", "mean_absolute_error", None),
    _output("b", "binary_crossentropy", True),
    weights=(1.0, 0.5),
)
LOSSES = {"a": "mean_absolute_error", "b": "binary_crossentropy"}


@pytest.mark.parametrize(
    ("stated", "told", "expected"),
    [
        ({}, [], {}),
        ({}, [ONE, ONE],
         {"loss": "binary_crossentropy", "from_logits": False, "metrics": ["accuracy"]}),
        ({}, [TWO], {"loss": LOSSES, "loss_weights": {"b": 0.5}, "from_logits": {"b": True},
                     "metrics": ["accuracy"]}),
        ({"loss": {"a": "mean_squared_error"}, "metrics": ["mean_squared_error"]}, [TWO],
         {"loss": LOSSES | {"a": "mean_squared_error"}, "loss_weights": {"b": 0.5},
          "from_logits": {"b": True}, "metrics": ["mean_squared_error"]}),
        # A student that ends in logits: each model tells it by itself.
        ({}, [ONE, _told(_output("d", "binary_crossentropy", True))],
         {"loss": "binary_crossentropy", "metrics": ["accuracy"]}),
        ({}, [ONE, _told(_output("student", "binary_crossentropy", False))],
         {"loss": "binary_crossentropy", "from_logits": False, "metrics": ["accuracy"]}),
    ],
)  # fmt: skip
def test_with_taken_task_names_what_all_stages_took(
    tmp_path: Path, stated: dict[str, Any], told: list[Task], expected: dict[str, Any]
) -> None:
    (tmp_path / "m.py").touch()
    recipe = {
        "name": "r", "model": f"{tmp_path / 'm.py'}:build", "data": {"source": "digits"},
        "task": stated, "stages": [{"train": {"epochs": 1}}],
    }  # fmt: skip
    plan = build_plan(recipe_from_mapping(recipe, "test"))
    found = with_taken_task(plan, told)
    assert found.recipe.task == TaskConfig.model_validate(expected)
    assert with_taken_task(found, told) == found


def test_stated_task_leaves_out_what_the_run_took_by_itself() -> None:
    task = {"loss": "binary_crossentropy", "from_logits": False, "metrics": ["accuracy"]}
    assert stated_task({**task, "monitor": "loss"}, ONE) == {"monitor": "loss"}
    told = _told(_output("d", "binary_crossentropy", False, by="recipe"))
    assert stated_task(task, told) == {"loss": "binary_crossentropy"}
