from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import StageError
from shrink.tflite import convert
from shrink.tflite.arena import arena_of, predict_in_micro
from shrink.tflite.interpreter import load
from shrink.tflite.memory import planned_bytes
from shrink.tflite.model import read
from shrink.tflite.runtime import smallest_arena
from tests.compact.runs import allocates
from tests.stages.quantize.toys import float_cnn, images
from tests.tflite.toys import samples, small_cnn, to_float32

L = keras.layers


@pytest.fixture(scope="module")
def int8(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("arena") / "small.tflite"
    model = small_cnn()
    path.write_bytes(
        convert.convert(model, "static_int8", samples(model, 5), "int8", "int8").content
    )
    return path


def test_arena_bytes_is_the_smallest_arena_in_which_tflite_micro_allocates(int8: Path) -> None:
    figure = arena_of(int8)
    assert figure.runs
    assert figure.reason == ""
    assert figure.value is not None
    assert figure.value % 16 == 0
    assert allocates(int8.read_bytes(), figure.value)
    assert not allocates(int8.read_bytes(), figure.value - 16)
    # The convolution's input and output: 64 and 256 bytes. Structures come on top of the plan.
    assert figure.estimate == planned_bytes(read(int8.read_bytes())[0]) == 64 + 256
    assert figure.estimate < figure.value


def test_arena_bytes_is_none_when_tflite_micro_lacks_an_operator(tmp_path: Path) -> None:
    inputs = L.Input((4, 4, 2, 2))
    path = tmp_path / "volume.tflite"
    path.write_bytes(to_float32(keras.Model(inputs, L.Conv3D(3, 2)(inputs))))
    figure = arena_of(path)
    assert figure.value is None
    assert not figure.runs
    assert "Didn't find op for builtin opcode 'CONV_3D'" in figure.reason
    assert figure.estimate == 4 * (4 * 4 * 2 * 2 + 3 * 3 * 1 * 3) + 4  # a multiple of 16


def test_arena_bytes_gives_the_kernels_reason_when_it_does_not_allocate(tmp_path: Path) -> None:
    inputs = L.Input((5,))
    x = L.LSTM(2)(L.Embedding(7, 3, mask_zero=True)(inputs))
    path = tmp_path / "masked.tflite"
    path.write_bytes(to_float32(keras.Model(inputs, x)))
    figure = arena_of(path)
    assert figure.value is None
    assert "Type 'BOOL' is not supported by gather." in figure.reason
    assert "RecordingMicroAllocator" not in figure.reason


def test_arena_bytes_is_none_when_a_kernel_refuses_after_the_allocation(tmp_path: Path) -> None:
    inputs = L.Input((4,))
    # Its kernel looks at the type when it runs only.
    x = L.Lambda(lambda t: tf.unstack(t > 0.5, axis=1)[0])(inputs)
    path = tmp_path / "unpack.tflite"
    path.write_bytes(to_float32(keras.Model(inputs, L.Lambda(tf.logical_not)(x))))
    figure = arena_of(path)
    assert figure.value is None  # else a gate passes for a model that does not run
    assert figure.estimate_32.value is None
    assert figure.fails
    assert "Type 'BOOL' is not supported by unpack" in figure.reason


def test_arena_bytes_is_none_when_time_is_up(int8: Path) -> None:
    figure = arena_of(int8, timeout_s=0.001)
    assert (figure.value, figure.estimate) == (None, 64 + 256)
    assert "longer than" in figure.reason


def test_arena_bytes_is_none_when_the_file_is_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "broken.tflite"
    path.write_bytes(b"\x1c\0\0\0TFL3 and nothing more")
    figure = arena_of(path)
    assert (figure.value, figure.estimate) == (None, None)
    assert figure.reason


@pytest.mark.parametrize("needed", [1, 16, 17, 5_808, 99_999])
@pytest.mark.parametrize("near", [0, 1, 16, 5_000, 5_808, 99_990, 200_000])
def test_smallest_arena_is_the_next_multiple_of_16(needed: int, near: int) -> None:
    tried: list[int] = []

    def fits(size: int) -> bool:
        tried.append(size)
        return size >= needed

    found = smallest_arena(fits, 100_000, near)
    assert found == -(-needed // 16) * 16
    assert {found - 16} - {0} <= {*tried}  # the one below was tried, and did not fit
    assert len(tried) < (4 if near == found > 16 else 30)


def test_survives_takes_a_death_for_an_arena_that_is_too_small() -> None:
    # In a process of its own: a fork of one that has started TensorFlow may never return.
    code = (
        "import os, signal\n"
        "from shrink.tflite.runtime import survives\n"
        "dies = lambda size: os.kill(os.getpid(), signal.SIGSEGV)\n"
        "print(survives(dies, 16), survives(lambda size: 1 / 0, 16), survives(abs, 16))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False", "True"]


def test_survives_leaves_no_fork_behind_where_the_child_is_killed() -> None:
    code = (
        "import functools, time; from shrink.tflite.runtime import survives\n"
        "say = functools.partial(print, flush=True)\n"
        "survives(lambda size: (say('hangs'), time.sleep(2), say('survived')), 16)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "hangs\n"
        child.kill()
        assert child.stdout.read() == ""  # until the fork, too, has let go of the pipe


@pytest.mark.slow
def test_arena_bytes_waits_no_longer_than_seconds_for_a_loop_that_never_ends(
    tmp_path: Path,
) -> None:
    inputs = keras.layers.Input((10, 4))
    sequence = keras.layers.GRU(8, return_sequences=True)(inputs)
    path = tmp_path / "gru.tflite"
    outputs = keras.layers.Dense(2)(keras.layers.Flatten()(sequence))
    model = keras.Model(inputs, outputs)
    path.write_bytes(convert.convert(model, "float32").content)
    found = arena_of(path)
    assert found.value is not None
    assert found.reason == "TFLite Micro allocates the model, but took longer than 3 s to run it"


def test_predict_in_micro_gives_what_litert_gives() -> None:
    x = images(3)
    (found,) = predict_in_micro(float_cnn(), x)
    np.testing.assert_allclose(found, load(float_cnn()).predict(x)[0], rtol=0, atol=1e-5)
    assert np.ptp(found[:, 0]) > 1e-3  # else any example would do for any other


def test_predict_in_micro_says_when_it_takes_too_long() -> None:
    with pytest.raises(StageError, match=r"took longer than 0\.01 s"):
        predict_in_micro(float_cnn(), images(1), timeout_s=0.01)
