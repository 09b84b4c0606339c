"""Resolves the task: losses and metrics from recipe, data and model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from shrink.base.errors import ModelError, RecipeError, ReportWarning, hint_for
from shrink.base.figures import LOSS
from shrink.base.functions import of_file
from shrink.base.losses import (
    ValueKind,
    ignored_class,
    is_function,
    kind_of_loss,
    loss_of,
    takes_logits,
)
from shrink.base.metrics import METRICS, measured_outputs, metric_of, without_slices
from shrink.base.scores.output import class_number
from shrink.base.types import Array, Tensors, leaves
from shrink.base.user_metric import key_of_entry
from shrink.data.dataset import Dataset
from shrink.model.compilation import Compiled, CompiledLoss
from shrink.model.output_kind import (
    OutputKind,
    beyond_probabilities,
    described,
    kind_of_values,
)
from shrink.task.config import TaskConfig
from shrink.task.interface import Ask, Interface, called, check_outputs, check_shapes
from shrink.task.task import (
    OutputTask,
    Source,
    Target,
    Task,
    check_fit,
    check_labels,
    default_metric,
    fits,
    inferred_loss,
    kind_of,
    takes_margins,
    targets_of,
)
from shrink.tflite.names import LONE_OUTPUT, signature_names

_EXAMPLES = 16
Value = TypeVar("Value", str, bool, float)
_ENTROPIES = {
    "sparse_categorical_crossentropy": "categorical_crossentropy",
    "categorical_crossentropy": "sparse_categorical_crossentropy",
}
"""The same loss, on labels that are written in the other way."""


def resolve_task(
    config: TaskConfig, dataset: Dataset, model: Interface, compiled: Compiled | None = None
) -> Task:
    """Fill in what the recipe leaves out, and check that model and data belong together.

    Args:
        config: the recipe's `task`, which goes before everything else.
        dataset: the examples.
        model: what is trained or measured.
        compiled: what the recipe's model was compiled with, as its file says.

    Raises:
        RecipeError: a loss or a weight for an output that the model does not have, or nobody
            can know whether an output is logits.
        DataError: labels beyond the model's outputs, or inputs of another shape.
        ModelError: the model's output cannot be trained on such targets.
    """
    return _Resolver(config, dataset, model, compiled).task()


class _Resolver:
    """Finds a task step by step; what is likely wrong is collected on the way."""

    def __init__(
        self, config: TaskConfig, dataset: Dataset, model: Interface, compiled: Compiled | None
    ) -> None:
        self._config, self._dataset, self._model = config, dataset, model
        self._compiled = compiled
        self._stored_by: Source = "compiled" if compiled is None else compiled.by
        names = model.output_names
        self._stored: Sequence[CompiledLoss | None]
        self._stored = [None] * len(names) if compiled is None else compiled.losses(names)
        self._warnings: list[ReportWarning] = []

    def task(self) -> Task:
        """Return the task, with a warning of what is likely wrong."""
        config, dataset, model = self._config, self._dataset, self._model
        check_shapes(dataset, model)
        if config.decode is not None or dataset.has_boxes:
            from shrink.task.detection_task import detection_task

            return detection_task(config, dataset, model)
        check_outputs(dataset, model)
        stated_logits = _by_output(config.from_logits, model, "task.from_logits")
        stated_losses = _by_output(config.loss, model, "task.loss")
        targets, kinds = targets_of(dataset, model.outputs), self._kinds()
        outputs = [
            self._with_loss(index, targets[index], kinds[index], stated_losses[index])
            for index in range(len(targets))
        ]
        losses = [output.loss for output in outputs]
        self._check_losses(losses, targets)
        metrics, metrics_by = self._metrics(losses, [output.loss_by for output in outputs])
        self._check_metrics(metrics, losses)
        found = [
            self._with_logits(index, output, stated_logits[index], losses, metrics)
            for index, output in enumerate(outputs)
        ]
        return Task(
            tuple(losses),
            metrics,
            config.monitor or next(iter(without_slices(metrics)), LOSS),
            tuple(logits for _, logits in found),
            model.input_names,
            self._weights([output.loss_by for output in outputs]),
            tuple(output for output, _ in found),
            metrics_by,
            tuple(dict.fromkeys(self._warnings)),
            tuple(dataset.class_names),
            config.functions(),
        )

    def _kinds(self) -> list[tuple[OutputKind | None, Source | None]]:
        """Return what each output is, and whether its graph or its values show it."""
        kinds = [(kind, None if kind is None else "graph") for kind in self._model.endings]
        if None in self._model.endings:
            values = self._model.ask(_some_inputs(self._dataset))
            for index, (kind, _) in enumerate(kinds):
                if kind is None:
                    kind = kind_of_values(values[index], self._model.scales[index])
                    kinds[index] = (kind, "values" if kind else None)
        return kinds  # type: ignore[return-value]

    def _with_loss(
        self,
        index: int,
        target: Target,
        kind: tuple[OutputKind | None, Source | None],
        loss: str | None,
    ) -> OutputTask:
        """Return an output with its loss: the recipe's, else the stored one, else by the data."""
        by: Source = "recipe"
        why = ""
        if loss is None:
            loss, by = self._compiled_loss(index, target), self._stored_by
        if loss is None:
            (loss, why), by = inferred_loss(target, kind[0]), "data"
            if loss == "mean_squared_error" and len(target.shape) < 2 and target.yes_or_no:
                self._warn_of_numbers(self._model.output_names[index])
        known = loss_of(loss)
        key = known.of(kind_of(known, target, kind[0])).key
        name, shape = self._model.output_names[index], self._model.outputs[index]
        return OutputTask(name, key, by, why, None, kind[1], kind[0], shape)

    def _check_losses(self, losses: Sequence[str], targets: Sequence[Target]) -> None:
        """Raise `DataError` or `StageError` where a loss and targets do not go together."""
        for loss, target in zip(losses, targets, strict=True):
            check_fit(loss, target)
        numbers = targets[0].form == "classes" and kind_of_loss(losses[0]) == "classes"
        if len(losses) == 1 and numbers:
            check_labels(self._dataset, self._model, targets[0], ignored_class(losses[0]))
        if any(map(is_function, losses)):
            from shrink.engine.losses import user_loss_values

            x, y = self._dataset.reference.arrays(_first(self._dataset))
            for key, own, output in zip(losses, leaves(y), self._model.ask(x), strict=True):
                if is_function(key):
                    user_loss_values(key, own, output, "training examples")

    def _check_metrics(self, metrics: Sequence[str], losses: Sequence[str]) -> None:
        """Raise `RecipeError` for a metric of a class that is not there, or of other outputs."""
        shapes = self._model.outputs
        check_classes(metrics, losses, self._dataset.class_names, shapes)
        labels = [
            kind_of_loss(loss) == "labels" and shape[-1:] != (1,)
            for loss, shape in zip(losses, shapes, strict=True)
        ]
        if "accuracy" in metrics and all(labels):
            raise RecipeError(
                "accuracy is the share of examples whose class is right, and these outputs have "
                "several labels for each example",
                subject="task.metrics",
                hint="use binary_accuracy, the share of labels that are right",
            )

    def _compiled_loss(self, index: int, target: Target) -> str | None:
        """Return the loss that the model was compiled with, None where it cannot be had."""
        stored = self._stored[index]
        if stored is None:
            return None
        for name, lost in _candidates(stored):
            if fits(name, target):
                if lost:
                    self._warn_of_loss(
                        f"with {', '.join(lost)}, which shrink does not support", name
                    )
                return name
        why = "which the targets do not fit"
        if stored.name is None:
            own = of_file(stored.stored.partition("(")[0]) is not None
            why = "whose code runs only where a recipe names it" if own else _UNKNOWN
        self._warn_of_loss(f"with the loss {stored.stored}, {why}", None)
        return None

    def _warn(self, code: str, message: str, hint: str) -> None:
        self._warnings.append(ReportWarning(code, message, hint))

    def _warn_of_numbers(self, output: str) -> None:
        self._warn(
            "labels-as-numbers",
            f"the targets of {output!r} are 0 and 1, but the output has no sigmoid: they are "
            "taken as numbers to predict (mean_squared_error)",
            "set task.loss: binary_crossentropy if they are labels, else mean_squared_error",
        )

    def _warn_of_loss(self, why: str, name: str | None) -> None:
        then = f"{name} is used without it" if name else "model and data decide the loss"
        self._warn(
            "compiled-loss",
            f"the model was compiled {why}; {then}",
            "set task.loss to the loss that is meant",
        )

    def _metrics(
        self, losses: Sequence[str], loss_by: Sequence[Source]
    ) -> tuple[tuple[str, ...], Source]:
        """Return the metrics, and who says so; the loss's own is always among those inferred."""
        if self._config.metrics is not None:
            return tuple(map(key_of_entry, self._config.metrics)), "recipe"
        pairs = zip(losses, self._model.outputs, strict=True)
        defaults = [default_metric(loss, shape) for loss, shape in pairs]
        if self._compiled is None or self._stored_by not in loss_by:
            return tuple(dict.fromkeys(defaults)), "data"
        named, others = self._compiled.metric_names()
        single = all(shape[-1:] == (1,) for shape in self._model.outputs)
        # class_id 0 of a single output is the only output, which is the positive class.
        named = [_without_class(name) if single else name for name in named]
        kinds = {kind_of_loss(loss) for loss in losses}
        others += [name for name in named if not _kinds(name) & kinds]
        named = [name for name in named if _kinds(name) & kinds]
        if others:
            self._warn(
                "compiled-metrics",
                f"the model was {'measured' if self._stored_by == 'run' else 'compiled'} with "
                f"{', '.join(others)}, which shrink does not have for these outputs; the "
                "report leaves them out",
                "set task.metrics to the metrics that matter",
            )
        if self._stored_by == "run" or not named:
            return tuple(named or dict.fromkeys(defaults)), "run" if named else "data"
        if kinds == {"labels"} and not single:  # Keras counts them over all labels
            named = [f"{n}_micro" if n in ("precision", "recall") else n for n in named]
        if "classes" in kinds and {"precision", "recall"} & set(named):
            self._warn(
                "compiled-metrics",
                "the model was compiled with Precision or Recall, which Keras counts over all "
                "classes at a threshold of 0.5; the report has the mean over classes, by the "
                "class with the highest output",
                "set task.metrics, such as [precision_macro, recall_macro]",
            )
        if "binary_accuracy" in defaults and "accuracy" not in defaults:
            # Keras' accuracy of several labels is that of the largest, which says little of them.
            named = ["binary_accuracy" if name == "accuracy" else name for name in named]
        elif "accuracy" in defaults and "binary_accuracy" not in defaults:
            named = ["accuracy" if name == "binary_accuracy" else name for name in named]
        return tuple(dict.fromkeys([*named, *defaults])), "compiled"

    def _with_logits(
        self,
        index: int,
        output: OutputTask,
        stated: bool | None,
        losses: Sequence[str],
        metrics: Sequence[str],
    ) -> tuple[OutputTask, bool]:
        """Return an output with what says whether it is logits, and whether it is taken for some.

        First the recipe says it, then the model's graph or values, then what it was compiled with.
        """
        name, kind, shapes = output.name, output.ending, self._model.outputs
        compiled = _compiled_logits(self._stored[index])
        value = stated if kind is None or stated is not None else kind == "logits"
        by: Source | None = output.by if stated is None else "recipe"
        if value is None and compiled is not None:
            value, by = compiled, self._stored_by
        signs = takes_margins(output.loss, kind)
        if signs or not _depends(losses, metrics, index, shapes):
            return replace(output, by=by), bool(value or signs)
        if value is None:
            raise RecipeError(
                f"the {called(self._model, 'model')} does not show whether its output {name!r} is "
                "probabilities or logits: its last operator is neither, and its values lie between "
                "0 and 1",
                subject="task.from_logits",
                hint=f"set it: task: {{from_logits: {{{name}: false}}}} for probabilities, true "
                "for logits",
            )
        computed = None if kind is None else described(kind, shapes[index])
        if stated is not None and computed is not None and stated != (kind == "logits"):
            self._warn(
                "from-logits",
                f"task.from_logits is {str(stated).lower()} for the output {name!r}, which by "
                f"what the model computes is {computed}; the recipe was followed",
                "leave out task.from_logits",
            )
        elif stated is None and compiled is not None and compiled != value:
            self._warn(
                "compiled-from-logits",
                f"the model was compiled with from_logits={compiled}, but its output {name!r} "
                f"is {computed}, and was taken as that",
                "compile it with the other, or set task.from_logits where it is right",
            )
        return replace(output, from_logits=value, by=by), value

    def _weights(self, loss_by: Sequence[Source]) -> tuple[float, ...]:
        stated = self._config.loss_weights
        weights = _by_output(stated, self._model, "task.loss_weights")
        if stated is None and self._compiled is not None and set(loss_by) == {self._stored_by}:
            weights = self._compiled.weights(self._model.output_names)
        return tuple(1.0 if weight is None else weight for weight in weights)


