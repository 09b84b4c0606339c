"""A profile of some training steps, as TensorBoard's profiler reads it."""

from __future__ import annotations

from pathlib import Path

import tensorflow as tf

from shrink.base import files
from shrink.engine.probe import TrainingStep

_STEPS = 4


def write_trace(step: TrainingStep, rows: int, folder: Path, work: Path) -> list[str]:
    """Trace a few training steps and return the files that were written.

    Args:
        step: the training step.
        rows: examples per replica and step, all in one micro-batch.
        folder: TensorBoard's log folder; the profile is at `plugins/profile/<time>/` in it.
        work: where TensorFlow writes first.

    Raises:
        ResourceError: out of memory, or the folder cannot be written.
    """
    step.use_no_loop()
    batches = step.batches(rows)
    step.make_update(batches)  # builds the graph, which no other step does
    tf.profiler.experimental.start(str(work))
    try:
        for number in range(_STEPS):
            with tf.profiler.experimental.Trace("train", step_num=number, _r=1):
                step.make_update(batches)
    finally:
        tf.profiler.experimental.stop()
    written = []
    for source in sorted(work.rglob("*.xplane.pb")):
        target = folder / source.relative_to(work)
        files.write_bytes(target, source.read_bytes())
        written.append(str(target))
    return written
