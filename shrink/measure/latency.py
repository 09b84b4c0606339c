"""Latency of one inference with a batch of 1."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from shrink.measure.inference import run_inference


def latency(tflite: Path, threads: int = 1) -> dict[str, Any]:
    """Return the median and the 90th percentile of one invocation, in milliseconds.

    LiteRT runs the artifact in a fresh process: a warm-up, then at least 50 invocations and
    0.3 s, but no more than about 2 s. Nothing is raised when that process fails.

    Args:
        tflite: the artifact.
        threads: of the interpreter.

    Returns:
        `p50_ms`, `p90_ms` and `threads`; where nothing could be measured the first two are None
        and `note` says why.
    """
    result, reason = run_inference("latency", tflite, threads)
    if result is None:
        note = f"latency not measured: {reason}"
        return {"p50_ms": None, "p90_ms": None, "threads": threads, "note": note}
    p50, p90 = np.percentile(result["times_ms"], [50, 90])
    return {"p50_ms": float(p50), "p90_ms": float(p90), "threads": threads}
