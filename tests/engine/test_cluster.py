"""Where the addresses of other machines come from."""

from __future__ import annotations

import json

import pytest
import tf_keras as keras

from shrink.contract.training import Training
from shrink.engine.cluster import (
    average_local_variables,
    broadcast_from_chief,
    cluster_resolver,
    own_variables,
    restore_local_variables,
)
from shrink.engine.devices import open_devices


def test_cluster_resolver_reads_tf_config(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = {"worker": ["a:1", "b:2"]}
    task = {"type": "worker", "index": 1}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": task}))
    resolver = cluster_resolver()
    assert resolver.cluster_spec().as_dict() == cluster
    assert (resolver.task_type, resolver.task_id) == ("worker", 1)


@pytest.mark.parametrize(
    ("nodes", "per_node", "addresses"),
    [
        ("node[1-3]", "1(x3)", ["node1:8888", "node2:8888", "node3:8888"]),
        ("node7,node9", "2,1", ["node7:8888", "node7:8889", "node9:8888"]),
    ],
)
def test_cluster_resolver_reads_slurm_on_machines_without_gpus(
    monkeypatch: pytest.MonkeyPatch, nodes: str, per_node: str, addresses: list[str]
) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setenv("SLURM_PROCID", "2")
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "3")
    monkeypatch.setenv("SLURM_STEP_NODELIST", nodes)
    monkeypatch.setenv("SLURM_STEP_TASKS_PER_NODE", per_node)
    resolver = cluster_resolver()
    assert resolver.cluster_spec().as_dict() == {"worker": addresses}
    assert (resolver.task_type, resolver.task_id) == ("worker", 2)
    assert resolver.num_accelerators() == {"GPU": 0}


def test_agree_and_average_local_variables_change_nothing_when_alone() -> None:
    devices = open_devices(Training())
    assert broadcast_from_chief(devices, True)
    assert not broadcast_from_chief(devices, False)
    inputs = keras.layers.Input((2,))
    model = keras.Model(inputs, keras.layers.BatchNormalization()(inputs))
    kept = [variable.aggregation for variable in own_variables(model.variables)]
    average_local_variables(model, devices)
    restore_local_variables(model, devices)
    assert kept
    assert [variable.aggregation for variable in own_variables(model.variables)] == kept
