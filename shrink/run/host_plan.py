"""What a step's process will take of the host's memory, known before it starts.

A step that would be ended by the kernel after minutes is refused at once, and on a CPU its training
is planned for what the rest of the process leaves.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from shrink.base.errors import ResourceError
from shrink.base.figures import format_value
from shrink.base.host import HOST_SHARED_BY, HostMemory, gpu_device, group_left_bytes
from shrink.contract.job import StepJob
from shrink.contract.training import Training
from shrink.run.host_needs import HostNeeds, needs_of_job

PROCESS_BYTES = 1_400_000_000
"""A worker of a stage with a small model: 1.3 GB of resident memory, libraries included."""
LIBRARY_BYTES = 400_000_000
"""Of these, pages of library files: a control group counts them as cache, and can drop them."""
TRAINING_BYTES = 100_000_000
"""Graphs and kernels of a training, whatever the model."""
MODEL_COPIES = 11.5
"""Of the weights, while a model is loaded, saved, converted and measured: 11.0 to 11.3 were seen,
for 16 to 55 MB (docs/decisions.md)."""
TRAINED_COPIES = 2.5
"""Of the weights, beside what the device's allocator counts while they are trained."""
UPDATE_COPIES, SLOT_COPIES, MASK_COPIES = 6.0, 2.5, 2.0
"""What the allocator counts of weights that are trained, whatever the micro-batch: with each of the
optimizer's slots, as a step may be made again, and with masks. A plan leaves a twentieth free. 5.4
were seen with SGD and up to 12.2 with Adam and masks, for 8 to 31 MB."""
TEACHER_COPIES = 5.0
"""Of a live teacher's weights, which nothing saves or converts: 4.7 were measured, for 61 MB."""
TFLITE_COPIES = 8.5
"""Of a .tflite file that a step starts from: 8.4 were measured, for 61 MB."""
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
        read_bytes: of the models that it reads; 0 of those that a function builds.
        fixed_bytes: whatever the micro-batches of training.
        for_weights_bytes: of these, what follows from the weights.
        training_bytes: what the device's allocator may count while it trains: what the rest of
            the process leaves, and what an update of the weights takes at least, for that is given
            back before the model is converted.
    """

    limit_bytes: int
    asked_for: bool
    read_bytes: int
    fixed_bytes: int
    for_weights_bytes: int
    training_bytes: int

    @property
    def left_bytes(self) -> int:
        """What is left for training; below 0 where the step does not fit at all."""
        return self.limit_bytes - self.fixed_bytes


def host_plan(needs: HostNeeds, group_bytes: int | None = None) -> HostPlan | None:
    """Return what a step's process takes, None where nothing limits it.

    Args:
        needs: what the step asks.
        group_bytes: what is left of the control group; by default `left_of_group`.
    """
    training = needs.training
    asked = training.host_memory_limit
    left = left_of_group() if group_bytes is None else group_bytes
    limits = [] if left is None else [int(left * (1 - _MARGIN)) + LIBRARY_BYTES]
    if not limits and asked is None:
        return None
    limit = min([*limits, *([] if asked is None else [asked])])
    weights = needs.weights_bytes
    process = PROCESS_BYTES
    others = TEACHER_COPIES * needs.teachers_bytes + TFLITE_COPIES * needs.tflite_bytes
    of_weights = MODEL_COPIES * weights
    if needs.epochs:
        # Gradients are gone when the model is converted, slots need not be.
        process, of_weights = process + TRAINING_BYTES, of_weights + slots(training) * weights
    beside = round(process + of_weights + others - _allocated(needs))
    least = _least_training_bytes(needs)
    of_weights = round(max(of_weights, TRAINED_COPIES * weights + least) + others)
    read = weights + needs.teachers_bytes + needs.tflite_bytes
    return HostPlan(
        limit_bytes=limit,
        asked_for=asked is not None,
        read_bytes=read,
        fixed_bytes=process + of_weights,
        for_weights_bytes=of_weights,
        training_bytes=max(least, limit - beside),
    )


def within_host(job: StepJob, group_bytes: int | None = None) -> StepJob:
    """Return a job that keeps within the host's memory: on a CPU with a memory limit to train in.

    Args:
        job: the step's job.
        group_bytes: see `host_plan`.

    Raises:
        ResourceError: the step needs more, whatever its micro-batches.
    """
    needs = needs_of_job(job)
    plan = host_plan(needs, group_bytes)
    if plan is None:
        return job
    if plan.left_bytes <= 0:
        raise _refused(needs, plan)
    training = replace(job.training, host_memory_limit=plan.limit_bytes)
    tight = plan.limit_bytes < _ROOMY_BYTES or plan.read_bytes > _LARGE_PART * plan.limit_bytes
    # A budget of the peak makes the model smaller, and goes with no limit of training.
    if job.epochs and not needs.budgeted and not gpu_device() and (plan.asked_for or tight):
        known = training.memory_limit
        left = plan.training_bytes
        training = replace(training, memory_limit=left if known is None else min(known, left))
    return replace(job, training=training)


def check_host(steps: Sequence[HostNeeds], group_bytes: int | None = None) -> None:
    """Look at all steps of a run before the first one starts.

    Args:
        steps: that are to be computed; what is not known of them is looked at when it is.
        group_bytes: see `host_plan`.

    Raises:
        ResourceError: one of them needs more than there is, whatever its micro-batches.
    """
    for needs in steps:
        plan = host_plan(needs, group_bytes)
        if plan is not None and plan.left_bytes <= 0:
            raise _refused(needs, plan)


def left_of_group() -> int | None:
    """Return what is left of the control group for a run that begins, of several its part.

    Later it is less, by the process that workers are forks of: what they share with it counts once.
    """
    left = group_left_bytes()
    shared_by = os.environ.get(HOST_SHARED_BY, "")
    if left is None or not shared_by.isdecimal():
        return left
    return min(left, HostMemory().limit_bytes() // max(int(shared_by), 1))


def _allocated(needs: HostNeeds) -> int:
    """Return what of the weights' copies the allocator counts in training: weights and slots."""
    return (1 + slots(needs.training)) * needs.weights_bytes


