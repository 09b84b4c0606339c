"""Devices of a run on one machine or several, and which examples each replica sees."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import RecipeError, ResourceError
from shrink.base.host import host_free_bytes
from shrink.base.types import Tensors
from shrink.engine.config import TrainingConfig
from shrink.measure.small_tensors import map_large_blocks

MEBIBYTE = 2**20
_FLOAT64 = 8
_MOST_ELEMENTS = 2**31 - 1
_REGION = 1024 * MEBIBYTE
_SPARE = 4 * MEBIBYTE
"""Memory that TensorFlow may hold already, so that the region fits under a real limit."""


@dataclass(frozen=True)
class Devices:
    """Where models are trained.

    Attributes:
        strategy: TensorFlow's default strategy for one replica, else a `MirroredStrategy`.
        device_names: one logical device for each replica of this process, such as `GPU:0`.
        on_gpu: whether those devices are GPUs.
        workers: processes that train together, each with as many replicas.
        worker: this one's number; 0 is the chief.
        in_order: whether operations run one after the other, so that every step has the same peak.
        enforced: whether the allocator itself refuses what is above the limit.
        nccl: whether gradients are summed by NCCL: a GPU for each of several replicas.
    """

    strategy: tf.distribute.Strategy
    device_names: tuple[str, ...]
    on_gpu: bool
    workers: int = 1
    worker: int = 0
    in_order: bool = False
    enforced: bool = False
    nccl: bool = False

    @property
    def retries_in_process(self) -> bool:
        """Whether a step that ran out of memory on one replica can be repeated in this process.

        Other processes would wait for it forever, and NCCL may not work again after an abort.
        """
        return self.workers == 1 and not self.nccl

    @property
    def share(self) -> tuple[int, int]:
        """Which of how many machines this is: of each global batch it reads its part alone."""
        return self.worker, self.workers

    @property
    def replicas(self) -> int:
        """Copies of the model on all machines, each with its share of every global batch."""
        return self.workers * len(self.device_names)

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Create models and optimizers in here, so that each replica gets its copy."""
        with self.strategy.scope():
            yield


def open_devices(config: TrainingConfig) -> Devices:
    """Configure the devices that a recipe asks for; call it before anything runs on TensorFlow.

    Sets the process's global Keras dtype policy to `config.precision`. Where there is no GPU,
    replicas are logical CPU devices, which TensorFlow cannot limit in memory. The CPU's
    allocator has one large region, and under a `memory_limit` a single replica runs one operation
    after the other (an operation still uses all cores): every step has the same peak.

    Raises:
        RecipeError: more replicas than GPUs without a `memory_limit` to split the GPUs by.
        ResourceError: TensorFlow already runs with other devices.
    """
    gpus = tf.config.list_physical_devices("GPU")
    replicas = max(1, len(gpus)) if config.replicas == "auto" else config.replicas
    try:
        open_them = open_gpus if gpus else _open_cpu
        names = open_them(gpus, replicas, config.memory_limit)
    except RuntimeError as error:
        raise ResourceError(
            f"TensorFlow already runs with other devices than {replicas} replicas need: {error}",
            subject="training.replicas",
            hint="train each stage in a fresh process",
        ) from error
    keras.mixed_precision.set_global_policy(config.precision)
    shared = bool(gpus) and replicas > len(gpus)
    in_order = config.memory_limit is not None and not gpus and replicas == 1
    enforced = _cpu_is_limited() if not gpus else config.memory_limit is not None
    return Devices(
        _strategy(names, shared=shared),
        names,
        on_gpu=bool(gpus),
        in_order=in_order,
        enforced=enforced,
        nccl=bool(gpus) and replicas > 1 and not shared,
    )


def _open_cpu(
    _: list[tf.config.PhysicalDevice], replicas: int, memory_limit: int | None
) -> tuple[str, ...]:
    map_large_blocks()
    if replicas > 1:
        cpu = tf.config.list_physical_devices("CPU")[0]
        logical = [tf.config.LogicalDeviceConfiguration() for _ in range(replicas)]
        tf.config.set_logical_device_configuration(cpu, logical)
    elif memory_limit is not None:
        # Operations that overtake each other decide whether an activation is freed, or reused in
        # place, before the next is allocated: with two threads peaks differed by a fifth.
        tf.config.threading.set_inter_op_parallelism_threads(1)
    if not _cpu_is_limited():
        # Twice: a region of the limit alone would have no piece left to split near its end.
        _open_region(_REGION if memory_limit is None else 2 * memory_limit)
    elif memory_limit is not None:
        _open_region(memory_limit - _SPARE)
    return tuple(f"CPU:{index}" for index in range(replicas))


def _cpu_is_limited() -> bool:
    """Whether the user limits TensorFlow's CPU allocator; shrink never does."""
    uses_bfc = os.environ.get("TF_CPU_ALLOCATOR_USE_BFC", "").lower() in ("1", "true")
    return uses_bfc and "TF_CPU_BFC_MEM_LIMIT_IN_MB" in os.environ


