"""What a step asks of the host's memory: the models that it reads, and whether it trains."""

from __future__ import annotations

import contextlib
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from shrink.contract.job import StepJob
from shrink.contract.training import Training
from shrink.model.scan_files import WEIGHTS, open_weights
from shrink.recipe.plan import Plan, Source, Step

MODEL = "model"
"""The role of the model that a step starts from; the others are teachers."""
_SMALL_BYTES = 4_000_000
"""A smaller file counts whole: its optimizer decides nothing."""
_OPTIMIZER = ("optimizer", "optimizer_weights")
"""Groups at the root of the weights in a `.keras` file, and of an `.h5` file."""
_SAME_SIZE = ("baseline", "train", "cluster")


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


@dataclass(frozen=True)
class HostNeeds:
    """What decides how much resident memory a step's process takes.

    Attributes:
        name: of the step.
        kind: of the stage.
        variant: its method or scheme; empty where it has neither.
        epochs: passes of training.
        training: how it trains.
        weights_bytes: of the Keras model that it starts from, as its file has them.
        teachers_bytes: of its teachers, likewise.
        tflite_bytes: of the .tflite file that it starts from.
        unknown: why a size is not known, and counted as 0; empty where all are.
        budgeted: whether a budget of the training peak makes the model smaller.
    """

    name: str
    kind: str
    training: Training
    variant: str = ""
    epochs: int = 0
    weights_bytes: int = 0
    teachers_bytes: int = 0
    tflite_bytes: int = 0
    unknown: str = ""
    budgeted: bool = False

    @property
    def keeps_size(self) -> bool:
        """Whether what is trained has as many weights as the model that it starts from."""
        magnitude = (self.kind, self.variant) == ("prune", "magnitude")
        return not self.budgeted and (self.kind in _SAME_SIZE or magnitude)


def needs_of_job(job: StepJob) -> HostNeeds:
    """Return what a job asks, whose models are all there but those that a function builds."""
    config = job.config or {}
    sizes = {
        role: 0 if source.function else weights_bytes(source.path)
        for role, source in job.inputs.items()
    }
    built = job.inputs[MODEL].function is not None
    is_tflite = job.inputs[MODEL].path.suffix == ".tflite"
    return HostNeeds(
        name=job.name,
        kind=job.kind,
        variant=str(config.get("scheme") or config.get("method") or ""),
        epochs=job.epochs,
        training=job.training,
        weights_bytes=0 if is_tflite else sizes[MODEL],
        teachers_bytes=sum(size for role, size in sizes.items() if role != MODEL),
        tflite_bytes=sizes[MODEL] if is_tflite else 0,
        unknown="a function builds the model, whose size shows when it runs" if built else "",
        budgeted=config.get("training_peak_bytes") is not None,
    )


def needs_of_plan(plan: Plan, steps: Sequence[Step]) -> list[HostNeeds]:
    """Return the least that these steps ask, as far as it is known before the first one starts.

    A model that earlier steps make smaller, or whose size only its code knows, counts as nothing.

    Args:
        plan: that the steps are of.
        steps: of it.
    """
    made: dict[str, int] = {}
    found = []
    for step in plan.steps:
        sizes = {role: _size(source, made) for role, source in step.inputs.items()}
        config = {} if step.config is None else step.config.model_dump(mode="json")
        variant = str(config.get("scheme") or config.get("method") or "")
        reference = step.inputs[MODEL].reference
        is_tflite = reference is not None and reference.path.suffix == ".tflite"
        needs = HostNeeds(
            name=step.name,
            kind=step.kind,
            variant=variant,
            epochs=step.epochs,
            training=step.training,
            weights_bytes=0 if is_tflite else sizes[MODEL],
            teachers_bytes=sum(size for role, size in sizes.items() if role != MODEL),
            tflite_bytes=sizes[MODEL] if is_tflite else 0,
            budgeted=config.get("training_peak_bytes") is not None,
        )
        if needs.keeps_size:
            made[step.name] = sizes[MODEL]
        if step in steps:
            found.append(needs)
    return found


def _size(source: Source, made: dict[str, int]) -> int:
    """Return the bytes of a model; 0 where they are not known, or the model is cut."""
    if source.arguments or (source.reference is not None and source.reference.function):
        return 0
    if source.step is not None:
        return made.get(source.step, 0)
    return 0 if source.reference is None else weights_bytes(source.reference.path)
