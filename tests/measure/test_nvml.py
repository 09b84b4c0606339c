"""What is said of a GPU's memory, with and without NVML."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from shrink.measure.memory import nvml_note


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


def test_nvml_note_is_none_when_no_gpu_knows_the_process() -> None:
    assert nvml_note(TwoGpus(), pid=8) is None
    assert nvml_note(TwoGpus(used=None), pid=7) is None


def test_nvml_note_says_so_when_nvml_does_not_answer() -> None:
    gpus = TwoGpus(answers=False)
    assert "unknown (Not Supported)" in str(nvml_note(gpus, pid=7))
    assert not gpus.open
