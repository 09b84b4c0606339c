"""Refuses a step whose process would not fit in host memory, by the sizes of its model files.

A step that the kernel would end after minutes is refused before anything starts. On a CPU, training
gets what the process leaves of the limit.
"""

from __future__ import annotations

import contextlib
import os
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from shrink.base.errors import ResourceError
from shrink.base.figures import format_value
from shrink.base.host import HOST_SHARED_BY, HostMemory, gpu_device, group_left_bytes
from shrink.contract.job import StepJob
from shrink.engine.config import TrainingConfig
from shrink.model.scan_files import WEIGHTS, open_weights
from shrink.recipe.plan import Plan, Source, Step

PROCESS_BYTES = 1_400_000_000
"""Resident memory of a worker with a small model, libraries included: 1.3 GB were measured."""
LIBRARY_BYTES = 400_000_000
"""Of these, pages of library files: a control group counts them as cache, and can drop them."""
TRAINING_BYTES = 100_000_000
"""Graphs and kernels of a training, whatever the model."""
MODEL_COPIES = 11.5
"""Of the weights, while a model is loaded, saved, converted and measured: 11.0 to 11.3 were
measured, for 16 to 55 MB (docs/decisions.md)."""
SLOT_COPIES = 2.0
"""Of the weights, the optimizer's: Adam has two slots, SGD without momentum none."""
TRAINED_COPIES = 2.5
"""Of the weights, while they are trained, beside what the device's allocator counts."""
TEACHER_COPIES = 5.0
"""Of a live teacher's weights, which nothing saves or converts: 4.7 were measured, for 61 MB."""
TFLITE_COPIES = 8.5
"""Of a .tflite file that a step starts from: 8.4 were measured, for 61 MB."""
_MARGIN = 0.1
"""Of what is left of a control group: kept free."""
_ROOMY_BYTES = 4_000_000_000
_LARGE_PART = 1 / 20
"""Without `training.host_memory_limit`, training has a limit of its own only in a group with less
than this left, or where the models' files are more than this part of it."""
_MODEL = "model"
"""The role of the model that a step starts from; the others are teachers."""
_SAME_SIZE = ("baseline", "train", "cluster")
"""Kinds of stages whose model has as many weights as the one that they start from."""


def check_host(plan: Plan, steps: Sequence[Step], group_bytes: int | None = None) -> None:
    """Check that each step fits in memory, as far as it is known before the first one starts.

    A model that an earlier step makes smaller, or that a function builds, counts as nothing here.

    Args:
        plan: of the run.
        steps: of it that are to be computed.
        group_bytes: what is left of the control group; by default `left_of_group`.

    Raises:
        ResourceError: a step needs more than the limit, whatever its micro-batch.
    """
    made: dict[str, int] = {}
    for step in plan.steps:
        sizes = {role: _size(source, made) for role, source in step.inputs.items()}
        reference = step.inputs[_MODEL].reference
        is_tflite = reference is not None and reference.path.suffix == ".tflite"
        masks = step.kind == "prune" and getattr(step.config, "method", "") == "magnitude"
        if masks or step.kind in _SAME_SIZE:
            made[step.name] = sizes[_MODEL]
        if step in steps:
            _limits(step.name, step.epochs, step.training, sizes, is_tflite, group_bytes)


def within_host(job: StepJob, group_bytes: int | None = None) -> StepJob:
    """Return a step's job with its limit of host memory and, on a CPU, what training may take.

    Args:
        job: the step's job.
        group_bytes: see `check_host`.

    Raises:
        ResourceError: the step needs more than the limit, whatever its micro-batch.
    """
    sizes = {
        role: 0 if source.function else weights_bytes(source.path)
        for role, source in job.inputs.items()
    }
    is_tflite = job.inputs[_MODEL].path.suffix == ".tflite"
    given = TrainingConfig.model_validate(job.training)
    limit, beside = _limits(job.name, job.epochs, given, sizes, is_tflite, group_bytes)
    if limit is None:
        return job
    training = {**job.training, "host_memory_limit": limit}
    tight = limit < _ROOMY_BYTES or sum(sizes.values()) > _LARGE_PART * limit
    if job.epochs and not gpu_device() and (given.host_memory_limit is not None or tight):
        left = limit - beside
        training["memory_limit"] = min(given.memory_limit or left, left)
    return replace(job, training=training)


