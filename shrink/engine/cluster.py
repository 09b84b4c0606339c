"""The devices of several machines that train one model together."""

from __future__ import annotations

import functools
import os
import shutil
from typing import Any

import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import RecipeError
from shrink.contract.training import Training
from shrink.engine.devices import Devices, open_gpus

Resolvers = tf.distribute.cluster_resolver


def open_cluster(config: Training) -> Devices:
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
    workers = replicas // len(names)
    return Devices(strategy, names, bool(gpus), workers=workers, worker=_index(strategy))


def cluster_resolver() -> Any:
    """Return what knows the addresses of all workers: from `TF_CONFIG`, else from Slurm."""
    if os.environ.get("TF_CONFIG"):
        return Resolvers.TFConfigClusterResolver()
    if shutil.which("nvidia-smi"):
        return Resolvers.SlurmClusterResolver()
    return _without_gpus()


def _without_gpus() -> Any:
    """Return the workers that Slurm started on machines without GPUs.

    TensorFlow's resolver hands out GPUs along with the ports, and fails where there are none: it
    is told of one per task here, which nobody opens.
    """
    tasks = int(os.environ["SLURM_STEP_NUM_TASKS"])
    slurm = Resolvers.SlurmClusterResolver(gpus_per_node=tasks, gpus_per_task=1, auto_set_gpu=False)
    spec = slurm.cluster_spec()
    kind, index = slurm.get_task_info()
    return Resolvers.SimpleClusterResolver(
        spec, task_type=kind, task_id=index, num_accelerators={"GPU": 0}, rpc_layer="grpc"
    )


def _index(strategy: tf.distribute.Strategy) -> int:
    """Return this worker's number: chiefs come before workers."""
    resolver = strategy.cluster_resolver
    chiefs = len(resolver.cluster_spec().as_dict().get("chief", []))
    return int(resolver.task_id) + (chiefs if resolver.task_type == "worker" else 0)


def broadcast_from_chief(devices: Devices, value: bool) -> bool:
    """Return the chief's value; called by all workers in the same step."""
    if devices.workers == 1:
        return value
    strategy = devices.strategy
    total = _sum_over_replicas(strategy)(tf.constant(float(value and devices.worker == 0)))
    return float(strategy.experimental_local_results(total)[0]) > 0


def share_weights(model: keras.Model, devices: Devices) -> None:
    """Give all workers the chief's weights.

    What a stage did to the weights before training, each machine did for itself: a difference in
    the last digit would stay, and replicas would no longer be copies.
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
def _sum_over_replicas(strategy: tf.distribute.Strategy) -> Any:
    def reduce(values: Any) -> Any:
        context = tf.distribute.get_replica_context()
        # Constants are on no device, and cannot be reduced from there.
        values = tf.nest.map_structure(tf.identity, values)
        return context.all_reduce(tf.distribute.ReduceOp.SUM, values)

    return tf.function(lambda values: strategy.run(reduce, args=(values,)))


def average_local_variables(model: keras.Model, devices: Devices) -> None:
    """Give variables of which each replica has its own value, such as statistics, the joint one.

    Whatever reads them in this process afterwards finds the same: saving reads what replicas have
    together (their mean, of batch normalisation), but a conversion the first replica's alone. A
    chief reads them without the other workers.
    """
    if devices.replicas == 1:
        return
    for variable in own_variables(model.variables):
        joint = variable.read_value()
        for copy in devices.strategy.experimental_local_results(variable):
            copy.assign(joint)
        # What a read in cross-replica context does is decided by this alone.
        variable._aggregation_of_training = variable._aggregation
        variable._aggregation = tf.VariableAggregation.ONLY_FIRST_REPLICA


def restore_local_variables(model: keras.Model, devices: Devices) -> None:
    """Let variables of each replica be joined again as before they were, for another training."""
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


def own_variables(variables: Any) -> list[Any]:
    """Return the variables of which each replica has a value of its own."""
    own = tf.VariableSynchronization.ON_READ
    return [variable for variable in variables if variable.synchronization == own]
