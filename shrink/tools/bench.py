"""Latency, throughput and memory of one artifact in LiteRT, on this machine."""

from __future__ import annotations

from typing import Any

from shrink.base.errors import ModelError
from shrink.base.host import machine
from shrink.contract.events import Send
from shrink.contract.job import BenchJob
from shrink.measure.inference import latency
from shrink.measure.memory import inference_peak_bytes

_MADE_UP = {
    "random": "random numbers",
    "zeros": "zeros, which some kernels skip: it cannot run random numbers",
}


def bench(job: BenchJob, send: Send) -> dict[str, Any]:
    """Measure the job's artifact in fresh processes.

    Returns:
        `p50_ms`, `p90_ms`, `threads`, `examples` (0, the inputs are made up), `inferences_per_s`
        (one at a time, at the median), `inference_peak_bytes`, `file_bytes`, `machine`, `notes`.

    Raises:
        ModelError: LiteRT cannot run it.
    """
    path = job.model.path
    timed = latency(path, job.threads)
    median = timed.p50_ms
    if median.value is None or timed.made_up is None:
        raise ModelError(median.reason, subject=path)
    inputs = f"the inputs are made up ({_MADE_UP[timed.made_up]}), as there are no examples"
    peak = inference_peak_bytes(path)
    return {
        "path": str(path),
        "p50_ms": median.value,
        "p90_ms": timed.p90_ms.value,
        "threads": timed.threads,
        "examples": timed.examples,
        "inferences_per_s": 1000 / median.value,
        "inference_peak_bytes": peak.value,
        "file_bytes": path.stat().st_size,
        "machine": machine(),
        "notes": [*([peak.reason] if peak.reason else []), inputs],
    }
