"""Logs of runs for TensorBoard and MLflow."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import tensorflow as tf

from shrink.base.errors import ResourceError
from shrink.contract.details import Training
from shrink.contract.events import Send
from shrink.contract.findings import Tracked
from shrink.contract.job import TrackerJob
from shrink.contract.report import Stage
from shrink.contract.report_file import read_report
from shrink.recipe.recipe_diff import settings_of
from shrink.report.content import stage_figures
from shrink.report.sections import render_markdown

_SCALAR, _TENSOR = 1, 2
"""What TensorBoard calls data classes."""
_TIMELINE = ("device_bytes", "host_bytes")


def write_tensorboard(job: TrackerJob, send: Send) -> Tracked:
    """Write the logs of the job's report below its `target` folder.

    A folder per stage has the metrics by epoch and the memory by update; the folder `figures` has
    every figure of the report, by the number of the stage, and the report itself as text.

    Returns:
        the folder.
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
    return Tracked(place=str(target))


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


_LONGEST_PARAMETER = 500
_FILES = ("report.json", "report.html", "report.md", "recipe.resolved.yaml")


def log_to_mlflow(job: TrackerJob, send: Send) -> Tracked:
    """Log the job's run folder to the tracking server `target`.

    Returns:
        the id of the parent run.

    Raises:
        ResourceError: the server cannot be reached, or refuses.
    """
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import mlflow

        folder = job.report
        report = read_report(folder)
        try:
            mlflow.set_tracking_uri(job.target)
            mlflow.set_experiment(report.recipe.name)
            with mlflow.start_run(run_name=report.recipe.name) as parent:
                mlflow.set_tags({"passed": report.passed, "shrink": report.environment.shrink})
                mlflow.log_params(
                    {k: text[:_LONGEST_PARAMETER] for k, text in settings_of(report).items()}
                )
                finals = [stage for stage in report.stages if stage.name in report.finals]
                for stage in finals[-1:]:
                    mlflow.log_metrics(stage_figures(stage))
                for name in _FILES:
                    if (folder / name).is_file():
                        mlflow.log_artifact(str(folder / name))
                for stage in report.stages:
                    with mlflow.start_run(run_name=stage.name, nested=True):
                        _log_stage(mlflow, stage, folder)
            return Tracked(place=str(parent.info.run_id))
        except (mlflow.exceptions.MlflowException, OSError) as error:
            raise ResourceError(
                f"MLflow refuses: {' '.join(str(error).split())[:300]}",
                subject=job.target,
                hint="check the address; `shrink report RUN_DIR --mlflow URI` logs the run again",
            ) from error


def _log_stage(mlflow: Any, stage: Stage, folder: Path) -> None:
    mlflow.set_tags({"kind": stage.kind, "status": stage.status})
    mlflow.log_metrics(stage_figures(stage))
    for name, values in (stage.training.history if stage.training else {}).items():
        for epoch, value in enumerate(values, start=1):
            if value is not None:
                mlflow.log_metric(f"epoch_{name}", value, step=epoch)
    if stage.artifact and (folder / stage.artifact).is_file():
        mlflow.log_artifact(str(folder / stage.artifact), "artifacts")
