"""Several machines: who is who, and two workers on this one."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from shrink.base.errors import ResourceError
from shrink.run.cluster import membership
from tests.cli.shell import command, environment, read_report
from tests.run.together import (
    difference,
    free_ports,
    said,
    start_worker,
    wait_for,
    write_recipe,
)

ADDRESSES = ["a:1", "b:1", "c:1"]


def tf_config(cluster: dict[str, list[str]], kind: str, index: int) -> dict[str, str]:
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})}


def slurm(index: int) -> dict[str, str]:
    return {
        "SLURM_JOB_ID": "7",
        "SLURM_PROCID": str(index),
        "SLURM_STEP_NUM_TASKS": "3",
        "SLURM_STEP_NODELIST": "node[1-3]",
    }


@pytest.mark.parametrize(
    "environment",
    [
        {},
        tf_config({"worker": ["a:1"]}, "worker", 0),
        {"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"},
    ],
)
def test_membership_is_none_when_alone(environment: dict[str, str]) -> None:
    assert membership(environment) is None


def test_membership_counts_the_workers_of_tf_config() -> None:
    places = [membership(tf_config({"worker": ADDRESSES}, "worker", n)) for n in range(3)]
    assert [(p.workers, p.index, p.is_chief) for p in places if p] == [
        (3, 0, True),
        (3, 1, False),
        (3, 2, False),
    ]
    assert len({p.key for p in places if p}) == 1


def test_membership_puts_the_chief_of_tf_config_first() -> None:
    cluster = {"chief": ["a:1"], "worker": ["b:1"]}
    chief = membership(tf_config(cluster, "chief", 0))
    worker = membership(tf_config(cluster, "worker", 0))
    assert chief is not None
    assert worker is not None
    assert (chief.index, worker.index) == (0, 1)


def test_membership_reads_slurm() -> None:
    place, other = membership(slurm(2)), membership({**slurm(0), "SLURM_JOB_ID": "8"})
    assert place is not None
    assert other is not None
    assert (place.workers, place.index) == (3, 2)
    assert place.key != other.key


@pytest.mark.parametrize(
    "environment",
    [
        {"TF_CONFIG": "{"},
        tf_config({"worker": ADDRESSES}, "worker", 3),
        tf_config({"worker": ADDRESSES, "ps": ["d:1"]}, "worker", 0),
        {"SLURM_STEP_NUM_TASKS": "2"},
    ],
)
def test_membership_refuses_what_contradicts_itself(environment: dict[str, str]) -> None:
    with pytest.raises(ResourceError) as caught:
        membership(environment)
    assert caught.value.hint


@pytest.mark.slow
def test_two_workers_train_as_one_process_with_two_replicas(tmp_path: Path) -> None:
    write_recipe(tmp_path, epochs=3)
    ports = free_ports(2)
    workers = [start_worker(tmp_path, ports, index) for index in (0, 1)]
    assert [worker.wait(300) for worker in workers] == [0, 0], said(tmp_path, 0)
    alone = command("run", tmp_path / "recipe.yaml", "--output", tmp_path / "alone", "--quiet")
    subprocess.run(
        [*alone, "--set", "training.replicas=2"],
        env=environment(tmp_path / "other-store", {}),
        check=True,
    )
    training = read_report(tmp_path / "out-0")["stages"][0]["training"]
    assert (training["workers"], training["replicas"], training["exact"]) == (2, 2, False)
    assert difference(tmp_path / "out-0", tmp_path / "alone") <= 1e-5
    assert not (tmp_path / "out-1").exists()


@pytest.mark.slow
def test_a_worker_that_is_killed_and_started_again_continues(tmp_path: Path) -> None:
    write_recipe(tmp_path, epochs=40)
    ports = free_ports(2)
    chief, other = (start_worker(tmp_path, ports, index) for index in (0, 1))
    wait_for(lambda: any(tmp_path.glob("store/checkpoints/*/1/checkpoint.json")))
    other.kill()
    other.wait()
    again = start_worker(tmp_path, ports, 1)
    assert [chief.wait(480), again.wait(60)] == [0, 0], said(tmp_path, 0)
    stage = read_report(tmp_path / "out-0")["stages"][0]
    assert stage["training"]["epochs"] == 40
    assert any("continued from a checkpoint" in note for note in stage["notes"])
