"""Tools in a worker, experiment trackers, and `doctor`."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from packaging.requirements import Requirement

import shrink
from shrink.base.cache import cache_root, existing
from shrink.base.console import Console
from shrink.base.errors import InternalError, ResourceError, ShrinkError
from shrink.base.host import HostMemory, machine
from shrink.base.packages import (
    KERAS_PACKAGES,
    extra_hint,
    full_installation,
    lacks_keras,
    requirements,
    versions,
)
from shrink.contract.codec import ContractError, from_plain
from shrink.contract.findings import Examination, StorePlace, Tracked, Worked
from shrink.contract.job import (
    CompactJob,
    DoctorJob,
    FirmwareFactsJob,
    InspectJob,
    Job,
    ModelJob,
    TrackerJob,
)
from shrink.contract.model_source import ModelSource
from shrink.run.process import preloading_refused, run_worker, show_event
from shrink.run.store import Store
from shrink.tflite.runtime import guard_artifact

T = TypeVar("T")


def guard_source(
    source: ModelSource, to_be_quantized: bool = False, in_litert: bool = True
) -> None:
    """Try a .tflite file in a child; workers scan other files before they load them.

    Args:
        source: the model.
        to_be_quantized: whether a .tflite file must be a float one.
        in_litert: whether LiteRT has to run a .tflite file; it refuses some that TFLite Micro runs.

    Raises:
        ModelError: it is damaged, refused, or brings down the process that looks at it.
    """
    if source.kind == "tflite":
        guard_artifact(source.path, to_be_quantized=to_be_quantized, in_litert=in_litert)


def run_action(job: Job, kind: type[T], console: Console) -> T:
    """Run a worker's action and return its result.

    Args:
        job: what to do.
        kind: of the result, a dataclass of `contract/`.
        console: where progress and warnings are printed.

    Raises:
        InternalError: the worker sent something else.
        ShrinkError: whatever the action raised.
    """
    store = Store(cache_root(), console.warn)
    store.sweep()
    with store.in_use(), store.work_folder() as work:
        try:
            return from_plain(kind, run_worker(job, work, lambda event: show_event(event, console)))
        except ContractError as error:
            raise InternalError(
                f"the worker's answer is no {kind.__name__}: {error}", subject=job.name
            ) from error
        except ShrinkError as error:
            error.subject = error.subject or job.name
            raise


def run_tool(job: ModelJob, kind: type[T], console: Console) -> T:
    """Look into a model's file, run a worker's action on it and return the result.

    See `run_action`.
    """
    # These run it in children of theirs.
    structure_alone = isinstance(job, CompactJob | FirmwareFactsJob | InspectJob)
    guard_source(job.model, in_litert=not structure_alone)
    return run_action(job, kind, console)


@dataclass(frozen=True)
class Trackers:
    """Where a run is logged, beside its folder.

    Attributes:
        tensorboard: a folder for logs.
        mlflow: a tracking address, such as `http://host:5000`.
    """

    tensorboard: Path | None = None
    mlflow: str | None = None

    def check(self) -> None:
        """Raise `ResourceError` where a package is missing, before anything is computed."""
        if self.mlflow is not None and importlib.util.find_spec("mlflow") is None:
            raise ResourceError(
                "MLflow is not installed",
                subject="--mlflow",
                hint=extra_hint("mlflow"),
            )

    def tell(self, run: Path, console: Console) -> None:
        """Tell every tracker of the run in this folder; what fails there is a warning."""
        try:
            for line in self.publish(run, console):
                console.say(line)
        except ShrinkError as error:
            console.warn(str(error))

    def publish(self, run: Path, console: Console) -> Iterator[str]:
        """Tell every tracker of the run in this folder; yield where it can be looked at.

        Raises:
            ResourceError: a tracker refuses.
        """
        report = run.resolve()
        if self.tensorboard is not None:
            target = str(self.tensorboard.resolve())
            job = TrackerJob(action="tensorboard", name="tensorboard", report=report, target=target)
            yield f"TensorBoard: {run_action(job, Tracked, console).place}"
        if self.mlflow is not None:
            job = TrackerJob(action="mlflow", name="mlflow", report=report, target=self.mlflow)
            tracked = run_action(job, Tracked, console)
            yield f"MLflow: run {tracked.place} at {self.mlflow}"


_VARIABLES = re.compile(
    r"^(TF_(ENABLE|CPU|GPU|USE|MKL|XLA|NUM|CONFIG|FORCE|DETERMINISTIC)|SHRINK_|CUDA_|NVIDIA_|OMP_"
    r"|KERAS_|XLA_|PYTHON(PATH|HOME)|SLURM_JOB_NUM_NODES)"
)
_EXTRAS = ("mlflow", "lmdb", "parquet", "detection", "tiles", "tfds", "vela")
_LOW_DISK_BYTES = 1_000_000_000


def examine(console: Console) -> Examination:
    """Return versions, machine, store and settings, what was tried in a worker, and problems."""
    path = cache_root()
    place = existing(path)
    free = shutil.disk_usage(place).free
    store = StorePlace(path=_short(path), free_bytes=free, writable=os.access(place, os.W_OK))
    found = []
    if not store.writable:
        found.append(f"the cache {store.path} is not writable; choose one by SHRINK_CACHE_DIR")
    if store.free_bytes < _LOW_DISK_BYTES:
        found.append(f"the disk of the cache {store.path} has less than 1 GB left")
    plain = [line for line in requirements() if _applies(line)]
    limits: tuple[str, ...] = ()
    if lacks_keras():
        missing = ", ".join(name for name in KERAS_PACKAGES if versions().get(name) == "missing")
        limits = (
            "this installation is for .tflite files and reports; commands on Keras models need "
            f"{missing}: {_short(full_installation())}",
        )
        plain = [line for line in plain if Requirement(line).name not in KERAS_PACKAGES]
    problems = [*([text for line in plain if (text := _unmet(line)) is not None]), *found]
    worked: Worked | None = None
    try:
        worked = run_action(DoctorJob(), Worked, console)
        problems += worked.problems
    except ShrinkError as error:
        problems.append(f"a worker fails: {error}")
    why = "TensorFlow is not installed" if lacks_keras() else preloading_refused()
    return Examination(
        shrink=shrink.__version__,
        installed=_short(Path(shrink.__file__).parent),
        python=f"{platform.python_version()} ({_short(Path(sys.executable))})",
        system=platform.platform(),
        machine=machine(),
        memory_limit_bytes=HostMemory().limit_bytes(),
        packages={k: v for k, v in versions().items() if not k.startswith("shrink")},
        extras=tuple(name for name in _EXTRAS if _has_extra(name)),
        store=store,
        variables=_variables(),
        workers=(f"fresh processes: {why}" if why else "forks of a preloaded process"),
        worker=None
        if worked is None
        else replace(worked, problems=(), limits=(*limits, *worked.limits)),
        problems=tuple(problems),
    )


def lines_of(found: Examination) -> list[str]:
    """Return the findings as Markdown that can be pasted into an issue."""
    store, worker = found.store, found.worker or Worked()
    facts = {
        "shrink": f"{found.shrink} in {found.installed}",
        "python": found.python,
        "system": found.system,
        "machine": found.machine,
        "memory limit": _gigabytes(found.memory_limit_bytes),
        **found.packages,
        "extras": ", ".join(found.extras) or "none",
        "cache": f"{store.path}, {_gigabytes(store.free_bytes)} free",
        **found.variables,
        "workers start as": found.workers,
        "devices": ", ".join(worker.devices) or "unknown",
        "TensorFlow starts in": _seconds(worker.tensorflow_import_s),
        "a training step takes": _seconds(worker.training_step_s),
    }
    lines = [f"- {name}: {value}" for name, value in facts.items()]
    lines += [f"- limit: {text}" for text in worker.limits]
    lines += [f"- PROBLEM: {text}" for text in found.problems]
    return [*lines, "" if found.problems else "No problems found."]


def _unmet(line: str) -> str | None:
    requirement = Requirement(line)
    try:
        version = importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return f"{requirement.name} is missing: python -m pip install '{line}'"
    if requirement.specifier.contains(version, prereleases=True):
        return None
    return f"{requirement.name} {version} is not what shrink needs: python -m pip install '{line}'"


def _has_extra(name: str) -> bool:
    """Whether the packages of an extra are there; an unknown extra is not."""
    packages = [line for line in requirements() if _applies(line, name) and not _applies(line)]
    return bool(packages) and all(_unmet(line) is None for line in packages)


def _applies(line: str, extra: str = "") -> bool:
    marker = Requirement(line).marker
    return marker is None or marker.evaluate({"extra": extra})


def _variables() -> dict[str, str]:
    """Return the environment variables that change what shrink or TensorFlow do."""
    found = sorted((k, v) for k, v in os.environ.items() if _VARIABLES.match(k))
    return {name: _short(value) for name, value in found}


def _short(path: Path | str) -> str:
    home = os.environ.get("HOME", "").rstrip("/")
    return re.sub(rf"(?<![^:=]){re.escape(home)}(?=/)", "~", str(path)) if home else str(path)


def _gigabytes(size_bytes: int | None) -> str:
    return "unknown" if size_bytes is None else f"{size_bytes / 1e9:.1f} GB"


def _seconds(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1f} s"
