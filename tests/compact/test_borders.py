"""Inputs and outputs made int8: the values that were meant, in every runtime."""

from __future__ import annotations

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from shrink.base.types import Array
from shrink.compact.borders import with_int8_borders
from shrink.compact.compact import compact
from shrink.compact.graph import write_graph
from shrink.compact.read import read_graph
from shrink.tflite.model import packed, unpacked
from tests.compact.runs import drawn_for, outputs_of
from tests.compact.toys import Net, chain, with_float_borders, with_uint8_borders


def values_of(outputs: list[list[bytes]], dtype: type) -> list[list[Array]]:
    return [[np.frombuffer(one, dtype) for one in runtime] for runtime in outputs]


def test_int8_borders_are_uint8_ones_less_128() -> None:
    content = with_uint8_borders()
    found = with_int8_borders(read_graph(content))
    assert [o.name for o in found.graph.operators] == ["CONV_2D", "DEPTHWISE_CONV_2D", "CONV_2D"]
    given = drawn_for(content, 3)
    shifted = [(one.astype(int) - 128).astype(np.int8) for one in given]
    wanted = values_of(outputs_of(content, drawn=given), np.uint8)
    got = values_of(outputs_of(write_graph(found.graph), drawn=shifted), np.int8)
    assert len(got) == 4
    for one, other in zip(wanted, got, strict=True):
        assert [(a.astype(int) - 128).tolist() for a in one] == [b.tolist() for b in other]
    assert len({a.tobytes() for a in got[0]}) == 3  # the control: inputs decide


def test_int8_borders_of_float_ones_have_the_scale_that_is_told() -> None:
    content = with_float_borders()
    found = with_int8_borders(read_graph(content))
    scales = [(one.side, one.scale, one.zero_point) for one in found.borders]
    assert (scales[0][0], scales[0][2]) == ("input", -5)
    assert scales[0][1] == pytest.approx(0.37)
    assert "input t0 is int8 in place of float32: scale 0.37" in str(found.borders[0])
    drawn = [np.random.default_rng(i).integers(-128, 128, (1, 16, 8, 4)) for i in range(3)]
    floats = [(np.float32(0.37) * (one + 5)).astype(np.float32) for one in drawn]
    wanted = values_of(outputs_of(content, drawn=floats), np.float32)
    given = [one.astype(np.int8) for one in drawn]
    got = values_of(outputs_of(write_graph(found.graph), drawn=given), np.int8)
    _, scale, zero_point = scales[1]
    for one, other in zip(wanted, got, strict=True):
        meant = [np.float32(scale) * (b.astype(np.float32) - zero_point) for b in other]
        assert [a.tolist() for a in one] == [b.tolist() for b in meant]


def test_borders_that_rescale_stay_with_the_reason() -> None:
    graph = read_graph(with_uint8_borders(rescaled=1.5))
    found = with_int8_borders(graph)
    assert found.graph.operators == graph.operators
    assert [line.split(": ")[1] for line in found.left] == [
        "no single QUANTIZE to int8 reads it with the same scale",
        "no single QUANTIZE from int8 writes it with the same scale",
    ]


def test_a_float_input_that_something_else_reads_stays() -> None:
    net = Net((1, 8, 8, 4))
    net.graph.tensors[net.input].type = schema.TensorType.FLOAT32
    net.graph.tensors[net.input].quantization = None
    output = net.tensor((1, 8, 8, 4), schema.TensorType.FLOAT32)
    net.emit(schema.BuiltinOperator.RELU, [net.input], output)
    quantized = net.quantize(net.input, schema.TensorType.INT8, 0.5, 0)
    found = with_int8_borders(read_graph(net.file(output, net.conv(quantized, 4))))
    assert found.left[0] == "input t0 stays float32: no single QUANTIZE to int8 reads it"
    assert found.borders == ()


def test_an_int16_input_stays_with_the_reason() -> None:
    net = Net((1, 4))
    net.graph.tensors[net.input].type = schema.TensorType.INT16
    output = net.tensor((1, 4), schema.TensorType.INT16)
    net.emit(schema.BuiltinOperator.RELU, [net.input], output)
    found = with_int8_borders(read_graph(net.file(output)))
    assert found.left[0] == "input t0 stays int16: only uint8 and float32 can become int8"


def test_int8_files_have_no_borders_to_change() -> None:
    graph = read_graph(chain())
    found = with_int8_borders(graph)
    assert found.graph is graph
    assert not found.borders
    assert not found.left


def test_signatures_name_the_new_borders() -> None:
    model = unpacked(with_uint8_borders())
    signature = schema.SignatureDefT()
    signature.signatureKey = b"serving_default"
    ends = model.subgraphs[0].inputs[0], model.subgraphs[0].outputs[0]
    signature.inputs, signature.outputs = [], []
    for maps, index in zip((signature.inputs, signature.outputs), ends, strict=True):
        maps.append(schema.TensorMapT())
        maps[0].name, maps[0].tensorIndex = b"border", int(index)
    model.signatureDefs = [signature]
    written = unpacked(write_graph(with_int8_borders(read_graph(packed(model))).graph))
    found, subgraph = written.signatureDefs[0], written.subgraphs[0]
    assert [m.tensorIndex for m in found.inputs] == list(subgraph.inputs)
    assert [m.tensorIndex for m in found.outputs] == list(subgraph.outputs)
    assert [subgraph.tensors[i].name for i in (*subgraph.inputs, *subgraph.outputs)] == [
        model.subgraphs[0].tensors[i].name for i in ends
    ]


def test_compact_changes_borders_only_on_request() -> None:
    content = with_uint8_borders()
    as_it_is, changed = compact(content), compact(content, int8_io=True)
    types = [_border_types(one.content) for one in (as_it_is, changed)]
    assert types == [[schema.TensorType.UINT8] * 2, [schema.TensorType.INT8] * 2]
    assert not as_it_is.changed  # it is too small for row tiles
    assert changed.arena_after < changed.arena_before
    assert changed.equality is not None
    assert len(changed.equality.runtimes) == 4
    assert [one.given_type for one in changed.details.borders] == ["uint8", "uint8"]
    assert any("is int8 in place of uint8, the same values less 128" in n for n in changed.notes)


def _border_types(content: bytes) -> list[int]:
    subgraph = unpacked(content).subgraphs[0]
    return [subgraph.tensors[i].type for i in (*subgraph.inputs, *subgraph.outputs)]
