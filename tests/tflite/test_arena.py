from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import tf_keras as keras

from shrink.tflite import convert
from shrink.tflite.arena import arena_bytes
from shrink.tflite.planner import planned_bytes
from shrink.tflite.structure import read
from tests.tflite.toys import samples, small_cnn

L = keras.layers


@pytest.fixture(scope="module")
def int8(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("arena") / "small.tflite"
    model = small_cnn()
    path.write_bytes(convert.to_static_int8(model, samples(model, 5), "int8", "int8"))
    return path


def test_arena_bytes_comes_from_tflite_micro_and_holds_the_plan(int8: Path) -> None:
    figure = arena_bytes(int8)
    planned = planned_bytes(read(int8.read_bytes())[0])
    assert figure.method == "tflm"
    assert figure.value is not None
    # The convolution's input and output: 64 and 256 bytes. Structures come on top of the plan.
    assert planned == 64 + 256
    assert planned < figure.value < planned + 8192


def test_arena_bytes_is_planned_when_tflite_micro_lacks_an_operator(tmp_path: Path) -> None:
    inputs = L.Input((4, 4, 2, 2))
    path = tmp_path / "volume.tflite"
    path.write_bytes(convert.to_float32(keras.Model(inputs, L.Conv3D(3, 2)(inputs))))
    figure = arena_bytes(path)
    assert figure.method == "planned"
    assert "CONV_3D" in figure.note
    assert figure.value == 4 * (4 * 4 * 2 * 2 + 3 * 3 * 1 * 3) + 4  # a multiple of 16


def test_arena_bytes_is_planned_when_time_is_up(int8: Path) -> None:
    figure = arena_bytes(int8, timeout_s=0.001)
    assert (figure.method, figure.value) == ("planned", 64 + 256)
    assert "longer than" in figure.note


def test_arena_bytes_is_none_when_the_file_is_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "broken.tflite"
    path.write_bytes(b"\x1c\0\0\0TFL3 and nothing more")
    figure = arena_bytes(path)
    assert figure.value is None
    assert figure.note


def test_arena_child_imports_no_tensorflow() -> None:
    code = (
        "import sys, shrink.tflite.arena_child, shrink.tflite.arena, tflite_micro;"
        "tflite_micro.runtime.Interpreter;"
        "sys.exit('tensorflow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
