"""Memory figures of the report: inference, the framework's allocator, the host process."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from shrink.base.files import write_bytes
from shrink.base.host import host_peak_bytes
from shrink.measure.allocator import AllocatorPeak
from shrink.measure.inference import run_inference
from shrink.measure.one_op import one_op_model

__all__ = ["AllocatorPeak", "host_peak_bytes", "inference_peak_bytes"]

# Two runs of the same process differ by hundreds of kilobytes.
_LEAST_BYTES = 1 << 20


def inference_peak_bytes(tflite: Path, pairs: int = 5) -> tuple[int | None, str]:
    """Return the resident memory that loading and running an artifact adds, in bytes, and a note.

    LiteRT runs it in a fresh process, against the same process with a model of one operator; the
    figure is the median difference of the two high-water marks. It is None, with a note, below
    1 MiB, where noise is as large, and when a process fails; nothing is raised for that.

    Args:
        tflite: the artifact.
        pairs: how many differences are taken.
    """
    differences: list[int] = []
    with tempfile.TemporaryDirectory(prefix="shrink-memory-") as folder:
        baseline = Path(folder) / "one_op.tflite"
        write_bytes(baseline, one_op_model())
        for _ in range(pairs):
            peaks = []
            for path in (tflite, baseline):
                result, reason = run_inference("memory", path)
                if result is None:
                    return None, f"inference memory not measured: {reason}"
                peaks.append(int(result["peak_bytes"]))
            differences.append(peaks[0] - peaks[1])
    median = int(statistics.median(differences))
    if median < _LEAST_BYTES:
        return None, "inference memory is below 1 MiB over that of any model, too little to tell"
    return median, ""
