"""What a detector is trained and measured on, once both the model and the data are known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shrink.base.errors import DataError, RecipeError
from shrink.base.losses import DETECTION
from shrink.base.metrics import METRICS, metric_of
from shrink.base.scores.output import class_number
from shrink.base.types import leaves
from shrink.base.user_metric import key_of_entry
from shrink.data.boxes import COLUMNS
from shrink.data.dataset import Dataset
from shrink.detection.coco import check_installed
from shrink.detection.config import DecodeConfig
from shrink.detection.head import head_of
from shrink.task.config import TaskConfig
from shrink.task.detector import METRIC, Decoder, Detector
from shrink.task.interface import Interface
from shrink.task.task import OutputTask, Source, Task
from shrink.task.user_detector import UserDetector

_EXAMPLES = 8


def detection_task(config: TaskConfig, dataset: Dataset, model: Interface) -> Task:
    """Return the task of a model whose outputs are decoded to boxes.

    Args:
        config: the recipe's `task`.
        dataset: the examples, whose targets are boxes.
        model: what is trained or measured.

    Raises:
        RecipeError: boxes without `task.decode`, or keys that a detector has no use for.
        DataError: targets that are no boxes.
        ModelError: outputs that cannot be decoded so.
    """
    _check_config(config, dataset)
    metrics = (METRIC,) if config.metrics is None else tuple(map(key_of_entry, config.metrics))
    if set(metrics) - set(config.functions()):
        check_installed()
    assert config.decode is not None
    detector = _detector(config.decode, dataset, model)
    by: Source = "data" if config.metrics is None else "recipe"
    outputs = tuple(
        OutputTask(name, DETECTION, "recipe", "boxes", None, None, ending, shape)
        for name, ending, shape in zip(
            model.output_names, model.endings, model.outputs, strict=True
        )
    )
    return Task(
        losses=(DETECTION,) * len(outputs),
        metrics=metrics,
        # A mean average precision after every epoch costs about as much as the epoch.
        monitor=config.monitor or "loss",
        from_logits=(False,) * len(outputs),
        input_names=model.input_names,
        loss_weights=(1.0,) * len(outputs),
        outputs=outputs,
        metrics_by=by,
        classes=tuple(dataset.class_names),
        functions=config.functions(),
        detector=detector,
    )


def _detector(config: DecodeConfig, dataset: Dataset, model: Interface) -> Decoder:
    classes = len(dataset.class_names)
    if config.function is None:
        return Detector(head_of(config, model.inputs[0], model.outputs, classes))
    detector = UserDetector(config.function, config.loss_function, config.max_detections, classes)
    # What it cannot do is found out before anything is trained.
    x, y = dataset.reference.arrays(np.arange(min(_EXAMPLES, len(dataset.reference))))
    outputs = model.ask(x)
    detector.detections(outputs)
    detector.scores(outputs, leaves(y)[0])
    return detector


def _check_config(config: TaskConfig, dataset: Dataset) -> None:
    if not dataset.has_boxes:
        shape = [tuple(spec.shape) for spec in leaves(dataset.reference.target_spec)]
        raise DataError(
            f"task.decode needs boxes as targets, (boxes, {COLUMNS}), and they are {shape}",
            subject="data",
            hint="name a source of boxes, or leave task.decode out",
        )
    if config.decode is None:
        raise RecipeError(
            "the targets are boxes, and task.decode is missing: it says how outputs become boxes",
            subject="task.decode",
            hint="set task.decode, such as {name: grid, strides: [8]}; see docs/detection.md",
        )
    for key in ("loss", "loss_weights", "from_logits"):
        if getattr(config, key) is not None:
            raise RecipeError(
                f"task.{key} has no effect with task.decode",
                subject=f"task.{key}",
                hint="a detector's loss is task.decode.loss",
            )
    _check_metrics(config, dataset.class_names)


def _check_metrics(config: TaskConfig, classes: Sequence[str]) -> None:
    """Refuse metrics of other tasks, and classes that there are not."""
    for name in (*(config.metrics or ()), *([config.monitor] if config.monitor else [])):
        metric = metric_of(name)
        if metric is None:
            continue
        if "boxes" not in metric.info.kinds:
            raise RecipeError(
                f"{name} is not a metric of detectors",
                subject="task.metrics",
                hint="one of "
                + ", ".join(name for name, info in METRICS.items() if "boxes" in info.kinds),
            )
        if (wanted := metric.arguments.get("class")) is not None:
            class_number(str(wanted), classes, len(classes), name, METRICS)
