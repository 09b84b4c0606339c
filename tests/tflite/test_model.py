"""Files of any age, and hostile ones, through the reader that everything shares."""

from __future__ import annotations

import flatbuffers
import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from shrink.base.errors import ModelError
from shrink.tflite.convert import convert
from shrink.tflite.interpreter import load
from shrink.tflite.model import drop_unread_tensors, normalized, packed, read, unpacked
from shrink.tflite.sparse import with_sparse_constants
from tests.compact.toys import with_old_codes
from tests.tflite.test_sparse import images, mostly_zeros
from tests.tflite.toys import small_cnn


def builtin_codes(content: bytes) -> list[int]:
    root = schema.Model.GetRootAs(content, 0)
    return [root.OperatorCodes(i).BuiltinCode() for i in range(root.OperatorCodesLength())]


def test_normalized_copies_codes_that_stand_in_the_old_field_alone() -> None:
    content = convert(small_cnn(), "float32").content
    old = with_old_codes(content)
    assert set(builtin_codes(old)) == {0}
    assert builtin_codes(normalized(old)) == builtin_codes(content)
    assert [o.name for o in read(old)[0].operators] == [o.name for o in read(content)[0].operators]
    assert normalized(content) is content


@pytest.mark.parametrize("sparse", [False, True])
def test_normalized_stores_what_dequantize_and_densify_make_of_constants(sparse: bool) -> None:
    content = convert(mostly_zeros(0.9), "float16").content
    given = with_sparse_constants(content) if sparse else content
    kinds = {operator.name for operator in read(given)[0].operators}
    assert {"DEQUANTIZE"} <= kinds
    assert ("DENSIFY" in kinds) == sparse
    found = normalized(given)
    (graph,) = read(found)
    assert not {"DEQUANTIZE", "DENSIFY"} & {operator.name for operator in graph.operators}
    assert "FLOAT16" not in {tensor.dtype for tensor in graph.tensors}
    x = images(4)
    np.testing.assert_array_equal(load(found).predict(x)[0], load(given).predict(x)[0])
    float32 = convert(mostly_zeros(0.9), "float32").content
    assert len(found) < 1.1 * len(float32)  # the float16 values are gone


def test_drop_unread_tensors_keeps_what_is_named() -> None:
    content = convert(small_cnn(), "float32").content
    model = unpacked(content)
    graph = model.subgraphs[0]
    graph.tensors.insert(0, schema.TensorT())
    for owner in (graph, *graph.operators):
        owner.inputs = [index + 1 if index >= 0 else index for index in owner.inputs]
        owner.outputs = [index + 1 for index in owner.outputs]
    for signature in model.signatureDefs:
        for entry in (*signature.inputs, *signature.outputs):
            entry.tensorIndex += 1
    drop_unread_tensors(model)
    x = np.random.default_rng(0).random((3, *load(content).input_details[0].shape[1:]))
    np.testing.assert_array_equal(
        load(packed(model)).predict(x.astype(np.float32))[0],
        load(content).predict(x.astype(np.float32))[0],
    )
    assert len(read(packed(model))[0].tensors) == len(read(content)[0].tensors)


def overlapping(count: int) -> bytes:
    """A file whose signatures are one table named many times, with inputs that are one, too."""
    builder = flatbuffers.Builder(1024)
    name = builder.CreateString("x" * 50)
    schema.TensorMapStart(builder)
    schema.TensorMapAddName(builder, name)
    entry = schema.TensorMapEnd(builder)
    schema.SignatureDefStartInputsVector(builder, count)
    for _ in range(count):
        builder.PrependUOffsetTRelative(entry)
    inputs = builder.EndVector()
    schema.SignatureDefStart(builder)
    schema.SignatureDefAddInputs(builder, inputs)
    signature = schema.SignatureDefEnd(builder)
    schema.ModelStartSignatureDefsVector(builder, count)
    for _ in range(count):
        builder.PrependUOffsetTRelative(signature)
    signatures = builder.EndVector()
    schema.ModelStart(builder)
    schema.ModelAddSignatureDefs(builder, signatures)
    builder.Finish(schema.ModelEnd(builder), b"TFL3")
    return bytes(builder.Output())


def test_a_file_of_overlapping_tables_is_refused_before_they_are_unpacked() -> None:
    """4,000 times 4,000 entries in 33 KB."""
    with pytest.raises(ModelError, match="longer than the file"):
        unpacked(overlapping(4000))
