"""What is refused before anything is trained."""

from __future__ import annotations

import pytest

from shrink.base.errors import RecipeError
from shrink.stages.demands import check_gated
from shrink.task.task import Task


def task(*metrics: str) -> Task:
    return Task(("sparse_categorical_crossentropy",), metrics, "loss", (True,), (), (1.0,))


@pytest.mark.parametrize("gate", ["accuracy", "accuracy_drop", "loss_rise", "tflite_bytes"])
def test_gates_on_what_is_measured_pass(gate: str) -> None:
    check_gated([gate], task("accuracy"))


@pytest.mark.parametrize("gate", ["f1_macro", "f1_macro_drop", "recall_2"])
def test_a_gate_on_a_metric_that_no_stage_measures_is_refused(gate: str) -> None:
    with pytest.raises(RecipeError, match=f"gate {gate}: no stage measures") as caught:
        check_gated([gate], task("accuracy"))
    assert "task: {metrics: [accuracy, " in str(caught.value.hint)
