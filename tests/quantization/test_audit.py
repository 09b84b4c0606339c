from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras
from ai_edge_litert.interpreter import Interpreter

from shrink.base.errors import StageError
from shrink.contract.details import OperatorRow
from shrink.quantization import edge_quantizer
from shrink.quantization.audit import agreement, audit, with_errors
from shrink.quantization.calibration import extreme_ranges
from shrink.quantization.edge_quantizer import MATRIX_OPERATORS, weighted_operators
from shrink.quantization.source import FloatModel
from shrink.tflite.arena import predict_in_micro
from shrink.tflite.convert import convert
from shrink.tflite.model import Operator, Subgraph, Tensor, read
from shrink.tflite.suitability import (
    MICRO_INT4_OPERATORS,
    check_runs,
    findings,
    float_islands,
    microcontroller_findings,
    narrow_weights_beyond_micro,
)
from tests.stages.quantize.toys import cnn, float_cnn, images
from tests.tflite.toys import to_float32

L = keras.layers


def static(content: bytes | None = None) -> bytes:
    content = content or float_cnn()
    ranges = extreme_ranges(content, [{"picture": images(30)}])
    return edge_quantizer.quantize(content, "static", ranges=ranges)


def tensor(dtype: str) -> Tensor:
    return Tensor("t", (1, 4), dtype, (0.1,), (0,), 0, np.zeros(0, np.uint8), False, False)


def chain(*names_and_types: tuple[str, str]) -> Subgraph:
    """Operators in a row, from an int8 input, each with the type of its output."""
    tensors = [tensor("INT8"), *(tensor(dtype) for _, dtype in names_and_types)]
    operators = tuple(
        Operator(name, False, (place,), (place + 1,))
        for place, (name, _) in enumerate(names_and_types)
    )
    return Subgraph(tuple(tensors), operators, (0,), (len(tensors) - 1,))


def test_float_islands_are_float_operators_among_integer_ones() -> None:
    graph = chain(
        ("CONV_2D", "INT8"), ("DEQUANTIZE", "FLOAT32"), ("ELU", "FLOAT32"), ("QUANTIZE", "INT8")
    )
    assert float_islands(graph) == ["ELU"]
    assert findings(graph) == ["operators that stay float: 1 ELU"]


def test_an_operator_that_keeps_a_state_between_invocations_is_named() -> None:
    inputs = L.Input((5, 3))
    keeping, rolled = (
        to_float32(keras.Model(inputs, layer(inputs))) for layer in (L.LSTM(4), L.GRU(4))
    )
    (note,) = findings(read(keeping)[0])
    assert note.startswith("state kept between invocations by 1 UNIDIRECTIONAL_SEQUENCE_LSTM")
    assert findings(read(rolled)[0]) == []
    interpreter = Interpreter(model_content=keeping)  # without a reset, outputs move
    interpreter.allocate_tensors()
    (source,), (result,) = interpreter.get_input_details(), interpreter.get_output_details()
    interpreter.set_tensor(source["index"], np.ones((1, 5, 3), np.float32))
    outputs = []
    for reset in (True, False, True):
        if reset:
            interpreter.reset_all_variables()
        interpreter.invoke()
        outputs.append(interpreter.get_tensor(result["index"]))
    assert np.array_equal(outputs[0], outputs[2])
    assert not np.allclose(outputs[0], outputs[1])


def test_float_islands_are_none_in_a_model_without_integer_activations() -> None:
    assert float_islands(read(float_cnn())[0]) == []
    dynamic = edge_quantizer.quantize(float_cnn(), "dynamic")
    assert float_islands(read(dynamic)[0]) == []


def test_agreement_is_20_db_when_a_tenth_is_added() -> None:
    reference = np.array([[3.0, -4.0]])
    found = agreement(0, "a to b", reference, 1.1 * reference)
    assert found.snr_db == pytest.approx(20.0)
    assert found.cosine == pytest.approx(1.0)
    assert agreement(0, "a to b", reference, reference).snr_db is None
    assert agreement(0, "a to b", reference, np.array([[4.0, 3.0]])).cosine == pytest.approx(0.0)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_agreement_is_of_the_values_that_are_finite_in_both(bad: float) -> None:
    reference, other = np.array([[3.0, -4.0, bad, 1.0]]), np.array([[3.3, -4.4, 1.0, bad]])
    found = agreement(0, "a to b", reference, other)
    assert found.snr_db == pytest.approx(20.0)
    assert found.cosine == pytest.approx(1.0)


