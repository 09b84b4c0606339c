"""One figure of one artifact, taken in a fresh process that runs it in LiteRT."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from shrink.base.child import run_child
from shrink.measure.inference_child import PREFIX

_TIMEOUT_S = 120.0


def run_inference(
    figure: Literal["memory", "latency"], tflite: Path, threads: int = 1, examples: str = ""
) -> tuple[dict[str, Any] | None, str]:
    """Return what `shrink.measure.inference_child` measured, or None and why there is nothing.

    Args:
        figure: "memory" or "latency".
        tflite: the artifact.
        threads: of the interpreter.
        examples: an .npz file with the inputs to time it with.
    """
    arguments = (figure, str(tflite.resolve()), str(threads), examples)
    run = run_child("shrink.measure.inference_child", *arguments, timeout_s=_TIMEOUT_S)
    if run.failure is not None:
        return None, f"LiteRT, running the artifact, {run.failure}"
    line = next((x for x in reversed(run.output.splitlines()) if x.startswith(PREFIX)), None)
    if line is None:
        return None, "LiteRT, running the artifact, ended without a figure"
    return json.loads(line.removeprefix(PREFIX)), ""