def left_of_group() -> int | None:
    """Return what is left of the control group for a run that begins; its part, of several.

    Later it is less by the process that workers are forks of: what they share counts once.
    """
    left = group_left_bytes()
    shared_by = os.environ.get(HOST_SHARED_BY, "")
    if left is None or not shared_by.isdecimal():
        return left
    return min(left, HostMemory().limit_bytes() // max(int(shared_by), 1))


def _limits(
    name: str,
    epochs: int,
    training: TrainingConfig,
    sizes: dict[str, int],
    is_tflite: bool,
    group_bytes: int | None,
) -> tuple[int | None, int]:
    """Return the bytes that a step's process may hold, and those that it needs beside training.

    The first is the less of `training.host_memory_limit` and what is left of the control group,
    None without either. A step that needs more is refused. The second is what the process holds
    while it trains, beside what the device's allocator counts.
    """
    model, all_bytes = sizes[_MODEL], sum(sizes.values())
    slots = epochs > 0 and (training.optimizer.name != "sgd" or bool(training.optimizer.momentum))
    process = PROCESS_BYTES + (TRAINING_BYTES if epochs else 0)
    copies = TFLITE_COPIES if is_tflite else MODEL_COPIES + SLOT_COPIES * slots
    teachers = TEACHER_COPIES * (all_bytes - model)
    needed = process + round(copies * model + teachers)
    beside = round(process + teachers + TRAINED_COPIES * model)
    given = training.host_memory_limit
    left = left_of_group() if group_bytes is None else group_bytes
    limits = [] if left is None else [int(left * (1 - _MARGIN)) + LIBRARY_BYTES]
    limits += [] if given is None else [given]
    if not limits or needed < min(limits):
        return min(limits, default=None), beside
    limit, total = min(limits), HostMemory().limit_bytes()
    enough = total + (needed - limit) / (1 - _MARGIN)
    whose = "the control group"
    if given is not None:
        enough, whose = (needed - LIBRARY_BYTES) / (1 - _MARGIN), "training.host_memory_limit"
    hint = f"give it {_size_text(-int(-enough // 10**7) * 10**7)}"  # whole in GB with two decimals
    if given is not None and needed < (1 - _MARGIN) * total:
        hint = f"set training.host_memory_limit: {needed // 10**6 + 1}MB"
    raise ResourceError(
        f"the step needs about {_size_text(needed)} of the host's memory, of which "
        f"{_size_text(process)} for the process and the rest for "
        f"{_size_text(all_bytes)} of weights, and {whose} leaves it {_size_text(limit)}",
        subject=name,
        hint=f"{hint}; training.optimizer.name: sgd" if slots else hint,
    )


def _size_text(count: float) -> str:
    return format_value(count, "bytes")


def _size(source: Source, made: dict[str, int]) -> int:
    """Return the bytes of a model; 0 where they are not known yet."""
    if source.arguments or (source.reference is not None and source.reference.function):
        return 0
    if source.step is not None:
        return made.get(source.step, 0)
    return 0 if source.reference is None else weights_bytes(source.reference.path)


_SMALL_BYTES = 4_000_000
"""A smaller file counts whole: its optimizer decides nothing."""
_OPTIMIZER = ("optimizer", "optimizer_weights")
"""Groups at the root of the weights in a `.keras` file, and of an `.h5` file."""


def weights_bytes(path: Path) -> int:
    """Return the bytes of a model's file or folder, without its optimizer's; 0 where there is none.

    With Adam the slots are two thirds of a compiled model's file. They are subtracted where the
    file is HDF5 or holds it unpacked.
    """
    files = [one for one in path.rglob("*") if one.is_file()] if path.is_dir() else [path]
    try:
        whole = sum(one.stat().st_size for one in files)
    except OSError:
        return 0
    if whole < _SMALL_BYTES or path.suffix not in (".keras", ".h5", ".hdf5"):
        return whole
    import h5py

    def count(_: str, item: object) -> None:
        nonlocal whole
        whole -= item.id.get_storage_size() if isinstance(item, h5py.Dataset) else 0

    # Of a damaged file, loading says why.
    with contextlib.suppress(Exception), _hdf5(path) as source, h5py.File(source, "r") as file:
        for name in filter(file.__contains__, _OPTIMIZER):
            file[name].visititems(count)
    return whole


def _hdf5(path: Path) -> BinaryIO:
    """Open the HDF5 file that is, or lies unpacked in, a model's file."""
    if path.suffix != ".keras":
        return path.open("rb")
    with zipfile.ZipFile(path) as archive:
        if archive.getinfo(WEIGHTS).compress_type != zipfile.ZIP_STORED:
            raise ValueError("packed")
    source = open_weights(path)
    assert source is not None
    return source