def test_audit_compares_keras_with_float_with_quantized(tmp_path: Path) -> None:
    source = FloatModel(cnn())
    content = static(source.float32.content)
    details, notes = audit(
        content, source, {"picture": images(20)}, "litert", tmp_path / "a.tflite"
    )
    compared = {one.compared: one for one in details.agreement}
    assert set(compared) == {"keras to float tflite", "float tflite to quantized"}
    exact = compared["keras to float tflite"].snr_db
    assert exact is None or exact > 90
    assert 20 < (compared["float tflite to quantized"].snr_db or 0) < 70
    assert details.float_islands == ()
    operators = with_errors(details, content, source, {"picture": images(20)}).operators
    convolution = next(o for o in operators if o.name == "CONV_2D")
    assert isinstance(convolution, OperatorRow)
    assert convolution.layer == "first"
    types = (convolution.inputs, convolution.weights, convolution.outputs)
    assert types == (("int8",), "int8", ("int8",))
    assert 20 < (convolution.snr_db or 0) < 70
    assert any(note.startswith("agreement of outputs") for note in notes)


def test_audit_for_microcontrollers_compares_with_their_own_runtime(tmp_path: Path) -> None:
    source, x = FloatModel(content=float_cnn()), {"picture": images(4)}
    details, notes = audit(static(), source, x, "tflm", tmp_path / "a.tflite")
    assert [note for note in notes if note.startswith("tflm: FULLY_CONNECTED")]
    assert [note for note in notes if note.startswith("tflm: outputs of TFLite Micro on 4")]
    (compared,) = [one for one in details.agreement if one.compared == "litert to tflm"]
    assert compared.snr_db is None or compared.snr_db > 30


def test_audit_for_microcontrollers_refuses_what_they_cannot_run(tmp_path: Path) -> None:
    source, x = FloatModel(content=float_cnn()), {"picture": images(4)}
    dynamic = edge_quantizer.quantize(float_cnn(), "dynamic")
    with pytest.raises(StageError, match="TFLite Micro cannot run the artifact"):
        audit(dynamic, source, x, "tflm", tmp_path / "a.tflite")
    _, notes = audit(dynamic, source, x, "litert", tmp_path / "a.tflite")
    assert not [note for note in notes if note.startswith("tflm")]
    told = microcontroller_findings(read(dynamic)[0])
    assert [note for note in told if "float activations in 2 CONV_2D" in note]


def test_check_runs_refuses_an_artifact_without_kernels(tmp_path: Path) -> None:
    inputs = L.Input((4,))
    model = keras.Model(inputs, L.Lambda(tf.math.tan)(L.Dense(4)(inputs)))
    function = tf.function(lambda x: model(x), input_signature=[tf.TensorSpec((1, 4))])
    converter = tf.lite.TFLiteConverter.from_concrete_functions(
        [function.get_concrete_function()], model
    )
    converter.target_spec.supported_ops = [
        tf.lite.OpsSet.TFLITE_BUILTINS, tf.lite.OpsSet.SELECT_TF_OPS,
    ]  # fmt: skip
    with pytest.raises(
        StageError, match=r"LiteRT has no kernels for operators of TensorFlow: FlexTan"
    ):
        check_runs(converter.convert(), tmp_path / "flex.tflite")
    check_runs(convert(cnn(), "float32").content, tmp_path / "plain.tflite")


@pytest.mark.parametrize(("kind", "runs"), [("CONV_2D", True), ("FULLY_CONNECTED", False)])
def test_narrow_weights_are_told_of_where_tflite_micro_does_not_run_them(
    kind: str, runs: bool
) -> None:
    (operator, *_) = [one for one in weighted_operators(float_cnn()) if one.kind == kind]
    ranges = extreme_ranges(float_cnn(), [{"picture": images(30)}])
    content = edge_quantizer.quantize(float_cnn(), "static", {operator.name: 4}, ranges=ranges)
    notes = narrow_weights_beyond_micro(read(content)[0])
    assert [note for note in notes if f"4-bit weights for 1 {kind}" in note] == notes
    assert bool(notes) is not runs
    assert (kind in MICRO_INT4_OPERATORS) is runs
    assert kind in MATRIX_OPERATORS
    with contextlib.nullcontext() if runs else pytest.raises(StageError, match="cannot run"):
        predict_in_micro(content, images(1))
