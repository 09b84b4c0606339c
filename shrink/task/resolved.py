"""A task as it was found: loss, metrics and what the outputs are, with who says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from shrink.base.errors import StageError
from shrink.base.figures import measured_outputs
from shrink.engine.objective import SupervisedObjective
from shrink.model.endings.kinds import EndingKind, described

Source = Literal["recipe", "graph", "values", "compiled", "run", "data"]
"""What something was told by."""


_METRIC_OF_LOSS = {
    "sparse_categorical_crossentropy": "accuracy",
    "binary_crossentropy": "binary_accuracy",
    "categorical_crossentropy": "accuracy",
    "mean_absolute_error": "mean_absolute_error",
}
"""The metric that goes with a loss, where it is not the squared error."""


def default_metric(loss: str, shape: tuple[int | None, ...]) -> str:
    """Return the metric that goes with a loss on an output of this shape of one example."""
    if loss == "binary_crossentropy" and shape[-1:] == (1,):
        return "accuracy"
    return _METRIC_OF_LOSS.get(loss, "mean_squared_error")


@dataclass(frozen=True)
class TaskWarning:
    """Something that is likely wrong; see `shrink.base.report_warning`."""

    code: str
    message: str
    hint: str | None = None

    @property
    def of_file(self) -> bool:
        """Whether it is about the recipe's model file, which all steps of a recipe read."""
        return self.code.startswith("compiled")


@dataclass(frozen=True)
class OutputTask:
    """What was taken for one output.

    Attributes:
        name: of the output, as a recipe calls it.
        loss: on its labels or targets.
        loss_by: recipe, compiled (the model's file), run (that the model comes from), or data.
        why: what the data says, in words; empty where the data was not asked.
        from_logits: whether it is logits, not probabilities; None where nothing depends on it.
        by: recipe, graph (what the model computes), values (on training examples), or compiled.
        ending: what it is; None where that is not known.
        shape: of one example's output.
    """

    name: str
    loss: str
    loss_by: Source
    why: str
    from_logits: bool | None
    by: Source | None
    ending: EndingKind | None
    shape: tuple[int | None, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for the report."""
        return {
            "name": self.name,
            "loss": self.loss,
            "loss_by": self.loss_by,
            "from_logits": self.from_logits,
            "from_logits_by": self.by,
            "ending": self.ending,
        }


@dataclass(frozen=True)
class Task:
    """Loss, metrics and the form of the model's output.

    Attributes:
        losses: on the labels or targets of each output.
        metrics: names; of several outputs the mean over those whose loss a metric goes with.
        monitor: decides which epoch is best.
        from_logits: whether each output is logits, not probabilities.
        input_names: as a converted model names its inputs, in the order of the examples' inputs.
        loss_weights: factor of each output's loss in their sum, which is the task's loss.
        outputs: how this was found, output by output.
        metrics_by: recipe, compiled (the model's file), or data.
        warnings: what is likely wrong.
    """

    losses: tuple[str, ...]
    metrics: tuple[str, ...]
    monitor: str
    from_logits: tuple[bool, ...]
    input_names: tuple[str, ...]
    loss_weights: tuple[float, ...]
    outputs: tuple[OutputTask, ...] = ()
    metrics_by: Source = "recipe"
    warnings: tuple[TaskWarning, ...] = ()

    @property
    def loss(self) -> str:
        """The loss that every output has.

        Raises:
            StageError: outputs have different losses.
        """
        if len(set(self.losses)) > 1:
            raise StageError(
                f"a teacher needs outputs of one kind, and their losses are "
                f"{', '.join(self.losses)}",
                subject="task.loss",
                hint="train without a teacher, or with the same loss on every output",
            )
        return self.losses[0]

    @property
    def note(self) -> str:
        """What was taken, in words."""
        parts = [_told(output, alone=len(self.outputs) == 1) for output in self.outputs]
        if self.metrics:
            parts.append(f"metrics {', '.join(self.metrics)} ({_BY[self.metrics_by]})")
        return f"task: {'; '.join(parts)}"

    @property
    def has_accuracy(self) -> bool:
        """Whether every output that `accuracy` is averaged over tells classes apart."""
        outputs = [self.outputs[place] for place in measured_outputs("accuracy", self.losses)]
        return all(default_metric(each.loss, each.shape) == "accuracy" for each in outputs)

    def objective(self) -> SupervisedObjective:
        """Return what training on the labels or targets minimises."""
        return SupervisedObjective(self.losses, self.from_logits, self.loss_weights)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for the report."""
        return {
            "outputs": [output.to_dict() for output in self.outputs],
            "loss_weights": list(self.loss_weights),
            "metrics": list(self.metrics),
            "metrics_by": self.metrics_by,
            "monitor": self.monitor,
        }


_BY: Mapping[Source, str] = {
    "recipe": "as the recipe says",
    "graph": "by what the model computes",
    "values": "by its values on training examples",
    "compiled": "as the model was compiled",
    "run": "as in the run that made the model",
    "data": "by the loss",
}


def _told(output: OutputTask, alone: bool) -> str:
    why = output.why if output.loss_by == "data" else _BY[output.loss_by]
    text = f"{'' if alone else output.name + ': '}loss {output.loss} ({why})"
    if output.from_logits is None or output.by is None:
        return text
    ending = output.ending
    if ending is None or (ending == "logits") != output.from_logits:
        ending = "logits" if output.from_logits else "sigmoid"
    return f"{text}, the output is taken as {described(ending, output.shape)} ({_BY[output.by]})"