def _compiled_logits(stored: CompiledLoss | None) -> bool | None:
    """Return what a stored loss takes its outputs for; None where it takes no probabilities."""
    if stored is None or stored.name is None or not takes_logits(stored.name):
        return None
    return stored.from_logits


def _kinds(key: str) -> frozenset[ValueKind]:
    metric = metric_of(key)
    return frozenset() if metric is None else metric.info.kinds


def _without_class(key: str) -> str:
    metric = metric_of(key)
    return key if metric is None or "class" not in metric.arguments else metric.name


_UNKNOWN = "which shrink does not have"


def _candidates(stored: CompiledLoss) -> list[tuple[str, tuple[str, ...]]]:
    """Return the losses that a stored one may be, each with the settings that it goes without."""
    if stored.name is None:
        return []
    loss = loss_of(stored.name)
    found = [(stored.name, stored.other)]
    if loss.name in _ENTROPIES:
        stated = {k: v for k, v in loss.arguments.items() if isinstance(v, int | float) and v}
        given = (f"{name} {value:g}" for name, value in stated.items())
        found.append((_ENTROPIES[loss.name], (*stored.other, *given)))
    return found


def check_classes(
    metrics: Sequence[str],
    losses: Sequence[str],
    names: Sequence[str],
    outputs: Sequence[tuple[int | None, ...]],
) -> None:
    """Raise `RecipeError` where a metric is of a class that the model does not have.

    Args:
        metrics: keys.
        losses: of each output.
        names: of the classes by index; empty where they have none.
        outputs: shape of each output of one example.
    """
    for key in metrics:
        metric = metric_of(key)
        wanted = None if metric is None else metric.arguments.get("class")
        if wanted is None:
            continue
        widths = [(shape or (1,))[-1] for shape in outputs]
        for index in measured_outputs(key, losses, widths):
            count = max(outputs[index][-1] or 0, 2) if outputs[index] else 2
            class_number(str(wanted), names, count, key, METRICS)


