"""What a step's process will take of the host's memory, known before it starts.

A step that would be ended by the kernel after minutes is refused at once, and on a CPU its training
is planned for what the rest of the process leaves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from shrink.base.errors import ResourceError
from shrink.base.figures import format_value
from shrink.base.host import HostMemory, gpu_device, group_left_bytes
from shrink.contract.job import StepJob
from shrink.contract.training import Training

PROCESS_BYTES = 1_400_000_000
"""A worker of a stage with a small model: 1.3 GB of resident memory, libraries included."""
LIBRARY_BYTES = 400_000_000
"""Of these, pages of library files: a control group counts them as cache, and can drop them."""
TRAINING_BYTES = 100_000_000
"""Graphs and kernels of a training, whatever the model."""
MODEL_COPIES = 11.5
"""Of the weights, while a model is loaded, saved, converted and measured: 11.0 to 11.3 were seen,
for 16 to 55 MB (docs/decisions.md)."""
_SLOTS = {"sgd": 0, "adagrad": 1, "lion": 1}
_OTHER_SLOTS = 2
_MARGIN = 0.1
_ROOMY_BYTES = 4_000_000_000
"""A group with more left is left alone, unless the weights are a good part of it."""
_LARGE_PART = 1 / 20


@dataclass(frozen=True)
class HostPlan:
    """What a step's process may take, and what it will.

    Attributes:
        limit_bytes: of the process's resident memory.
        asked_for: whether the recipe says so; else the control group does.
        weights_bytes: of the models that it reads; 0 of those that a function builds.
        fixed_bytes: whatever the micro-batches of training.
        for_weights_bytes: of these, what follows from the weights.
    """

    limit_bytes: int
    asked_for: bool
    weights_bytes: int
    fixed_bytes: int
    for_weights_bytes: int

    @property
    def left_bytes(self) -> int:
        """What is left for training; below 0 where the step does not fit at all."""
        return self.limit_bytes - self.fixed_bytes


def host_plan(job: StepJob, group_bytes: int | None = None) -> HostPlan | None:
    """Return what a step's process takes, None where nothing limits it.

    Args:
        job: the step's job.
        group_bytes: what is left of the control group; by default what the kernel says.
    """
    asked = job.training.host_memory_limit
    left = group_left_bytes() if group_bytes is None else group_bytes
    limits = [] if left is None else [int(left * (1 - _MARGIN)) + LIBRARY_BYTES]
    if not limits and asked is None:
        return None
    limit = min([*limits, *([] if asked is None else [asked])])
    weights = sum(_bytes_of(source.path) for source in job.inputs.values() if not source.function)
    process, of_weights = PROCESS_BYTES, round(MODEL_COPIES * weights)
    if job.epochs:
        # Gradients are gone when the model is converted, slots need not be.
        process, of_weights = process + TRAINING_BYTES, of_weights + _slots(job.training) * weights
    return HostPlan(limit, asked is not None, weights, process + of_weights, of_weights)


def within_host(job: StepJob, group_bytes: int | None = None) -> StepJob:
    """Return a job that keeps within the host's memory: on a CPU with a memory limit to train in.

    Args:
        job: the step's job.
        group_bytes: see `host_plan`.

    Raises:
        ResourceError: the step needs more, whatever its micro-batches.
    """
    plan = host_plan(job, group_bytes)
    if plan is None:
        return job
    if plan.left_bytes <= 0:
        raise _refused(job, plan)
    training = replace(job.training, host_memory_limit=plan.limit_bytes)
    tight = plan.limit_bytes < _ROOMY_BYTES or plan.weights_bytes > _LARGE_PART * plan.limit_bytes
    # A budget of the peak makes the model smaller, and goes with no limit of training.
    budgeted = (job.config or {}).get("training_peak_bytes") is not None
    if job.epochs and not budgeted and not gpu_device() and (plan.asked_for or tight):
        known = training.memory_limit
        left = plan.left_bytes + _allocated(job, plan)
        training = replace(training, memory_limit=left if known is None else min(known, left))
    return replace(job, training=training)


def _allocated(job: StepJob, plan: HostPlan) -> int:
    """Return what of the fixed bytes a limit of training counts, too: weights and their copies."""
    return (1 + _slots(job.training)) * plan.weights_bytes


def _slots(training: Training) -> int:
    """Return how many numbers the optimizer keeps of each weight."""
    optimizer = training.optimizer
    momentum = 1 if optimizer.name == "sgd" and optimizer.momentum else 0
    return _SLOTS.get(optimizer.name, _OTHER_SLOTS) + momentum


def _refused(job: StepJob, plan: HostPlan) -> ResourceError:
    whose = "training.host_memory_limit" if plan.asked_for else "the control group"
    total = HostMemory().limit_bytes()
    hints = [f"give it {_size((plan.fixed_bytes - LIBRARY_BYTES) / (1 - _MARGIN))}"]
    if job.epochs and _slots(job.training):
        hints.append("training.optimizer.name: sgd")
    if plan.asked_for and plan.fixed_bytes < (1 - _MARGIN) * total:
        hints[0] = f"set training.host_memory_limit: {plan.fixed_bytes // 10**6 + 1}MB"
    process = plan.fixed_bytes - plan.for_weights_bytes
    return ResourceError(
        f"the step needs about {_size(plan.fixed_bytes)} of the host's memory, of which "
        f"{_size(process)} for the process and the rest for {_size(plan.weights_bytes)} of "
        f"weights, and {whose} leaves it {_size(plan.limit_bytes)}",
        subject=job.name,
        hint="; ".join(hints),
    )


def _size(count: float) -> str:
    return format_value(count, "bytes")


def _bytes_of(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder; 0 where there is none."""
    try:
        files = [one for one in path.rglob("*") if one.is_file()] if path.is_dir() else [path]
        return sum(one.stat().st_size for one in files)
    except OSError:
        return 0
