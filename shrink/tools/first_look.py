"""What a first recipe is written from: the model's size and kind, and the data beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset, open_dataset
from shrink.errors import ModelError
from shrink.graph.groups import find_groups
from shrink.model.load import load_source
from shrink.recipe.task import TaskConfig
from shrink.run import files
from shrink.stages.task import Task, artifact_interface, keras_interface, resolve_task
from shrink.tflite.arena import arena_bytes
from shrink.tflite.convert import convert
from shrink.tflite.flatbuffer import parameters, quantized_operators


def first_look(job: Mapping[str, Any], send: Callable[..., None]) -> dict[str, Any]:
    """Return what the job's model and data are.

    Returns:
        `parameters`, `float_bytes` (the size as float32 .tflite), `arena_bytes` of that form or
        None, `groups` (channel groups that can be pruned, 0 for an artifact), `metric` and `loss`,
        `train`, `validation` and `test` (examples), `classes` (0 where targets are real).

    Raises:
        ShrinkError: the model or the data cannot be read, or they do not belong together.
    """
    send("phase", name="reading the data")
    dataset = open_dataset(DataConfig.model_validate(job["data"]), int(job["seed"]))
    send("phase", name="looking at the model")
    path, groups = Path(job["work"]) / "float32.tflite", 0
    if job["model"]["kind"] == "tflite":
        content = _float_artifact(Path(job["model"]["path"]))
        files.write_bytes(path, content)
        task = resolve_task(TaskConfig(), dataset, artifact_interface(path, dataset))
    else:
        model = load_source(job["model"])
        task = resolve_task(TaskConfig(), dataset, keras_interface(model))
        content, groups = convert(model, "float32").content, len(find_groups(model).groups)
        files.write_bytes(path, content)
    return {
        "parameters": parameters(content),
        "float_bytes": len(content),
        "arena_bytes": arena_bytes(path).value,
        "groups": groups,
        **_measured_by(task, dataset),
    }


def _float_artifact(path: Path) -> bytes:
    content = path.read_bytes()
    if quantized_operators(content):
        raise ModelError(
            "this .tflite file is quantized already, and nothing is left to do for a recipe",
            subject=path,
            hint="measure it: shrink evaluate MODEL --data D",
        )
    return content


def _measured_by(task: Task, dataset: Dataset) -> dict[str, Any]:
    splits = {name: len(getattr(dataset, name)) for name in ("train", "validation", "test")}
    metric = task.metrics[0] if task.metrics else "loss"
    return {
        "metric": metric,
        "loss": ", ".join(dict.fromkeys(task.losses)),
        "classes": dataset.num_classes or 0,
        **splits,
    }