def check_values(task: Task, dataset: Dataset, ask: Ask, scales: Sequence[float]) -> None:
    """Raise `ModelError` where outputs that are taken for probabilities lie beyond 0 and 1.

    Args:
        task: says what they are taken for; nothing that the recipe itself says is questioned.
        dataset: its first training examples are run.
        ask: runs the artifact.
        scales: step of each output that is stored as integers, 0 for floats.
    """
    if not any(each.from_logits is False and each.by != "recipe" for each in task.outputs):
        return
    values = ask(_some_inputs(dataset))
    for output, own, scale in zip(task.outputs, values, scales, strict=True):
        taken = output.from_logits is False and output.by != "recipe"
        if taken and beyond_probabilities(own, scale):
            raise ModelError(
                f"the output {output.name!r} should be probabilities, but on training examples "
                f"it lies between {own.min():.4g} and {own.max():.4g}",
                hint="set task.from_logits to what it is",
            )


def _some_inputs(dataset: Dataset) -> Tensors:
    """Return the inputs of the first training examples."""
    return dataset.reference.arrays(_first(dataset))[0]


def _first(dataset: Dataset) -> Array:
    return np.arange(min(_EXAMPLES, len(dataset.reference)))


def _depends(
    losses: Sequence[str],
    metrics: Sequence[str],
    index: int,
    shapes: Sequence[tuple[int | None, ...]],
) -> bool:
    """Whether any figure of an output depends on whether it is logits."""
    widths = [(shape or (1,))[-1] for shape in shapes]
    own = [name for name in metrics if index in measured_outputs(name, losses, widths)]
    known = [metric_of(name) for name in own]
    if takes_logits(losses[index]) or any(one and one.info.needs_logits for one in known):
        return True
    # The largest output is the same of both; a single one is compared with 0 or with 1/2.
    return "binary_accuracy" in own or ("accuracy" in own and shapes[index][-1:] == (1,))


def _by_output(
    values: Value | Mapping[str, Value] | None, model: Interface, key: str
) -> list[Value | None]:
    """Return the value of each output, None where there is none.

    Args:
        values: one for all outputs, or a mapping by their names, or None.

    Raises:
        RecipeError: a value for an output that the model does not have.
    """
    if not isinstance(values, Mapping):
        return [values] * len(model.output_names)
    if len(values) == 1 and tuple(model.output_names) == (LONE_OUTPUT,):
        return list(values.values())  # the recipe has the name of the Keras model's output
    # A .tflite file calls "my-head" my_head; the recipe has the name of the Keras model's output.
    names = model.output_names
    own = {name: name if name in names else signature_names([name])[0] for name in values}
    for name in values:
        if own[name] not in model.output_names:
            raise RecipeError(
                f"the {called(model, 'model')} has no output {name!r}; it has "
                f"{', '.join(model.output_names)}",
                subject=key,
                hint=hint_for(name, model.output_names),
            )
    by_name = {own[name]: value for name, value in values.items()}
    return [by_name.get(name) for name in model.output_names]
