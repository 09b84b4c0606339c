"""A run in MLflow: a parent with the recipe and the report, and a nested run per stage."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from shrink.base.errors import ResourceError
from shrink.contract.events import Send
from shrink.contract.job import TrackerJob
from shrink.contract.report import Report, Stage
from shrink.contract.report_file import read_report
from shrink.report.content import recipe_of, stage_figures

_LONGEST_PARAMETER = 500
_FILES = ("report.json", "report.html", "report.md", "recipe.resolved.yaml")


def log_to_mlflow(job: TrackerJob, send: Send) -> dict[str, Any]:
    """Log the job's run folder to the tracking server `target`.

    Returns:
        `run_id` of the parent run.

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
            return {"run_id": _log(mlflow, report, folder)}
        except (mlflow.exceptions.MlflowException, OSError) as error:
            raise ResourceError(
                f"MLflow refuses: {' '.join(str(error).split())[:300]}",
                subject=job.target,
                hint="check the address; `shrink report RUN_DIR --mlflow URI` logs the run again",
            ) from error


def _log(mlflow: Any, report: Report, folder: Path) -> str:
    with mlflow.start_run(run_name=report.recipe.name) as parent:
        mlflow.set_tags({"passed": report.passed, "shrink": report.environment.shrink})
        mlflow.log_params(_parameters(report))
        finals = [stage for stage in report.stages if stage.name in report.finals]
        for stage in finals[-1:]:
            mlflow.log_metrics(stage_figures(stage))
        for name in _FILES:
            if (folder / name).is_file():
                mlflow.log_artifact(str(folder / name))
        for stage in report.stages:
            with mlflow.start_run(run_name=stage.name, nested=True):
                _log_stage(mlflow, stage, folder)
    return str(parent.info.run_id)


def _log_stage(mlflow: Any, stage: Stage, folder: Path) -> None:
    mlflow.set_tags({"kind": stage.kind, "status": stage.status})
    mlflow.log_metrics(stage_figures(stage))
    for name, values in (stage.training.history if stage.training else {}).items():
        for epoch, value in enumerate(values, start=1):
            if value is not None:
                mlflow.log_metric(f"epoch_{name}", value, step=epoch)
    if stage.artifact and (folder / stage.artifact).is_file():
        mlflow.log_artifact(str(folder / stage.artifact), "artifacts")


def _parameters(report: Report) -> dict[str, str]:
    return {name: text[:_LONGEST_PARAMETER] for name, text in _flat(recipe_of(report), "")}


def _flat(value: Any, prefix: str) -> Iterator[tuple[str, str]]:
    pairs = value.items() if isinstance(value, Mapping) else enumerate(value)
    for key, item in pairs:
        name = f"{prefix}{key}"
        if isinstance(item, Mapping | list) and item:
            yield from _flat(item, f"{name}.")
        elif item is not None:
            yield name, str(item)
