"""Training on several machines: which worker this is, and the shared folder of the chief.

    state.json       the order: its id, and the job that it asks for
    beat             changes as long as the chief lives
    joined-<n>       the last order that worker n has taken
    worker-<n>.json  how an order went on worker n, where it went wrong

It lies in the store, which all machines share. Every file is replaced as a whole.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from shrink.base import files
from shrink.base.errors import ResourceError
from shrink.base.foreign import Json, JsonObject
from shrink.contract.codec import from_plain, to_plain
from shrink.contract.job import StepJob


@dataclass(frozen=True)
class Membership:
    """A place among processes that train together.

    Attributes:
        workers: how many there are.
        index: this one's number; 0 is the chief, the only one that writes.
        key: the same for all of them, and for no other cluster.
    """

    workers: int
    index: int
    key: str

    @property
    def is_chief(self) -> bool:
        """Whether this worker decides and writes."""
        return self.index == 0


def membership(environment: Mapping[str, str]) -> Membership | None:
    """Return this process's place, or None where it is alone.

    `TF_CONFIG` (set by a Kubeflow TFJob for each pod) goes before Slurm's variables, which count
    where a job step has several tasks.

    Raises:
        ResourceError: the environment contradicts itself, or asks for parameter servers.
    """
    if config := environment.get("TF_CONFIG"):
        text = config
        try:
            config = json.loads(text)
            cluster, task = config.get("cluster", {}), config.get("task", {})
            chiefs, workers = cluster.get("chief", []), cluster.get("worker", [])
            places = [("chief", n) for n in range(len(chiefs))]
            places += [("worker", n) for n in range(len(workers))]
            if len(places) < 2 and not set(cluster) - {"chief", "worker"}:
                return None
            index = places.index((task["type"], int(task["index"])))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ResourceError(
                f"TF_CONFIG does not name a place in its cluster: {error}",
                subject="TF_CONFIG",
                hint='write {"cluster": {"worker": ["host:port", ...]},'
                ' "task": {"type": "worker", "index": 0}}, or unset it',
            ) from error
        if others := sorted(set(cluster) - {"chief", "worker"}):
            raise ResourceError(
                f"TF_CONFIG has tasks of the type {', '.join(others)}; training is synchronous, in"
                " workers alone",
                subject="TF_CONFIG",
                hint="use Worker replicas, and a Chief if you like",
            )
        return Membership(len(places), index, _digest([chiefs, workers]))
    if int(environment.get("SLURM_STEP_NUM_TASKS", "1")) > 1:
        missing = [
            name
            for name in ("SLURM_PROCID", "SLURM_JOB_ID", "SLURM_STEP_NODELIST")
            if name not in environment
        ]
        if missing:
            raise ResourceError(
                f"Slurm started several tasks, but did not set {', '.join(missing)}",
                subject="SLURM_STEP_NUM_TASKS",
                hint="start them with srun, or unset SLURM_STEP_NUM_TASKS to run alone",
            )
        names = [environment["SLURM_JOB_ID"], environment["SLURM_STEP_NODELIST"]]
        tasks = int(environment["SLURM_STEP_NUM_TASKS"])
        return Membership(tasks, int(environment["SLURM_PROCID"]), _digest(names))
    return None


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:32]


BEAT_S = 1.0
_STATE, _BEAT = "state.json", "beat"


@dataclass(frozen=True)
class Order:
    """What the chief wants now; a new one ends the one before.

    Attributes:
        id: tells it from all others.
        job: the job to run, or None for nothing.
        exit_code: of the chief, once it is at its end.
    """

    id: str
    job: StepJob | None = None
    exit_code: int | None = None


class ChiefsBoard:
    """The board as the chief uses it; a context, in which the others see that it lives.

    Args:
        folder: where the board is.
        workers: how many workers there are, the chief among them.
    """

    def __init__(self, folder: Path, workers: int) -> None:
        self._folder = folder
        self._workers = workers
        self._order = Order("")
        self._ended = threading.Event()
        self._beats = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> ChiefsBoard:
        files.make_folder(self._folder)
        self.post(None)
        self._beats.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._beats.join()

    def post(self, job: StepJob | None, exit_code: int | None = None) -> None:
        """Replace the order."""
        self._order = Order(uuid.uuid4().hex, job, exit_code)
        files.write_json(self._folder / _STATE, to_plain(self._order))

    def reports(self) -> list[tuple[int, JsonObject]]:
        """Return the index and the error of every worker for which this order went wrong."""
        found = []
        for index in range(1, self._workers):
            report = _read(self._folder / _report_name(index))
            if report and report["id"] == self._order.id:
                found.append((index, report["error"]))
        return found

    def _beat(self) -> None:
        while not self._ended.wait(BEAT_S):
            files.write_text(self._folder / _BEAT, uuid.uuid4().hex)


class FollowersBoard:
    """The board as another worker uses it.

    Args:
        folder: where the board is.
        index: the worker's number.
    """

    def __init__(self, folder: Path, index: int) -> None:
        self._folder = folder
        self._index = index
        self._beat = self._first = _text(folder / _BEAT)
        self._changed_at = time.monotonic()

    def order(self) -> Order | None:
        """Return the present order; None where there is none to be read."""
        state = _read(self._folder / _STATE)
        return from_plain(Order, state) if state else None

    def silence_s(self) -> float:
        """Return for how many seconds the chief has shown no sign of life."""
        beat = _text(self._folder / _BEAT)
        if beat != self._beat:
            self._beat, self._changed_at = beat, time.monotonic()
        return time.monotonic() - self._changed_at

    def is_alive(self) -> bool:
        """Whether a chief, which posts before its first beat, lives since this board was opened."""
        return self._beat != self._first

    def join(self, order: Order) -> bool:
        """Take an order, and return whether this worker had not taken it yet.

        One that was taken in an earlier life of this worker is lost: those that work on it have
        noticed the death, or will, and cannot be joined any more.
        """
        path = self._folder / f"joined-{self._index}"
        if _text(path) == order.id:
            return False
        files.write_text(path, order.id)
        return True

    def report(self, order: Order, error: JsonObject) -> None:
        """Tell the chief that an order went wrong here."""
        content = {"id": order.id, "error": error}
        files.write_json(self._folder / _report_name(self._index), content)


def _report_name(index: int) -> str:
    return f"worker-{index}.json"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def _read(path: Path) -> Json:
    text = _text(path)
    return json.loads(text) if text else None