def _open_region(most: int) -> None:
    """Make the CPU's allocator ask for one region of `most` bytes, at most half of what is free.

    Left to itself, it asks for regions of 1, 2, 4, ... MiB as training goes on. A tensor takes a
    whole free chunk of up to twice its size where splitting would leave less than it needs, and
    where regions end decides how often: peaks then differed by a quarter between a process that
    had probed smaller sizes and one that had not. The region is not touched, and takes no memory
    before it is used, but the allocator's table of it does: a 32nd of its size.
    """
    elements = int(min(min(most, host_free_bytes() / 2) / _FLOAT64, _MOST_ELEMENTS))
    # Without a region training works all the same.
    with tf.device("CPU:0"), contextlib.suppress(tf.errors.ResourceExhaustedError):
        tf.raw_ops.Empty(shape=[max(1, elements)], dtype=tf.float64, init=False)


def open_gpus(
    gpus: list[tf.config.PhysicalDevice], replicas: int, memory_limit: int | None
) -> tuple[str, ...]:
    """Create a logical GPU for each replica, and return their names.

    Raises:
        RecipeError: more replicas than GPUs without a limit to split the GPUs by.
    """
    used = gpus[:replicas]
    tf.config.set_visible_devices(used, "GPU")
    if memory_limit is None:
        if replicas > len(used):
            raise RecipeError(
                f"{replicas} replicas on {len(used)} GPU(s) share their memory,"
                " and no memory limit says how to split it",
                subject="training.replicas",
                hint="set training.memory_limit, the memory of each replica",
            )
        for gpu in used:
            tf.config.experimental.set_memory_growth(gpu, True)
        return tuple(f"GPU:{index}" for index in range(replicas))
    if memory_limit < MEBIBYTE:
        raise RecipeError(
            "a GPU's memory limit is at least 1MiB",
            subject="training.memory_limit",
            hint="write it with a unit, such as 2GB",
        )
    logical = tf.config.LogicalDeviceConfiguration(memory_limit=memory_limit // MEBIBYTE)
    for index, gpu in enumerate(used):
        shares = len(range(index, replicas, len(used)))
        tf.config.set_logical_device_configuration(gpu, [logical] * shares)
    return tuple(f"GPU:{index}" for index in range(replicas))


def _strategy(names: tuple[str, ...], *, shared: bool) -> tf.distribute.Strategy:
    if len(names) == 1:
        return tf.distribute.get_strategy()
    # NCCL refuses two ranks on one GPU.
    operations = tf.distribute.HierarchicalCopyAllReduce() if shared else None
    return tf.distribute.MirroredStrategy(list(names), cross_device_ops=operations)


def distribute_batches(
    batches: tf.data.Dataset, devices: Devices
) -> tf.data.Dataset | tf.distribute.DistributedDataset:
    """Return what Keras' `fit` takes: each step is one global batch, split over replicas.

    Shares differ by one example at most, and are empty where there are fewer examples than
    replicas. TensorFlow's own rebatching leaves whole replicas without work instead: of 13
    examples in batches of 24, three replicas get 8, 5 and none.

    A single GPU has its next batch copied while it computes, as several have.

    Args:
        batches: a `tf.data.Dataset` of structures of (n, ...) tensors, this machine's share of each
            global batch.
        devices: where the replicas are.
    """
    local = len(devices.device_names)
    if devices.replicas == 1:
        device = f"/{devices.device_names[0]}"
        prefetch = tf.data.experimental.prefetch_to_device(device)
        return batches.apply(prefetch) if devices.on_gpu else batches

    def split(*batch: Tensors) -> tf.data.Dataset:
        rows = tf.shape(tf.nest.flatten(batch)[0], out_type=tf.int64)[0]

        def share(replica: tf.Tensor) -> Tensors:
            start, stop = rows * replica // local, rows * (replica + 1) // local
            return tf.nest.map_structure(lambda tensor: tensor[start:stop], batch)

        return tf.data.Dataset.range(local).map(share)

    shares = batches.flat_map(split)
    return devices.strategy.distribute_datasets_from_function(lambda _: shares)


def smallest_batch(examples: int, batch_size: int) -> int:
    """Return the size of the smallest batch of an epoch; 0 without examples."""
    return examples % batch_size or min(examples, batch_size)


Resolvers = tf.distribute.cluster_resolver


def open_cluster(config: TrainingConfig) -> Devices:
    """Join the other workers, and configure this machine's devices.

    Waits until all of them are there. Each worker has its GPUs as replicas, or one on its CPU.

    Raises:
        RecipeError: `training.replicas` is not the number of replicas that there are.
    """
    resolver = cluster_resolver()
    resolver.cluster_spec()  # under Slurm this hides the GPUs of other tasks
    gpus = tf.config.list_physical_devices("GPU")
    names = open_gpus(gpus, len(gpus), config.memory_limit) if gpus else ("CPU:0",)
    strategy = tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=resolver)
    replicas = strategy.num_replicas_in_sync
    if config.replicas not in ("auto", replicas):
        raise RecipeError(
            f"the machines have {replicas} replicas, and the recipe asks for {config.replicas}",
            subject="training.replicas",
            hint="leave it auto: every GPU of every machine",
        )
    keras.mixed_precision.set_global_policy(config.precision)
    resolver = strategy.cluster_resolver
    chiefs = len(resolver.cluster_spec().as_dict().get("chief", []))
    worker = int(resolver.task_id) + (chiefs if resolver.task_type == "worker" else 0)
    workers = replicas // len(names)
    return Devices(strategy, names, bool(gpus), workers=workers, worker=worker)


