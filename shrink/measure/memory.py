"""Peaks of memory on devices, as their allocators and NVML count them.

TensorFlow is imported on use.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from typing import Any

_PROBE_BYTES = 8 << 20


class AllocatorPeak:
    """Reads the most memory that any one device's allocator held since `reset`.

    A device's statistics are believed once an allocation of 8 MiB was seen in them. They count
    whole chunks, and on a CPU nothing under 256 KiB; all logical CPU devices share one allocator.

    Args:
        devices: names of logical devices, such as "CPU:0".

    Attributes:
        note: why there is no figure; empty where there is one.
    """

    def __init__(self, devices: Sequence[str] = ("CPU:0",)) -> None:
        self._devices = tuple(devices)
        self._earlier = self._of_window = 0
        silent = [device for device in self._devices if not _counts(device)]
        self.note = f"the allocator of {', '.join(silent)} keeps no statistics" if silent else ""

    def reset(self) -> None:
        """Start anew: the peak becomes what is held now."""
        self._earlier = self._of_window = 0
        self._reset_devices()

    def window(self) -> int | None:
        """Return the peak since the last call, and begin a new window; `peak` spans them all."""
        highest, earlier = self.step(), self._of_window
        self._of_window = 0
        return None if highest is None else max(highest, earlier)

    def step(self) -> int | None:
        """Return the peak since the last call, or window; `window` and `peak` span all steps."""
        highest = self._most("peak")
        self._earlier = max(self._earlier, highest or 0)
        self._of_window = max(self._of_window, highest or 0)
        self._reset_devices()
        return highest

    def _reset_devices(self) -> None:
        import tensorflow as tf

        if not self.note:
            for device in self._devices:
                tf.config.experimental.reset_memory_stats(device)

    def held(self) -> int | None:
        """Return what the fullest device's allocator holds now, in bytes; None as with `peak`."""
        return self._most("current")

    def peak(self) -> int | None:
        """Return the largest device's peak since `reset`, in bytes; None where `note` says why."""
        highest = self._most("peak")
        return None if highest is None else max(highest, self._earlier)

    def _most(self, figure: str) -> int | None:
        import tensorflow as tf

        if self.note:
            return None
        info = tf.config.experimental.get_memory_info
        return max(int(info(device)[figure]) for device in self._devices)


def _counts(device: str) -> bool:
    import tensorflow as tf

    info = tf.config.experimental.get_memory_info
    try:
        before = info(device)["current"]
        with tf.device(device):
            probe = tf.zeros([_PROBE_BYTES], tf.uint8)
        held = info(device)["current"] - before
        tf.config.experimental.reset_memory_stats(device)
        reset_to = info(device)["peak"]
        del probe
    except (ValueError, tf.errors.OpError):
        return False
    return bool(held >= _PROBE_BYTES and reset_to >= before + _PROBE_BYTES)


def nvml_note(nvml: Any = None, pid: int | None = None) -> str | None:
    """Return a sentence on what NVML says that a process holds of each GPU.

    TensorFlow gives no memory back before its process ends: what it holds at the end of training
    is the most that it ever held.

    Args:
        nvml: the module `pynvml` of nvidia-ml-py; by default the installed one.
        pid: the process, by default this one. In a container NVML may know it by another number.

    Returns:
        None without nvidia-ml-py, without a driver, or where no GPU knows the process.
    """
    try:
        nvml = nvml or importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception:
        # Either the module or the driver is not there; NVML's errors exist only with the module.
        return None
    try:
        held = _held(nvml, os.getpid() if pid is None else pid)
    except nvml.NVMLError as error:
        return f"GPU memory as NVML counts it: unknown ({error})"
    finally:
        nvml.nvmlShutdown()
    gpus = ", ".join(f"{held[index] / 1e6:.0f} MB of GPU {index}" for index in sorted(held))
    return f"GPU memory as NVML counts it, CUDA's own included: {gpus}" if gpus else None


def _held(nvml: Any, pid: int) -> dict[int, int]:
    """Return the bytes that a process holds, by index of the GPU."""
    held = {}
    for index in range(nvml.nvmlDeviceGetCount()):
        device = nvml.nvmlDeviceGetHandleByIndex(index)
        for process in nvml.nvmlDeviceGetComputeRunningProcesses(device):
            # None where the driver does not tell (under WDDM).
            if process.pid == pid and process.usedGpuMemory is not None:
                held[index] = int(process.usedGpuMemory)
    return held
