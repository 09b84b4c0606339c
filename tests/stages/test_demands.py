"""What is refused before anything is trained."""

from __future__ import annotations

import numpy as np
import pytest

from shrink.base.errors import RecipeError
from shrink.data.slices import divided
from shrink.stages.demands import check_gated, check_normal
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


SLICINGS = (
    divided("condition", np.array(["normal", "scratch", "normal"])),
    divided("line", np.array(["a", "b", "b"])),
    divided("week", np.array([1, 2, 2])),
)


@pytest.mark.parametrize("key", ["anomaly_roc_auc_normal", "anomaly_roc_auc_b", "loss", "rmse"])
def test_a_slice_of_normal_examples_that_is_there_passes(key: str) -> None:
    check_normal([key], lambda: SLICINGS)


@pytest.mark.parametrize("metric", ["roc_auc", "average_precision", "partial_roc_auc_0.1"])
def test_a_misspelt_slice_of_normal_examples_is_refused(metric: str) -> None:
    with pytest.raises(RecipeError, match="no test example is in a slice 'norml'") as caught:
        check_normal(["loss", f"anomaly_{metric}_norml"], lambda: SLICINGS)
    assert caught.value.hint == "did you mean normal?"


def test_a_slice_of_normal_examples_that_two_slicings_have_is_refused() -> None:
    twice = (*SLICINGS, divided("side", np.array(["b", "c", "c"])))
    with pytest.raises(RecipeError, match="a slice 'b' of line and of side"):
        check_normal(["anomaly_roc_auc_b"], lambda: twice)


def test_slices_are_looked_at_only_where_a_metric_asks() -> None:
    def never() -> tuple[()]:
        raise AssertionError

    check_normal(["accuracy", "roc_auc", "recall_2"], never)
