"""Loss and metrics that a model was compiled with, read from its file; nothing of it is run.

An artifact of a run says it by the run's report: shrink's artifacts are saved uncompiled.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from shrink.base.errors import ShrinkError
from shrink.base.file_kinds import messages, text
from shrink.base.losses import LOSSES, key_of_loss, loss_of
from shrink.base.metrics import METRICS, metric_of
from shrink.base.types import Json
from shrink.contract.details import TaskOutput
from shrink.contract.usage import read_usage
from shrink.model.reference import KERAS_METADATA
from shrink.model.scan_files import check_archive, read_attribute

_ABBREVIATED = {
    "bce": "binary_crossentropy",
    "mse": "mean_squared_error",
    "mae": "mean_absolute_error",
    "mape": "mean_absolute_percentage_error",
    "msle": "mean_squared_logarithmic_error",
    "huberloss": "huber",
    **dict.fromkeys(("kld", "kullbackleiblerdivergence"), "kl_divergence"),
}
_OTHERWISE_DEFINED = frozenset({"dice"})
"""Losses of Keras 3 that are of a whole batch there, and of each example here."""
_LOSSES = {
    **{name.replace("_", ""): name for name in LOSSES if name not in _OTHERWISE_DEFINED},
    **_ABBREVIATED,
}
_METRICS = {
    **{plain: name for plain, name in _LOSSES.items() if name in METRICS},
    **dict.fromkeys(("accuracy", "acc"), "accuracy"),
    **dict.fromkeys(("categoricalaccuracy", "sparsecategoricalaccuracy"), "accuracy"),
    "binaryaccuracy": "binary_accuracy",
    "top5accuracy": "top5_accuracy",
    "precision": "precision",
    "recall": "recall",
    "auc": "roc_auc",
    **dict.fromkeys(("f1score", "fbetascore"), "f1"),
    **dict.fromkeys(("meaniou", "onehotmeaniou", "binaryiou"), "mean_iou"),
    **dict.fromkeys(("rootmeansquarederror", "rmse"), "rmse"),
    **dict.fromkeys(("r2score", "r2"), "r2"),
    **dict.fromkeys(("meanabsolutepercentageerror", "mape"), "mape"),
}
_TOP_K = frozenset({"topkcategoricalaccuracy", "sparsetopkcategoricalaccuracy"})
_SAME_WITH: Mapping[str, tuple[Json, ...]] = {
    "thresholds": (None, 0.5, [0.5], 0.0),
    "threshold": (None, 0.5, 0.0),
    "top_k": (None,),
    "beta": (1.0,),
    "label_smoothing": (0.0, None),
    "target_class_ids": (None, [0, 1]),
    "class_aggregation": ("uniform_average",),
    "num_regressors": (0,),
}
"""Settings of Keras' metrics for which shrink's metric is the same, the default first.

A threshold of 0 goes with logits."""
_WRAPPERS = frozenset({"function", "LossFunctionWrapper", "MeanMetricWrapper"})
_NEUTRAL = {"label_smoothing": 0.0, "ignore_class": None, "axis": -1}
"""Settings of Keras' losses that shrink has no counterpart for, with what makes no difference."""
_MOST_TOLD = 100
"""Characters of a name or a setting of a stranger's file that a warning repeats."""
_NODES, _NODE_PATH, _NODE_METADATA = 1, 3, 5


@dataclass(frozen=True)
class CompiledLoss:
    """A loss as a model file names it.

    Attributes:
        stored: its name in the file.
        name: its key, with its arguments, None where shrink has no such loss.
        from_logits: what it takes its outputs for; None where the file does not say.
        other: settings that shrink does not know, such as `axis 1`.
    """

    stored: str
    name: str | None
    from_logits: bool | None
    other: tuple[str, ...] = ()


@dataclass(frozen=True)
class Compiled:
    """What a model was compiled with, as its file has it: parsed JSON that nobody has checked.

    Attributes:
        loss: one for all outputs, or a list or mapping of them.
        metrics: names and objects, in any nesting.
        loss_weights: a list, a mapping, or None.
        by: what says so, the model's file or the run that the model comes from.
    """

    loss: Json = None
    metrics: Json = None
    loss_weights: Json = None
    by: Literal["compiled", "run"] = "compiled"

    def losses(self, outputs: Sequence[str]) -> list[CompiledLoss | None]:
        """Return the loss of each output, None where there is none.

        Args:
            outputs: the outputs' names, in order.
        """
        return [_loss(value, self.by == "run") for value in _by_output(self.loss, outputs)]

    def weights(self, outputs: Sequence[str]) -> list[float | None]:
        """Return the factor of each output's loss, None where there is none that is above 0."""
        if self.loss_weights is None:
            return [None] * len(outputs)
        return [_positive(value) for value in _by_output(self.loss_weights, outputs)]

    def metric_names(self) -> tuple[list[str], list[str]]:
        """Return the metrics that shrink has, by its names, and the stored names of the others."""
        if self.by == "run":  # a record has shrink's own names
            names = [str(name) for name in _flat(self.metrics)]
            return [n for n in names if metric_of(n)], [n for n in names if not metric_of(n)]
        known: list[str] = []
        others: list[str] = []
        # Elements that the loss ignores are in no metric.
        ignored = [_named(loss)[1].get("ignore_class") for loss in _flat(self.loss)]
        same = {**_SAME_WITH, "ignore_class": (None, *ignored)}
        for value in _flat(self.metrics):
            stored, config = _named(value)
            key = _metric(_plain(stored), config)
            other = [
                f"{name} {config[name]}"[:_MOST_TOLD]
                for name, values in same.items()
                if config.get(name, values[0]) not in values
            ]
            if key in ("roc_auc", "average_precision"):  # whose thresholds are points of one curve
                other = []
            if key is not None and not other:
                known.append(key)
            elif stored:
                others.append(f"{stored} ({', '.join(other)})" if other else stored)
        return list(dict.fromkeys(known)), list(dict.fromkeys(others))


