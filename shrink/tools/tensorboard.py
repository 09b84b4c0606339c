"""A run's curves and figures as TensorBoard logs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

from shrink.contract.details import Training
from shrink.contract.events import Send
from shrink.contract.job import TrackerJob
from shrink.contract.report_file import read_report
from shrink.report.content import stage_figures
from shrink.report.text import render_markdown

_SCALAR, _TENSOR = 1, 2
"""What TensorBoard calls data classes."""
_TIMELINE = ("device_bytes", "host_bytes")


def write_tensorboard(job: TrackerJob, send: Send) -> dict[str, Any]:
    """Write the logs of the job's report below its `target` folder.

    A folder per stage has the metrics by epoch and the memory by update; the folder `figures` has
    every figure of the report, by the number of the stage, and the report itself as text.

    Returns:
        `path`, the folder.
    """
    report = read_report(job.report)
    target = Path(job.target) / report.recipe.name
    for stage in report.stages:
        if stage.training:
            with tf.summary.create_file_writer(str(target / stage.name)).as_default():
                _write_training(stage.training)
    with tf.summary.create_file_writer(str(target / "figures")).as_default():
        _write("report", render_markdown(report), "text", step=0)
        for step, stage in enumerate(report.stages):
            for name, value in stage_figures(stage).items():
                _write(name, value, "scalars", step=step)
    return {"path": str(target)}


def _write_training(training: Training) -> None:
    for name, values in training.history.items():
        for epoch, value in enumerate(values, start=1):
            if value is not None:
                _write(f"epoch_{name}", value, "scalars", step=epoch)
    timeline = training.memory_timeline
    for name in _TIMELINE:
        rows = zip(timeline.get("update", ()), timeline.get(name, ()), strict=False)
        for update, value in rows:
            if update is not None and value is not None:
                _write(f"memory/{name}", value, "scalars", step=int(update))


def _write(tag: str, value: float | str, plugin: str, step: int) -> None:
    """Write one value; `tf.summary.scalar` and `text` would do so if TensorBoard were installed."""
    metadata = tf.compat.v1.SummaryMetadata()
    metadata.plugin_data.plugin_name = plugin
    metadata.data_class = _SCALAR if plugin == "scalars" else _TENSOR
    tensor = tf.constant(value, tf.string if isinstance(value, str) else tf.float32)
    tf.summary.write(tag, tensor, step=step, metadata=metadata)
