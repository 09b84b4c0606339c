from __future__ import annotations

import pytest

from shrink.base.errors import ConversionError, ShrinkError
from shrink.tflite.convert import explain

MLIR = (
    '<unknown>:0: error: loc(callsite(fused["TensorListReserve:", "functional_1/lstm_1/'
    'TensorArrayV2_1@__inference___call___584"] at callsite(fused["StatefulPartitionedCall:", '
    '"StatefulPartitionedCall@__inference_serve_862"] at fused["StatefulPartitionedCall:", '
    "\"StatefulPartitionedCall\"]))): 'tf.TensorListReserve' op requires element_shape to be "
    "static during TF Lite transformation pass\n<unknown>:0: note: called from"
)


@pytest.mark.parametrize("precision", ["float32", "static_int8"])
def test_explain_says_why_in_the_place_of_where(precision: str) -> None:
    error = explain(RuntimeError(MLIR), precision)
    assert error.message == (
        f"the TFLite converter failed on {precision}: 'tf.TensorListReserve' op requires "
        "element_shape to be static during TF Lite transformation pass"
    )
    assert error.subject == "lstm_1"
    assert ("try scheme float32" in str(error.hint)) is (precision != "float32")
    assert isinstance(ShrinkError.from_dict(error.to_dict()), ConversionError)


def test_explain_takes_the_first_line_of_what_has_no_location() -> None:
    assert explain(ValueError("so\nand so"), "float32").message.endswith("float32: so")
