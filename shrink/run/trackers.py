"""Finished runs for experiment trackers, by a worker each: TensorBoard logs, MLflow runs."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from shrink.base.console import Console
from shrink.base.errors import ResourceError
from shrink.base.versions import extra_hint
from shrink.contract.job import TrackerJob
from shrink.run.tool import run_action


@dataclass(frozen=True)
class Trackers:
    """Where a run is told of, beside its folder.

    Attributes:
        tensorboard: a folder for logs.
        mlflow: a tracking address, such as `http://host:5000`.
    """

    tensorboard: Path | None = None
    mlflow: str | None = None

    def check(self) -> None:
        """Raise `ResourceError` where a package is missing, before anything is computed."""
        if self.mlflow is not None and importlib.util.find_spec("mlflow") is None:
            raise ResourceError(
                "MLflow is not installed",
                subject="--mlflow",
                hint=extra_hint("mlflow"),
            )

    def publish(self, run: Path, console: Console) -> Iterator[str]:
        """Tell every tracker of the run in this folder; yield where it can be looked at.

        Raises:
            ResourceError: a tracker refuses.
        """
        report = run.resolve()
        if self.tensorboard is not None:
            target = str(self.tensorboard.resolve())
            job = TrackerJob(action="tensorboard", name="tensorboard", report=report, target=target)
            told = run_action(job, console)
            yield f"TensorBoard: {told['path']}"
        if self.mlflow is not None:
            job = TrackerJob(action="mlflow", name="mlflow", report=report, target=self.mlflow)
            told = run_action(job, console)
            yield f"MLflow: run {told['run_id']} at {self.mlflow}"
