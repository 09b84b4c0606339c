"""Devices as a recipe asks for them, on a machine without a GPU."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import ResourceError
from shrink.data.config import DataConfig
from shrink.data.opening import open_dataset
from shrink.data.pipeline import training_batches
from shrink.engine import devices as opening
from shrink.engine.config import TrainingConfig
from shrink.engine.devices import (
    Devices,
    average_local_variables,
    broadcast_from_chief,
    cluster_resolver,
    distribute_batches,
    open_devices,
    own_variables,
    restore_local_variables,
    smallest_batch,
)
from tests.forks import call

no_gpu = pytest.mark.skipif(
    bool(tf.config.list_physical_devices("GPU")), reason="is about CPU devices"
)


@no_gpu
def test_open_devices_opens_one_cpu_by_default() -> None:
    devices = open_devices(TrainingConfig())
    assert (devices.replicas, devices.device_names) == (1, ("CPU:0",))
    assert devices.strategy is tf.distribute.get_strategy()


@no_gpu
def test_a_memory_limit_leaves_tensors_their_own_size() -> None:
    # A region of 3.8 MB, the limit less 4 MiB, was lent whole.
    assert call("tests.engine._scenarios", "lent_bytes", memory_limit=8_000_000, size=2_500_096) < (
        2_600_000
    )


@no_gpu
def test_opening_a_cpu_takes_little_memory() -> None:
    assert call("tests.engine._scenarios", "opening_bytes") < 100_000_000


@no_gpu
def test_open_devices_refuses_more_replicas_when_tensorflow_runs_already() -> None:
    tf.zeros(()).numpy()
    with pytest.raises(ResourceError, match="already runs") as caught:
        open_devices(TrainingConfig(replicas=3))
    assert "fresh process" in str(caught.value.hint)


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
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    nodes: str,
    per_node: str,
    addresses: list[str],
) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    # A node of a cluster with GPUs has the command, and the job may have none.
    command = tmp_path / "nvidia-smi"
    command.write_text("#!/bin/sh\necho No devices found.\nexit 6\n", encoding="utf-8")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("SLURM_PROCID", "2")
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "3")
    monkeypatch.setenv("SLURM_STEP_NODELIST", nodes)
    monkeypatch.setenv("SLURM_STEP_TASKS_PER_NODE", per_node)
    resolver = cluster_resolver()
    assert resolver.cluster_spec().as_dict() == {"worker": addresses}
    assert (resolver.task_type, resolver.task_id) == ("worker", 2)
    assert resolver.num_accelerators() == {"GPU": 0}


@pytest.mark.parametrize(
    ("gpus", "replicas", "expected"), [(0, 2, True), (1, 1, True), (1, 2, True), (2, 2, False)]
)
def test_devices_retry_in_process_unless_nccl_sums(
    monkeypatch: pytest.MonkeyPatch, gpus: int, replicas: int, expected: bool
) -> None:
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [kind] * gpus)
    names = tuple(f"CPU:{index}" for index in range(replicas))
    for function in ("open_gpus", "_open_cpu"):
        monkeypatch.setattr(opening, function, lambda *_: names)
    monkeypatch.setattr(opening, "_strategy", lambda *_, **__: None)
    assert open_devices(TrainingConfig(replicas=replicas)).retries_in_process is expected


def test_agree_and_average_local_variables_change_nothing_when_alone() -> None:
    devices = open_devices(TrainingConfig())
    assert broadcast_from_chief(devices, True)
    assert not broadcast_from_chief(devices, False)
    inputs = keras.layers.Input((2,))
    model = keras.Model(inputs, keras.layers.BatchNormalization()(inputs))
    kept = [variable.aggregation for variable in own_variables(model.variables)]
    average_local_variables(model, devices)
    restore_local_variables(model, devices)
    assert kept
    assert [variable.aggregation for variable in own_variables(model.variables)] == kept


BATCH, STEPS = 8, 7
AUGMENT = {
    "flip": "horizontal", "crop": 2, "rotate": 20, "brightness": 0.2, "cutout": 3, "mixup": 0.4,
}  # fmt: skip
Batch = tuple[np.ndarray, np.ndarray]


class _Local:
    """A strategy that leaves the shares of one machine where they are, one after the other."""

    def distribute_datasets_from_function(self, function: Callable[[Any], Any]) -> Any:
        return function(None)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> DataConfig:
    path: Path = tmp_path_factory.mktemp("data") / "a.npz"
    random = np.random.default_rng(0)
    np.savez(path, x=random.integers(0, 256, (37, 9, 8, 3), np.uint8), y=np.arange(37) % 3)
    value = {"source": "npz", "path": str(path), "augment": AUGMENT, "normalize": {"scale": 0.5}}
    return DataConfig.model_validate(value)


def _shares(
    config: DataConfig, replicas: int, workers: int = 1, worker: int = 0, first_step: int = 0
) -> list[Batch]:
    """Return what the replicas of one of several machines get, step by step."""
    batches = training_batches(
        open_dataset(config, seed=3).train,
        global_batch_size=BATCH,
        seed=3,
        first_step=first_step,
        last_step=STEPS,
        share=(worker, workers),
    )
    names = ("CPU:0",) * (replicas // workers)
    devices = Devices(_Local(), names, on_gpu=False, workers=workers, worker=worker)
    return list(distribute_batches(batches, devices).as_numpy_iterator())


def _joined(shares: list[Batch], per_step: int) -> list[Batch]:
    """Return global batches from the shares of `per_step` replicas each."""
    return [
        (
            np.concatenate([x for x, _ in shares[start : start + per_step]]),
            np.concatenate([y for _, y in shares[start : start + per_step]]),
        )
        for start in range(0, len(shares), per_step)
    ]


def _check_same(found: list[Batch], wanted: list[Batch]) -> None:
    assert len(found) == len(wanted)
    for (x, y), (other_x, other_y) in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(x, other_x)
        np.testing.assert_array_equal(y, other_y)


@pytest.mark.parametrize("replicas", [2, 4])
def test_distribute_batches_gives_any_number_of_replicas_the_same_global_batches(
    config: DataConfig, replicas: int
) -> None:
    shares = _shares(config, replicas)
    assert len(shares) == replicas * STEPS
    _check_same(_joined(shares, replicas), _shares(config, 1))


def test_distribute_batches_gives_two_machines_the_same_global_batches(config: DataConfig) -> None:
    chief, other = (_shares(config, 4, workers=2, worker=worker) for worker in (0, 1))
    steps = [
        share
        for step in range(STEPS)
        for machine in (chief, other)
        for share in machine[2 * step : 2 * step + 2]
    ]
    _check_same(_joined(steps, 4), _shares(config, 1))


def test_distribute_batches_gives_the_same_after_a_resume_with_other_replicas(
    config: DataConfig,
) -> None:
    _check_same(_joined(_shares(config, 2, first_step=4), 2), _shares(config, 1)[4:])


def test_distribute_batches_gives_shares_that_differ_by_one_example_at_most(
    config: DataConfig,
) -> None:
    sizes = [len(y) for _, y in _shares(config, 4)]
    assert sizes[:8] == [2] * 8
    assert sorted(sizes[12:16]) == [0, 0, 0, 1]  # 25 examples train: 1 is left in an epoch


def prefetched() -> list[str]:
    """Return where the batches of a single device wait; the device is no GPU, but another one."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    batches = tf.data.Dataset.from_tensors((tf.ones((3, 2)), tf.ones(3))).repeat(2)
    return [
        batch[0].device
        for on_gpu in (True, False)
        for batch in distribute_batches(batches, Devices(_Local(), ("CPU:1",), on_gpu=on_gpu))
    ]


def test_distribute_batches_has_the_next_batch_wait_on_a_single_gpu() -> None:
    places = call(__name__, "prefetched")
    assert [place.rpartition("/device:")[2] for place in places] == ["CPU:1"] * 2 + ["CPU:0"] * 2


@pytest.mark.parametrize(("examples", "batch", "smallest"), [(25, 8, 1), (24, 8, 8), (5, 8, 5)])
def test_smallest_batch_is_what_an_epoch_ends_with(
    examples: int, batch: int, smallest: int
) -> None:
    assert smallest_batch(examples, batch) == smallest
