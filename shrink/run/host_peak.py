"""What a step's process will hold at its peak, predicted before it starts.

The process with its libraries and a small model, and the larger of two times: while the model is
trained, copies of the weights and what the planner predicts of the device, which on a CPU is the
host's; and while it is converted and measured, more copies.
`python -m tests.benchmarks.bench_host_peaks` prints predictions beside what was measured.
"""

from __future__ import annotations

from shrink.base.host import gpu_device
from shrink.contract.job import HostPeak, Planning
from shrink.run.host_needs import HostNeeds
from shrink.run.host_plan import (
    MODEL_COPIES,
    PROCESS_BYTES,
    TEACHER_COPIES,
    TFLITE_COPIES,
    TRAINED_COPIES,
)


def expected_peak(needs: HostNeeds, planning: Planning) -> HostPeak:
    """Return the peak to expect of a step's process, or why it is not known.

    Args:
        needs: what the step asks.
        planning: of its micro-batch.
    """
    if needs.unknown:
        return HostPeak(unknown=f"not predicted: {needs.unknown}")
    training = 0.0
    if needs.epochs:
        plan = planning.plan
        if plan is None or plan.predicted_bytes is None:
            return HostPeak(unknown=f"not planned: {planning.unplanned or 'no probe fitted'}")
        training = TRAINED_COPIES * needs.weights_bytes + _live_teachers(needs)
        training += 0 if gpu_device() else plan.predicted_bytes
    measuring = MODEL_COPIES * needs.weights_bytes + TFLITE_COPIES * needs.tflite_bytes
    return HostPeak(round(PROCESS_BYTES + max(training, measuring)))


def _live_teachers(needs: HostNeeds) -> float:
    """Return what teachers take beside their weights, which the device's figure counts."""
    return (TEACHER_COPIES - 1) * needs.teachers_bytes
