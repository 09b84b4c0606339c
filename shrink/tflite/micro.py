"""An artifact run in TFLite Micro itself, the runtime of microcontrollers."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from shrink.base import files
from shrink.base.child import run_child
from shrink.base.errors import StageError
from shrink.tflite.arena import failure_of, roomy_arena_bytes
from shrink.tflite.interpreter import load
from shrink.tflite.names import Named, ordered
from shrink.tflite.session import dequantize, quantize

_TIMEOUT_S = 120.0
Arrays = list[np.ndarray[Any, Any]]


def predict_in_micro(
    content: bytes, inputs: Named | np.ndarray[Any, Any], timeout_s: float = _TIMEOUT_S
) -> Arrays:
    """Return the float32 outputs (n, ...) of an artifact, computed by TFLite Micro's kernels.

    It runs in a child process: what TFLite Micro cannot run may end it.

    Args:
        content: the .tflite file, with a batch of 1.
        inputs: float32 arrays (n, ...) by the name of the artifact's input, or the array of the
            only one; quantized here as LiteRT's are.
        timeout_s: seconds that all examples may take.

    Raises:
        StageError: TFLite Micro cannot run the model, or takes too long.
    """
    runner = load(content)
    details = zip(ordered(inputs, runner.input_names), runner.input_details, strict=True)
    stored = {f"input_{i}": quantize(x, detail) for i, (x, detail) in enumerate(details)}
    with tempfile.TemporaryDirectory(prefix="shrink-micro-") as folder:
        path, examples, outputs = (Path(folder) / n for n in ("m.tflite", "in.npz", "out.npz"))
        files.write_bytes(path, content)
        with files.replacing(examples) as temporary:
            np.savez(temporary, **stored)  # type: ignore[arg-type]
        places = (str(path), str(roomy_arena_bytes(path)), str(examples), str(outputs))
        run = run_child("shrink.tflite.micro_child", *places, timeout_s=timeout_s)
        if run.failure is not None or not outputs.is_file():
            raise StageError(
                f"TFLite Micro cannot run the artifact: {failure_of(run)}",
                hint="its int8 kernels are the most: scheme static_wi8_ai8, and without masks and "
                "loops where it is that already; or target: litert, to run it in LiteRT only",
            )
        with np.load(outputs) as archive:
            # TFLite Micro gives them in the file's order, which need not be the model's.
            found = [archive[f"output_{place}"] for place in runner.output_places]
    return [dequantize(a, d) for a, d in zip(found, runner.output_details, strict=True)]
