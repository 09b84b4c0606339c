"""Peaks of memory: of the process, of the allocator, of inference, of a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf
import tf_keras as keras

from shrink.measure import inference
from shrink.measure.inference import one_op_model
from shrink.measure.memory import AllocatorPeak, nvml_note
from tests.tflite.toys import to_float32

L = keras.layers
MEGABYTE = 1_000_000


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_inference_memory_holds_weights_and_activations(tmp_path: Path) -> None:
    inputs = L.Input((1000,))
    path = tmp_path / "wide.tflite"
    path.write_bytes(to_float32(keras.Model(inputs, L.Dense(4000)(inputs))))
    found = inference.measure_inference(path).peak_bytes
    weights = 4 * 1000 * 4000
    assert found.reason == ""
    assert found.value is not None
    # At least the weights as mapped; at most once more, repacked for the processor, and some code.
    assert weights < found.value < 2 * weights + 8 * MEGABYTE


def test_latency_and_memory_are_none_when_the_process_fails(tmp_path: Path) -> None:
    path = tmp_path / "broken.tflite"
    path.write_bytes(b"no model at all")
    found = inference.measure_inference(path)
    assert found.peak_bytes.value is found.p50_ms.value is found.p90_ms.value is None
    assert "ended with code 1" in found.peak_bytes.reason
    assert "ended with code 1" in found.p50_ms.reason


def test_inference_memory_is_none_when_the_process_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shrink_dies.py").write_text("import os\nos.kill(os.getpid(), 11)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(inference, "MODULE", "shrink_dies")
    path = tmp_path / "one.tflite"
    path.write_bytes(one_op_model())
    found = inference.measure_inference(path)
    assert found.peak_bytes.value is found.p50_ms.value is None
    assert "SIGSEGV" in found.peak_bytes.reason


def test_host_peak_bytes_sees_memory_that_was_given_back() -> None:
    code = (
        "from shrink.base.host import host_peak_bytes as peak\n"
        "before = peak()\n"
        "block = b'x' * 50_000_000; del block\n"
        "print(peak() - before)"
    )
    assert 49 * MEGABYTE < int(python(code).stdout) < 55 * MEGABYTE


def test_allocator_peak_sees_a_tensor_that_was_given_back() -> None:
    reader = AllocatorPeak(["CPU:0"])
    held = tf.zeros([64 * MEGABYTE], tf.uint8)
    reader.reset()
    before = reader.peak()
    more = tf.zeros([64 * MEGABYTE], tf.uint8)
    del more
    after = reader.peak()
    if reader.note:
        pytest.skip(reader.note)
    assert before is not None
    assert after is not None
    assert before >= int(tf.size(held)) == 64 * MEGABYTE
    # Chunks are counted whole: up to twice what was asked for.
    assert 64 * MEGABYTE <= after - before <= 129 * MEGABYTE


class Scripted(AllocatorPeak):
    """An allocator that holds 1 and has held what it is told since its statistics began anew."""

    def __init__(self) -> None:
        super().__init__([])
        self.since = 1

    def _most(self, figure: str) -> int | None:
        return self.since if figure == "peak" else 1

    def _reset_devices(self) -> None:
        self.since = 1


def test_steps_are_within_windows_and_windows_within_the_peak() -> None:
    reader = Scripted()
    reader.reset()
    reader.since = 5
    assert reader.step() == 5
    reader.since = 3
    assert reader.step() == 3
    assert reader.step() == 1
    assert reader.window() == 5
    assert reader.window() == 1
    reader.since = 4
    assert (reader.window(), reader.peak()) == (4, 5)
    reader.reset()
    assert reader.peak() == 1


def test_allocator_peak_is_none_when_a_device_keeps_no_statistics() -> None:
    reader = AllocatorPeak(["CPU:0", "GPU:7"])
    reader.reset()
    assert reader.peak() is None
    assert "GPU:7 keeps no statistics" in reader.note


@pytest.mark.slow
def test_allocator_peak_is_none_when_onednn_is_off() -> None:
    code = (
        "from shrink.measure.memory import AllocatorPeak\n"
        "reader = AllocatorPeak(); reader.reset(); print(reader.peak(), reader.note)"
    )
    done = python(code, TF_ENABLE_ONEDNN_OPTS="0")
    assert done.stdout == "None the allocator of CPU:0 keeps no statistics\n"


class NvmlError(Exception):
    """As `pynvml.NVMLError`."""


class TwoGpus:
    """The part of pynvml that is used, on a machine with two GPUs and one process on the second."""

    NVMLError = NvmlError

    def __init__(self, used: int | None = 512_000_000, *, answers: bool = True) -> None:
        self._used, self._answers = used, answers
        self.open = False

    def nvmlInit(self) -> None:
        self.open = True

    def nvmlShutdown(self) -> None:
        self.open = False

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetComputeRunningProcesses(self, device: int) -> list[Any]:
        if not self._answers:
            raise NvmlError("Not Supported")
        return [SimpleNamespace(pid=7, usedGpuMemory=self._used)] if device == 1 else []


def test_nvml_note_names_the_gpus_that_the_process_is_on() -> None:
    gpus = TwoGpus()
    note = nvml_note(gpus, pid=7)
    assert note is not None
    assert note.endswith("512 MB of GPU 1")
    assert not gpus.open