def _least_training_bytes(needs: HostNeeds) -> int:
    """Return what the allocator counts of a training whatever its micro-batch; 0 if not known."""
    if not needs.epochs or not needs.keeps_size or gpu_device():
        return 0
    masks = MASK_COPIES if needs.kind == "prune" else 0.0
    copies = UPDATE_COPIES + SLOT_COPIES * slots(needs.training) + masks
    return round(copies * needs.weights_bytes)


def slots(training: Training) -> int:
    """Return how many numbers the optimizer keeps of each weight."""
    optimizer = training.optimizer
    momentum = 1 if optimizer.name == "sgd" and optimizer.momentum else 0
    return _SLOTS.get(optimizer.name, _OTHER_SLOTS) + momentum


def _refused(needs: HostNeeds, plan: HostPlan) -> ResourceError:
    whose = "training.host_memory_limit" if plan.asked_for else "the control group"
    total = HostMemory().limit_bytes()
    short = (plan.fixed_bytes - plan.limit_bytes) / (1 - _MARGIN)
    hints = [f"give it {_size(_rounded_up(total + short))}"]
    if needs.epochs and slots(needs.training):
        hints.append("training.optimizer.name: sgd")
    if plan.asked_for:
        enough = (plan.fixed_bytes - LIBRARY_BYTES) / (1 - _MARGIN)
        hints[0] = f"give it {_size(_rounded_up(enough))}"
    if plan.asked_for and plan.fixed_bytes < (1 - _MARGIN) * total:
        hints[0] = f"set training.host_memory_limit: {plan.fixed_bytes // 10**6 + 1}MB"
    process = plan.fixed_bytes - plan.for_weights_bytes
    return ResourceError(
        f"the step needs about {_size(plan.fixed_bytes)} of the host's memory, of which "
        f"{_size(process)} for the process and the rest for {_size(plan.read_bytes)} of "
        f"weights, and {whose} leaves it {_size(plan.limit_bytes)}",
        subject=needs.name,
        hint="; ".join(hints),
    )


def _rounded_up(count: float) -> int:
    """Return bytes that are as many when they are shown in GB with two decimals."""
    return -int(-count // 10**7) * 10**7


def _size(count: float) -> str:
    return format_value(count, "bytes")
