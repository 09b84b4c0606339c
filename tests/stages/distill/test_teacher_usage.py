"""A teacher sees what its record says, its classes are matched by name, and it is measured."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import ModelError
from shrink.contract.details import Usage
from shrink.stages.context import StageContext
from shrink.stages.demands import check_record
from shrink.stages.distill.objective import TeacherOutputs
from shrink.stages.distill.teacher_usage import Adapter, adapter_of, measure_teacher
from tests.jobs import context_of

L = keras.layers
LABELS = ("ant", "bee", "cat")


def example(rows: int = 90) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).integers(0, 250, (rows, 3)).astype(np.float32)
    return x, x.argmax(axis=1)


def context(folder: Path, **data: Any) -> StageContext:
    x, y = example()
    np.savez(folder / "d.npz", x=x, y=y)
    section = {"source": "npz", "path": str(folder / "d.npz"), "classes": list(LABELS), **data}
    return context_of(folder, kind="distill", data=section)


def teacher(*rows: int) -> keras.Model:
    """A network whose output i is input `rows[i]`: right on every example, for its order."""
    inputs = keras.Input((3,), name="x")
    dense = L.Dense(len(rows), use_bias=False)
    model = keras.Model(inputs, dense(inputs))
    dense.set_weights([np.eye(3, dtype=np.float32)[:, list(rows)]])
    return model


@pytest.mark.parametrize(
    ("own", "recorded"),
    [
        (None, {"scale": 0.5, "offset": -3.0}),
        ({"scale": 0.1, "offset": 2.0}, None),
        ({"scale": 0.1, "offset": 2.0}, {"scale": 0.5, "offset": -3.0}),
        ({"scale": 0.5, "offset": -3.0}, {"scale": 0.5, "offset": -3.0}),
    ],
)
def test_a_teacher_gets_inputs_as_its_record_normalizes_them(
    tmp_path: Path, own: dict[str, float] | None, recorded: dict[str, float] | None
) -> None:
    stage = context(tmp_path, **({} if own is None else {"normalize": own}))
    model = teacher(0, 1, 2)
    adapter = adapter_of(model, Usage(data={}, normalize=recorded), stage)
    x = np.array([[1, 20, 200]], np.float32)
    mine, its = ({"scale": 1.0, "offset": 0.0, **(one or {})} for one in (own, recorded))
    student_sees = x * np.float32(mine["scale"]) + np.float32(mine["offset"])
    wanted = x * its["scale"] + its["offset"]
    np.testing.assert_allclose(adapter.inputs(student_sees), wanted, rtol=1e-5, atol=1e-4)
    given = adapter.teach(lambda part: TeacherOutputs((model(part),)))(student_sees).outputs[0]
    np.testing.assert_allclose(given, wanted, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(adapter.model(model)(student_sees), wanted, rtol=1e-5, atol=1e-4)
    assert (adapter == Adapter()) == (own == recorded)


def test_a_teachers_classes_are_put_into_the_order_of_the_data(tmp_path: Path) -> None:
    stage, shuffled = context(tmp_path), teacher(2, 0, 1)
    adapter = adapter_of(shuffled, Usage(data={}, labels=("cat", "ant", "bee")), stage)
    assert adapter.order == (1, 2, 0)
    x = tf.constant([[10.0, 20.0, 30.0]])
    np.testing.assert_array_equal(adapter.outputs([shuffled(x)])[0], x)
    assert measure_teacher(shuffled, adapter, stage) == (
        f"teacher: accuracy 100.00 % on {len(stage.dataset.validation)} validation examples"
    )
    assert stage.warnings == []


def test_a_teacher_without_a_record_that_fails_is_warned_of(tmp_path: Path) -> None:
    stage, wrong = context(tmp_path), teacher(1, 2, 0)
    adapter = adapter_of(wrong, None, stage)
    assert adapter == Adapter()
    assert measure_teacher(wrong, adapter, stage) is not None
    (warning,) = stage.warnings
    assert warning.code == "teacher-at-chance"
    assert "accuracy is 0.00 %" in warning.message


@pytest.mark.parametrize(
    ("usage", "message"),
    [
        (Usage(data={}, labels=("ant", "bee", "eel")), "and the data has cat"),
        (Usage(data={}, front_end={"vocabulary": ["a"]}), "inputs of another kind"),
    ],
)
def test_a_teacher_of_something_else_is_refused(tmp_path: Path, usage: Usage, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        adapter_of(teacher(0, 1, 2), usage, context(tmp_path))


def test_numbers_are_no_names_to_match_by(tmp_path: Path) -> None:
    usage = Usage(data={}, labels=("0", "1", "2"))
    assert adapter_of(teacher(0, 1, 2), usage, context(tmp_path)) == Adapter()


@pytest.mark.parametrize(
    ("labels", "refused"),
    [
        (("ant", "bee", "cat"), False),
        (("ant", "bee", "cat", "3"), False),
        (("eel", "fox", "gnu"), False),  # it is to learn other classes
        (("cat", "ant", "bee"), True),
        (("ant", "cat"), True),
        (("0", "1", "2"), False),
    ],
)
def test_a_student_has_the_classes_of_the_data_in_their_order(
    tmp_path: Path, labels: tuple[str, ...], refused: bool
) -> None:
    stage = context(tmp_path)
    expected = pytest.raises(ModelError, match="the student tells") if refused else nullcontext()
    with expected:
        check_record("model", Usage(data={}, labels=labels), stage.dataset, stage.data_config)
