"""What firmware needs of a file, for its C array."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import tensorflow as tf

from shrink.compact.graph import write_graph
from shrink.compact.plan import plan
from shrink.contract.job import FirmwareFactsJob
from shrink.tflite.cc_array import cc_array
from shrink.tools.artifact import firmware_facts
from tests.compact.runs import allocates
from tests.compact.test_plan import banded_chain
from tests.jobs import quiet, source


def test_firmware_facts_of_a_file_in_bands_name_new_operators_and_its_own_arena(
    tmp_path: Path,
) -> None:
    graph = banded_chain(4, kept=False)[0]
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