def cluster_resolver() -> tf.distribute.cluster_resolver.ClusterResolver:
    """Return the resolver of all workers' addresses: from `TF_CONFIG`, else from Slurm."""
    if os.environ.get("TF_CONFIG"):
        return Resolvers.TFConfigClusterResolver()
    # TensorFlow would keep the GPUs of other tasks, if it listed them.
    if shutil.which("nvidia-smi"):
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
        if listed.returncode == 0 and listed.stdout.startswith("GPU "):
            return Resolvers.SlurmClusterResolver()
    # TensorFlow's resolver hands out GPUs along with the ports, and fails where there are none: it
    # gets one for each task here, and never opens it.
    tasks = int(os.environ["SLURM_STEP_NUM_TASKS"])
    slurm = Resolvers.SlurmClusterResolver(gpus_per_node=tasks, gpus_per_task=1, auto_set_gpu=False)
    spec = slurm.cluster_spec()
    kind, index = slurm.get_task_info()
    return Resolvers.SimpleClusterResolver(
        spec, task_type=kind, task_id=index, num_accelerators={"GPU": 0}, rpc_layer="grpc"
    )


def broadcast_from_chief(devices: Devices, value: bool) -> bool:
    """Return the chief's value; called by all workers in the same step."""
    if devices.workers == 1:
        return value
    strategy = devices.strategy
    total = _sum_over_replicas(strategy)(tf.constant(float(value and devices.worker == 0)))
    return float(strategy.experimental_local_results(total)[0]) > 0


def share_weights(model: keras.Model, devices: Devices) -> None:
    """Give all workers the chief's weights.

    Each machine prepared its own weights: a difference in the last digit would stay, and replicas
    would not be copies.
    """
    if devices.workers == 1:
        return
    strategy, variables = devices.strategy, list(model.variables)
    factor = float(devices.worker == 0) / len(devices.device_names)
    mine = [tf.cast(variable.read_value(), tf.float64) * factor for variable in variables]
    totals = _sum_over_replicas(strategy)(mine)
    for variable, total in zip(variables, totals, strict=True):
        value = strategy.experimental_local_results(total)[0]
        for copy in strategy.experimental_local_results(variable):
            copy.assign(tf.cast(value, copy.dtype))


@functools.cache
def _sum_over_replicas(strategy: tf.distribute.Strategy) -> Callable[[Tensors], Tensors]:
    def reduce(values: Tensors) -> Tensors:
        context = tf.distribute.get_replica_context()
        # Constants are on no device, and cannot be reduced from there.
        values = tf.nest.map_structure(tf.identity, values)
        return context.all_reduce(tf.distribute.ReduceOp.SUM, values)

    return tf.function(lambda values: strategy.run(reduce, args=(values,)))


def average_local_variables(model: keras.Model, devices: Devices) -> None:
    """Give variables that differ between replicas, such as statistics, their joint value.

    Saving reads the joint value (of batch normalisation the mean), but a conversion reads that of
    the first replica: they are the same afterwards, and a chief reads them without other workers.
    """
    if devices.replicas == 1:
        return
    for variable in own_variables(model.variables):
        joint = variable.read_value()
        for copy in devices.strategy.experimental_local_results(variable):
            copy.assign(joint)
        # This decides what a read in cross-replica context does.
        variable._aggregation_of_training = variable._aggregation
        variable._aggregation = tf.VariableAggregation.ONLY_FIRST_REPLICA


def restore_local_variables(model: keras.Model, devices: Devices) -> None:
    """Undo `average_local_variables` for another training."""
    if devices.replicas == 1:
        return
    for variable in own_variables(model.variables):
        before = vars(variable).pop("_aggregation_of_training", None)
        if before is None:
            continue
        variable._aggregation = before
        if before == tf.VariableAggregation.SUM:
            copies = devices.strategy.experimental_local_results(variable)
            for copy in copies[int(devices.worker == 0) :]:  # the first of all has the sum
                copy.assign(tf.zeros_like(copy))


def own_variables(variables: Iterable[tf.Variable]) -> list[tf.Variable]:
    """Return the variables of which each replica has a value of its own."""
    own = tf.VariableSynchronization.ON_READ
    return [variable for variable in variables if variable.synchronization == own]
