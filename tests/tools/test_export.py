"""What firmware needs of a file, for its C array."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import tensorflow as tf
import tf_keras as keras
from ai_edge_litert import schema_py_generated as schema

from shrink.base.errors import StageError
from shrink.compact.arena import allocated_bytes
from shrink.compact.graph import write_graph
from shrink.compact.plan import plan
from shrink.contract.job import FirmwareFactsJob
from shrink.tflite.cc_array import cc_array
from shrink.tflite.model import packed
from shrink.tools.artifact import firmware_facts
from tests.compact.runs import allocates
from tests.compact.test_plan import tiled_chain
from tests.jobs import quiet, source
from tests.tflite.toys import to_float32


def test_firmware_facts_of_a_file_in_bands_name_new_operators_and_its_own_arena(
    tmp_path: Path,
) -> None:
    graph = tiled_chain(4, kept=False)[0]
    content = write_graph(graph, plan(graph, 20).offsets)
    path = tmp_path / "banded.tflite"
    path.write_bytes(content)
    facts = firmware_facts(FirmwareFactsJob(name="banded", model=source(path)), quiet)
    kinds = ["AddConcatenation", "AddConv2D", "AddDepthwiseConv2D", "AddSlice"]
    assert facts.operators == tuple(kinds)
    arena = facts.arena_bytes
    assert isinstance(arena, int)
    assert allocates(content, arena)
    assert not allocates(content, arena - 64)
    assert isinstance(facts.arena_32_bytes, int)


def test_firmware_facts_count_the_variables_that_keep_state(tmp_path: Path) -> None:
    class Ring(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last, self.sums = (tf.Variable(tf.zeros((1, 4))) for _ in range(2))

        @tf.function(input_signature=[tf.TensorSpec((1, 4), tf.float32)])
        def __call__(self, x: tf.Tensor) -> tf.Tensor:
            joined = self.sums + self.last + x
            self.last.assign(x)
            self.sums.assign(joined)
            return joined

    ring, path = Ring(), tmp_path / "ring.tflite"
    functions = [ring.__call__.get_concrete_function()]
    converter = tf.lite.TFLiteConverter.from_concrete_functions(functions, ring)
    converter.experimental_enable_resource_variables = True
    path.write_bytes(converter.convert())
    facts = firmware_facts(FirmwareFactsJob(name="ring", model=source(path)), quiet)
    assert facts.resource_variables == 2
    header, _ = cc_array(path.read_bytes(), "ring", facts, "ring.h")
    assert "#define RING_RESOURCE_VARIABLES 2" in header
    assert "MicroResourceVariables::Create" in header
    without = dataclasses.replace(facts, resource_variables=0)
    assert "ResourceVariables" not in cc_array(b"", "ring", without, "ring.h")[0]
    assert "Reset()" not in header
    inputs = keras.layers.Input((5, 3))
    path.write_bytes(to_float32(keras.Model(inputs, keras.layers.LSTM(4)(inputs))))
    lstm = firmware_facts(FirmwareFactsJob(name="lstm", model=source(path)), quiet)
    assert "call interpreter.Reset() before each" in cc_array(b"", "lstm", lstm, "lstm.h")[0]


def test_firmware_facts_need_no_kernel_and_keep_the_order_of_the_file(tmp_path: Path) -> None:
    class Two(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec((1, 4), tf.float32, name="x")])
        def __call__(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
            return {"output_0": tf.nn.relu(x), "output_1": tf.reduce_sum(x, axis=1)}

    two, path = Two(), tmp_path / "two.tflite"
    functions = [two.__call__.get_concrete_function()]
    converter = tf.lite.TFLiteConverter.from_concrete_functions(functions, two)
    model = schema.ModelT.InitFromPackedBuf(converter.convert(), 0)
    (graph,) = model.subgraphs
    graph.outputs = graph.outputs[::-1]  # TFLite Micro's output(0) is the file's first
    relu = next(c for c in model.operatorCodes if c.builtinCode == schema.BuiltinOperator.RELU)
    relu.builtinCode, relu.deprecatedBuiltinCode = schema.BuiltinOperator.CUSTOM, 32
    relu.customCode = b"Foreign"
    path.write_bytes(packed(model))
    facts = firmware_facts(FirmwareFactsJob(name="two", model=source(path)), quiet)
    shapes = {tuple(graph.tensors[i].shape) for i in graph.outputs}
    assert shapes == {(1,), (1, 4)}
    assert [one.shape for one in facts.outputs] == [
        tuple(graph.tensors[i].shape) for i in graph.outputs
    ]
    assert [(one.shape, one.dtype) for one in facts.inputs] == [((1, 4), "float32")]
    assert 'AddCustom /* "Foreign", its TFLMRegistration */' in facts.operators


def test_firmware_facts_of_a_file_that_tflite_micro_refuses_list_no_operators(
    tmp_path: Path,
) -> None:
    class Gelu(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec((1, 4), tf.float32)])
        def __call__(self, x: tf.Tensor) -> tf.Tensor:
            return tf.nn.gelu(x)

    gelu, path = Gelu(), tmp_path / "gelu.tflite"
    functions = [gelu.__call__.get_concrete_function()]
    path.write_bytes(tf.lite.TFLiteConverter.from_concrete_functions(functions, gelu).convert())
    facts = firmware_facts(FirmwareFactsJob(name="gelu", model=source(path)), quiet)
    assert "builtin opcode 'GELU'" in str(facts.tflm_fails)
    header, _ = cc_array(path.read_bytes(), "gelu", facts, "gelu.h")
    assert "AddGelu" not in header
    assert "// TFLite Micro does not run this model" in header
    with pytest.raises(StageError) as caught:
        allocated_bytes(path.read_bytes())
    assert caught.value.hint == "replace the layer of GELU (by relu or swish, say)"