def read_compiled(path: Path) -> Compiled | None:
    """Return what the model in a file was compiled with; None where the file does not say.

    Args:
        path: a `.keras` or `.h5` file, or a SavedModel folder.
    """
    stored = None
    # A damaged file is refused where the model is loaded, with the reason.
    with contextlib.suppress(ShrinkError, OSError, ValueError):
        stored = _stored(path)
    if isinstance(stored, dict) and stored.get("loss") is not None:
        return Compiled(stored.get("loss"), stored.get("metrics"), stored.get("loss_weights"))
    usage = read_usage(path)  # artifacts are not compiled
    if usage is None or (task := usage.task) is None:
        return None
    losses: list[Json] = [_as_stored(output) for output in task.outputs]
    return Compiled(losses, list(task.metrics or ()), list(task.loss_weights), "run")


def _as_stored(output: TaskOutput) -> dict[str, Json]:
    logits: dict[str, Json] = {"from_logits": output.from_logits}
    try:
        loss = loss_of(output.loss or "")
    except ValueError:  # of a later version
        return {"class_name": output.loss, "config": logits}
    return {"class_name": loss.name, "config": {**loss.arguments, **logits}}


def _stored(path: Path) -> Json:
    if path.is_dir():
        content = memoryview((path / KERAS_METADATA).read_bytes())
        for node in messages(content, _NODES):
            if text(node, _NODE_PATH) == "root":
                return json.loads(text(node, _NODE_METADATA)).get("training_config")
        return None
    if path.suffix == ".keras":
        _, config = check_archive(path)
        return config.get("compile_config") if isinstance(config, dict) else None
    if path.suffix in (".h5", ".hdf5"):
        return read_attribute(path, "training_config")
    return None


def _by_output(value: Json, outputs: Sequence[str]) -> list[Json]:
    """Return what belongs to each output of one value for all, a list, or a mapping."""
    if isinstance(value, Mapping) and "class_name" not in value:
        return [value.get(name) for name in outputs]
    if isinstance(value, list | tuple):
        return list(value) if len(value) == len(outputs) else [None] * len(outputs)
    return [value] * len(outputs)


def _loss(value: Json, by_run: bool) -> CompiledLoss | None:
    stored, config = _named(value)
    if not stored:
        return None
    stated = config.get("from_logits", False)
    name = _LOSSES.get(_plain(stored), stored if by_run and stored in LOSSES else None)
    known: dict[str, Json] = {}
    neutral: dict[str, Json] = {**_NEUTRAL}
    if name is not None:
        defaults: dict[str, Json] = {one.name: one.default for one in LOSSES[name].arguments}
        known = {key: config[key] for key in defaults if config.get(key) is not None}
        try:
            name = key_of_loss({"name": name, **known})
        except ValueError:  # beyond what shrink takes, as a delta of 0: told, not trained with
            known, neutral = {}, {**neutral, **defaults}
    other = tuple(
        f"{key} {config[key]}"[:_MOST_TOLD]
        for key, value in neutral.items()
        if key not in known and config.get(key, value) not in (value, None)
    )
    if stored == "Huber" and not by_run and "delta" not in config:
        other = (*other, "a delta that Keras 3 does not store")
    return CompiledLoss(stored, name, stated if isinstance(stated, bool) else None, other)


def _metric(plain: str, config: Mapping[str, Json]) -> str | None:
    """Return the key of the metric that a Keras metric with these settings is."""
    if plain in _TOP_K:
        k = config.get("k", 5)
        key = "top5_accuracy" if k == 5 else f"top_k_{k}"
        return key if metric_of(key) is not None else None
    found = _METRICS.get(plain)
    if found == "roc_auc":
        return "average_precision" if config.get("curve") == "PR" else found
    if found is None:
        return None
    average, class_id = config.get("average"), config.get("class_id")
    if average in ("macro", "micro", "weighted"):
        return f"{found}_{average}"
    if isinstance(class_id, int) and not isinstance(class_id, bool):
        return f"{found}_{class_id}"
    return found if average is None and class_id is None else None


def _named(value: Json) -> tuple[str, Mapping[str, Json]]:
    """Return the name of a loss or metric, and its settings."""
    if isinstance(value, str):
        return value[:_MOST_TOLD], {}
    if not isinstance(value, Mapping):
        return "", {}
    config = value.get("config")
    if value.get("class_name") not in _WRAPPERS:
        name = value.get("class_name")
        return str(name or "")[:_MOST_TOLD], config if isinstance(config, Mapping) else {}
    if isinstance(config, Mapping):
        inner = config.get("fn", config.get("name"))
        name = inner.get("config") if isinstance(inner, Mapping) else inner
        return str(name or "")[:_MOST_TOLD], config
    return str(config or "")[:_MOST_TOLD], {}


def _flat(value: Json) -> list[Json]:
    if isinstance(value, list | tuple):
        return [each for item in value for each in _flat(item)]
    if isinstance(value, Mapping) and "class_name" not in value:
        return [each for item in value.values() for each in _flat(item)]
    return [] if value is None else [value]


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _positive(value: Json) -> float | None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if number and math.isfinite(value) and value > 0 else None
