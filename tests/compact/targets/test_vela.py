"""What Vela says of a compiled file, and what becomes of a file that it refuses."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from pathlib import Path

import pytest
from ai_edge_litert import schema_py_generated as schema

from shrink.base.errors import ResourceError, StageError
from shrink.compact.targets import vela
from shrink.compact.targets.names import check_vela
from shrink.compact.targets.vela import compile_with_vela, compiled_of
from shrink.tflite.arena import arena_of
from shrink.tflite.model import read
from tests.compact.toys import Net, chain

_CODE = schema.BuiltinOperator


def with_bilinear() -> bytes:
    """A convolution, a bilinear enlargement by 3, which no Ethos-U55 does, and a convolution."""
    net = Net((1, 8, 8, 4))
    return net.file(net.conv(net.enlarge(net.conv(net.input, 8), 3, bilinear=True), 4))


def test_compile_with_vela_gives_one_operator_for_all_that_the_npu_runs() -> None:
    compiled, told = compile_with_vela(chain(), "ethos-u55-128")
    graph = read(compiled)[0]
    assert [operator.name for operator in graph.operators] == ["ethos-u"]
    assert told.on_cpu == ()
    assert told.operators == 3
    assert told.compiled is not None
    # One convolution of 4 x 24, one of 9 a channel, one of 24 x 4, over 16 x 8 places.
    assert told.compiled.macs == 16 * 8 * (4 * 24 + 9 * 24 + 24 * 4)
    assert told.compiled.system == "Ethos_U55_High_End_Embedded"
    assert told.compiled.sram_bytes is not None
    assert told.compiled.sram_bytes >= 16 * 8 * 4  # its input is in there
    arena = arena_of(compiled)
    assert arena.reason.startswith("not measured: an Ethos-U file runs on its NPU; Vela planned ")
    assert not arena.fails
    given, made = read(chain())[0], graph
    for ends in ("inputs", "outputs"):
        for one, other in zip(getattr(given, ends), getattr(made, ends), strict=True):
            a, b = given.tensors[one], made.tensors[other]
            assert (a.shape, a.dtype, a.scales) == (b.shape, b.dtype, b.scales)


def test_compile_with_vela_names_what_it_leaves_on_the_cpu_with_its_reason() -> None:
    _, told = compile_with_vela(with_bilinear(), "ethos-u55-64")
    (left,) = told.on_cpu
    assert (left.operator, left.kind) == (1, "RESIZE_BILINEAR")
    assert "scale" in left.reason.lower()


def test_compile_with_vela_refuses_in_its_own_words() -> None:
    net = Net((1, 8, 8, 4))
    output = net.tensor((1, 8, 8), schema.TensorType.INT64)
    axis = net.tensor((1,), schema.TensorType.INT32)
    net.emit(_CODE.ARG_MAX, [net.input, axis], output)
    with pytest.raises(StageError, match="Vela does not compile the file for ethos-u55-64"):
        compile_with_vela(net.file(output), "ethos-u55-64")


def test_check_vela_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ResourceError, match="pip install"):
        check_vela("ethos-u55-64")


def test_compiled_of_reads_kib_and_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "5.2.0")
    row = {
        "system_config": "S",
        "memory_mode": "M",
        "core_clock": "500000000.0",
        "sram_memory_used": "50.625",
        "dram_memory_used": "0.0",
        "off_chip_flash_memory_used": "77.390625",
        "cycles_total": "358129",
        "inference_time": "0.000716258",
        "nn_macs": "12505748",
    }
    found = compiled_of(row)
    assert (found.sram_bytes, found.dram_bytes, found.flash_bytes) == (51_840, 0, 79_248)
    assert found.cycles == 358_129
    assert found.inference_ms == pytest.approx(1000 * 358_129 / 500e6)


def test_no_vela_module_is_loaded_here() -> None:
    """The compiler runs in a child: a crash of it must not end this process."""
    assert "ethosu.vela" not in sys.modules
    assert Path(vela.__file__).name == "vela.py"
