"""Latency of one inference with a batch of 1."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shrink.base import files
from shrink.measure.memory import run_inference

EXAMPLES = 8
"""As many examples as stand for all: their time differs little, unless they are zeros."""


def latency(
    tflite: Path, threads: int = 1, inputs: Sequence[np.ndarray[Any, Any]] = ()
) -> dict[str, Any]:
    """Return the median and the 90th percentile of one invocation, in milliseconds.

    LiteRT runs the artifact in a fresh process: a warm-up, then at least 50 invocations and
    0.3 s, but no more than about 2 s, on one example after the other. Nothing is raised when that
    process fails.

    Args:
        tflite: the artifact.
        threads: of the interpreter.
        inputs: examples, a float32 array (n, ...) for each input in the artifact's order; without
            them random numbers, the same every time.

    Returns:
        `p50_ms`, `p90_ms`, `threads` and `examples`, how many it was timed on, 0 for made-up ones;
        of these `made_up` tells what they are. Where nothing could be measured the first two are
        None and `note` says why.
    """
    with tempfile.TemporaryDirectory(prefix="shrink-latency-") as folder:
        path = _save(inputs, Path(folder) / "inputs.npz") if len(inputs) else ""
        result, reason = run_inference("latency", tflite, threads, path)
    known = {"threads": threads, "examples": len(inputs[0]) if len(inputs) else 0}
    if result is None:
        note = f"latency not measured: {reason}"
        return {"p50_ms": None, "p90_ms": None, **known, "note": note}
    p50, p90 = np.percentile(result["times_ms"], [50, 90])
    found = {"p50_ms": float(p50), "p90_ms": float(p90), **known}
    return found if path else {**found, "made_up": result["inputs"]}


def _save(inputs: Sequence[np.ndarray[Any, Any]], path: Path) -> str:
    stored = {f"input_{i}": np.asarray(array, np.float32) for i, array in enumerate(inputs)}
    with files.replacing(path) as temporary:
        np.savez(temporary, **stored)  # type: ignore[arg-type]
    return str(path)
