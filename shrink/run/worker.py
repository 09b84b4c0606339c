"""The entry point of a worker process: runs one job and sends events to its parent by a pipe.

A child as `shrink.base.child` says: its request is a job, its messages are events, and everything
that TensorFlow prints goes to the worker's log.
"""

from __future__ import annotations

import gc
import importlib
import re
import traceback
from pathlib import Path
from typing import NoReturn

from shrink.base.child import Channel, serve_plain
from shrink.base.errors import DataError, InternalError, ResourceError, ShrinkError, first_line
from shrink.base.packages import missing_package
from shrink.base.types import JsonObject
from shrink.contract import job as jobs
from shrink.contract.codec import from_plain, to_plain
from shrink.contract.events import Event, message_to_plain
from shrink.contract.job import Job

ACTIONS: dict[str, tuple[type[Job], str]] = {
    "step": (jobs.StepJob, "shrink.run.execute:execute"),
    "follow": (jobs.StepJob, "shrink.run.execute:follow"),
    "probe": (jobs.StepJob, "shrink.run.execute:probe"),
    "check-models": (jobs.CheckModelsJob, "shrink.run.execute:check_models"),
    "outline": (jobs.OutlineJob, "shrink.run.outline:outline"),
    "measure": (jobs.StepJob, "shrink.run.execute:measure_again"),
    "profile": (jobs.ProfileJob, "shrink.tools.profile:profile"),
    "inspect": (jobs.InspectJob, "shrink.tools.artifact:inspect"),
    "export": (jobs.ExportJob, "shrink.tools.export:export"),
    "firmware-facts": (jobs.FirmwareFactsJob, "shrink.tools.artifact:firmware_facts"),
    "compact": (jobs.CompactJob, "shrink.tools.compact:compact_file"),
    "bench": (jobs.BenchJob, "shrink.tools.artifact:bench"),
    "first-look": (jobs.FirstLookJob, "shrink.tools.inspect:first_look"),
    "doctor": (jobs.DoctorJob, "shrink.tools.doctor:doctor"),
    "tensorboard": (jobs.TrackerJob, "shrink.tools.trackers:write_tensorboard"),
    "mlflow": (jobs.TrackerJob, "shrink.tools.trackers:log_to_mlflow"),
    "data-check": (jobs.CheckJob, "shrink.tools.data_check:data_check"),
}
"""What a worker can do, by name: the job's type, and (job, send) -> result."""


def run_job(plain: JsonObject, channel: Channel) -> None:
    """Run a job, which the parent made plain, and send what it gave.

    Raises:
        ShrinkError: whatever it raised.
    """
    kind, place = ACTIONS[plain["action"]]
    job = from_plain(kind, plain)

    def send(event: Event) -> None:
        channel.send(message_to_plain(event))

    try:
        module, _, function = place.partition(":")
        # Half a million objects that stay: not walked while they are made, nor with what follows.
        gc.disable()
        action = getattr(importlib.import_module(module), function)
        gc.freeze()
        gc.enable()
        channel.answer(to_plain(action(job, send)))
    except ShrinkError:
        raise
    except Exception as error:
        raise as_shrink_error(error, job.name) from error


def main() -> NoReturn:
    """Do what the parent asks, and exit."""
    serve_plain(run_job)


_BEYOND_TABLE = re.compile(r"indices\[[\d,]*\] = (-?\d+) is not in \[0, (\d+)\)")
"""What TensorFlow says of an index that a table of that many rows does not have."""


def as_shrink_error(error: Exception, stage: str) -> ShrinkError:
    """Return `error` itself, or the typed error that says what it means."""
    if isinstance(error, ShrinkError):
        return error
    if (missing := missing_package(error)) is not None:
        return missing
    names = {cls.__name__ for cls in type(error).__mro__}
    if isinstance(error, MemoryError) or "ResourceExhaustedError" in names:
        return ResourceError(
            f"out of memory: {first_line(error) or type(error).__name__}",
            subject=stage,
            hint="set a smaller training.micro_batch_size, or training.precision: mixed_bfloat16",
        )
    if found := _BEYOND_TABLE.search(str(error)):
        return DataError(
            f"{found[1]} is looked up in a table of {found[2]} rows (an Embedding, or a gather): "
            f"it takes 0 to {int(found[2]) - 1}",
            subject=stage,
            hint="give the layer a larger input_dim, or correct the inputs: whole numbers, without "
            "data.normalize",
        )
    where = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{Path(where.filename).name}:{where.lineno}"
    return InternalError(
        f"{type(error).__name__} at {place}: {first_line(error) or type(error).__name__}",
        subject=stage,
        hint="this is a bug in shrink; please report it with the recipe",
    )


if __name__ == "__main__":
    main()
