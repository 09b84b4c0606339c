"""`shrink doctor`: tries TensorFlow, LiteRT and TFLite Micro in a worker."""

from __future__ import annotations

import time
from dataclasses import replace

from shrink.base import files
from shrink.base.host import UNUSED_GPU_HINT, host_peak_bytes, unused_gpu
from shrink.base.packages import lacks_keras
from shrink.base.progress import Phase
from shrink.contract.events import Send
from shrink.contract.findings import Worked
from shrink.contract.job import DoctorJob
from shrink.measure.inference import measure_inference, one_op_model
from shrink.tflite.arena import arena_of


def doctor(job: DoctorJob, send: Send) -> Worked:
    """Make one training step where TensorFlow is installed, and run a small artifact."""
    worked = Worked() if lacks_keras() else _try_training(send)
    problems, limits = [*worked.problems], [*worked.limits]
    send(Phase("running an artifact"))
    path = job.work / "one_op.tflite"
    files.write_bytes(path, one_op_model())
    if (p50 := measure_inference(path).p50_ms).value is None:
        problems.append(f"LiteRT does not run: {p50.reason}")
    if (arena := arena_of(path)).value is None:
        limits.append(f"the arena will be missing: {arena.reason}")
    return replace(
        worked,
        host_peak_bytes=host_peak_bytes(),
        problems=tuple(problems),
        limits=tuple(limits),
    )


def _try_training(send: Send) -> Worked:
    started = time.perf_counter()
    import tensorflow as tf

    from shrink.measure.training_peak import TrainingPeak

    imported = time.perf_counter() - started
    problems, limits = [], []
    gpus = tf.config.list_physical_devices("GPU")
    devices = [*tf.config.list_physical_devices("CPU"), *gpus]
    if unused := unused_gpu(bool(gpus)):
        problems.append(f"{unused}: {UNUSED_GPU_HINT}")
    send(Phase("training"))
    step_s = _training_step_s()
    peak = TrainingPeak(["GPU:0" if gpus else "CPU:0"])
    if peak.note:
        limits.append(f"training_peak_bytes will be missing: {peak.note}")
    elif not peak.is_complete:
        limits.append(f"training_peak_bytes will be a lower bound: {peak.small.note}")
    return Worked(
        devices=tuple(device.name.removeprefix("/physical_device:") for device in devices),
        tensorflow_import_s=imported,
        training_step_s=step_s,
        problems=tuple(problems),
        limits=tuple(limits),
    )


def _training_step_s() -> float:
    import numpy as np
    import tf_keras as keras

    started = time.perf_counter()
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(2)])
    model.compile("adam", "mean_squared_error")
    model.fit(np.zeros((8, 4), np.float32), np.zeros((8, 2), np.float32), verbose=0)
    return time.perf_counter() - started
