"""A .tflite file as a graph, and back."""

from __future__ import annotations

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from shrink.base.errors import ModelError
from shrink.compact.graph import write_graph
from shrink.compact.plan import plan
from shrink.compact.read import read_graph
from shrink.tflite.model import PLAN_ENTRY, packed, read_metadata, unpacked
from tests.compact.runs import outputs_of
from tests.compact.toys import Net, as_of_2020, chain, random_net


@pytest.mark.parametrize("seed", range(3))
def test_a_graph_is_written_as_it_was_read(seed: int) -> None:
    content = random_net(seed)
    again = write_graph(read_graph(content))
    before, after = unpacked(content).subgraphs[0], unpacked(again).subgraphs[0]
    assert [t.name for t in before.tensors] == [t.name for t in after.tensors]
    assert [list(o.inputs) for o in before.operators] == [list(o.inputs) for o in after.operators]
    assert outputs_of(again) == outputs_of(content)
    assert write_graph(read_graph(again)) == again


def test_biases_with_the_dimension_of_their_kernels_are_written_so_that_litert_runs_them() -> None:
    old = as_of_2020(chain())
    with pytest.raises(ValueError, match="quantized_dimension"):
        outputs_of(old)
    assert outputs_of(write_graph(read_graph(old))) == outputs_of(chain())


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("metadata", "name a missing buffer"),
        ("CONV_2D", "options of operator 0 .CONV_2D"),
        ("FULLY_CONNECTED", "options of operator 0 .FULLY_CONNECTED"),
    ],
)
def test_tables_that_do_not_belong_to_what_names_them_are_refused(wrong: str, words: str) -> None:
    net = Net((1, 8))
    dense = net.file(net.dense(net.input, np.ones((4, 8), np.int8)))
    model = unpacked(dense if wrong == "FULLY_CONNECTED" else chain())
    if wrong == "metadata":
        model.metadata = [schema.MetadataT()]
        model.metadata[0].name, model.metadata[0].buffer = b"notes", 99
    else:
        operator = model.subgraphs[0].operators[0]
        operator.builtinOptions = schema.CallOptionsT()
        operator.builtinOptionsType = schema.BuiltinOptions.CallOptions
    with pytest.raises(ModelError, match=words):
        read_graph(packed(model))


@pytest.mark.parametrize(("index", "kept"), [(0, True), (3, True), (999, False)])
def test_a_signature_is_left_out_that_names_a_tensor_which_is_gone(index: int, kept: bool) -> None:
    """Tools that put a QUANTIZE before a file's input leave its signature at the inner tensor."""
    model = unpacked(chain())
    model.signatureDefs = [schema.SignatureDefT()]
    model.signatureDefs[0].signatureKey = b"serving_default"
    model.signatureDefs[0].inputs = [schema.TensorMapT()]
    model.signatureDefs[0].inputs[0].tensorIndex = index
    model.signatureDefs[0].inputs[0].name = b"x"
    again = unpacked(write_graph(read_graph(packed(model))))
    assert len(again.signatureDefs or []) == kept


def test_names_may_be_no_utf_8() -> None:
    model = unpacked(chain())
    model.metadata = [schema.MetadataT()]
    model.metadata[0].name, model.metadata[0].buffer = b"caf\xe9", 0
    graph = read_graph(packed(model))
    content = write_graph(graph, plan(graph, 5).offsets)
    assert {entry.name for entry in unpacked(content).metadata} == {b"caf\xe9", PLAN_ENTRY.encode()}


def test_what_nothing_reads_is_left_out() -> None:
    model = unpacked(chain())
    graph = model.subgraphs[0]
    graph.tensors.append(graph.tensors[2])
    model.buffers.append(model.buffers[1])
    assert write_graph(read_graph(packed(model))) == write_graph(read_graph(chain()))


def test_a_plan_names_every_tensor_and_is_renewed_by_the_next() -> None:
    graph = read_graph(chain())
    content = write_graph(graph, plan(graph, 10).offsets)
    words = np.frombuffer(read_metadata(content, PLAN_ENTRY)[0], "<i4")
    assert words[0] == 1
    assert words[2] == len(words) - 3 == len(unpacked(content).subgraphs[0].tensors)
    assert sorted(words[3:])[-4:] != [-1] * 4
    assert not read_metadata(write_graph(read_graph(content)), PLAN_ENTRY)


def test_several_subgraphs_are_refused() -> None:
    model = unpacked(chain())
    model.subgraphs = model.subgraphs * 2
    with pytest.raises(ModelError, match="2 subgraphs"):
        read_graph(packed(model))


def test_variables_are_refused() -> None:
    model = unpacked(chain())
    model.subgraphs[0].tensors[0].isVariable = True
    with pytest.raises(ModelError, match="t0 is a variable"):
        read_graph(packed(model))


def test_unknown_dimensions_are_refused() -> None:
    model = unpacked(chain())
    model.subgraphs[0].tensors[0].shapeSignature = np.array([1, -1, 8, 4], np.int32)
    with pytest.raises(ModelError, match="dimensions that are not known"):
        read_graph(packed(model))


def test_operators_out_of_order_are_refused() -> None:
    model = unpacked(chain())
    model.subgraphs[0].operators = model.subgraphs[0].operators[::-1]
    with pytest.raises(ModelError, match="reads a tensor that nothing has written"):
        read_graph(packed(model))
