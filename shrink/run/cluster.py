"""Training on several machines: which place this process has among them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from shrink.base import files
from shrink.base.errors import ResourceError


@dataclass(frozen=True)
class ClusterPlace:
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


def membership(environment: Mapping[str, str]) -> ClusterPlace | None:
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
        return ClusterPlace(len(places), index, files.json_sha256([chiefs, workers])[:32])
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
        return ClusterPlace(tasks, int(environment["SLURM_PROCID"]), files.json_sha256(names)[:32])
    return None
