from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any, Literal

import pytest
import tensorflow as tf
from tensorflow.core.util.event_pb2 import Event

from shrink.base.errors import ResourceError
from shrink.contract.codec import to_plain
from shrink.contract.job import TrackerJob
from shrink.run.tool import Trackers
from shrink.tools.trackers import log_to_mlflow, write_tensorboard
from tests.report.toys import outcomes, report, with_result


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder of three stages; the first trained for two epochs, one point of them unknown."""
    train, *others = outcomes()
    timeline = {"update": [1, 2], "device_bytes": [None, 5_000_000], "host_bytes": [1, 2]}
    training = to_plain(train.result.training) | {"memory_timeline": timeline}
    built = report([with_result(train, training=training), *others])
    built["resolved_recipe"] = "name: digits\nstages:\n- train: {epochs: 2}\n"
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "report.json").write_text(json.dumps(built), encoding="utf-8")
    return folder


def nothing(*_: Any, **__: Any) -> None:
    """Hear of no progress."""


def job(action: Literal["tensorboard", "mlflow"], run: Path, target: str) -> TrackerJob:
    return TrackerJob(action=action, name=action, report=run, target=target)


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What is logged in a folder: pairs of step and value by tag."""
    found: dict[str, list[tuple[int, float]]] = {}
    for record in tf.data.TFRecordDataset([str(path) for path in folder.iterdir()]):
        event = Event.FromString(record.numpy())
        for value in event.summary.value:
            if value.metadata.plugin_data.plugin_name != "text":
                number = float(tf.make_ndarray(value.tensor))
                found.setdefault(value.tag, []).append((event.step, number))
    return found


def test_write_tensorboard_logs_epochs_memory_and_figures(run: Path, tmp_path: Path) -> None:
    told = write_tensorboard(job("tensorboard", run, str(tmp_path / "logs")), nothing)
    logs = Path(told.place)
    assert logs == tmp_path / "logs" / "digits"
    train = scalars(logs / "train")
    assert [step for step, _ in train["epoch_loss"]] == [1, 2]
    assert [value for _, value in train["epoch_loss"]] == pytest.approx([0.5, 0.1])
    assert train["memory/device_bytes"] == [(2, 5_000_000)]
    assert scalars(logs / "figures")["tflite_bytes"] == [(0, 100_000), (1, 50_000), (2, 14_000)]
    assert not (logs / "quantize").exists()


def test_check_names_the_extra_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    Trackers(tensorboard=Path("logs")).check()
    with pytest.raises(ResourceError, match="not installed") as caught:
        Trackers(mlflow="sqlite:///m.db").check()
    assert "pip install 'mlflow-skinny" in str(caught.value.hint)


def test_log_to_mlflow_has_a_nested_run_per_stage(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow", reason="the extra [mlflow] is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    target = (tmp_path / "tracked").as_uri()
    told = log_to_mlflow(job("mlflow", run, target), nothing)
    client = mlflow.MlflowClient(target)
    parent = client.get_run(told.place)
    assert parent.data.params["stages.train.epochs"] == "2"
    assert parent.data.metrics["tflite_bytes"] == 14_000
    stages = client.search_runs([parent.info.experiment_id], "tags.`mlflow.parentRunId` != ''")
    assert {one.info.run_name for one in stages} == {"train", "prune", "quantize"}
    train = next(one for one in stages if one.info.run_name == "train")
    history = client.get_metric_history(train.info.run_id, "epoch_loss")
    assert [(m.step, m.value) for m in history] == [(1, 0.5), (2, 0.1)]
