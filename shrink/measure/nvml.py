"""GPU memory as the driver counts it: with CUDA's context and libraries, which TensorFlow omits."""

from __future__ import annotations

import importlib
import os
from typing import Any


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
