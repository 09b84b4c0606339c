"""Feed a teacher as its usage record says, match its classes by name, and measure it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import ModelError
from shrink.base.figures import metric_figure
from shrink.base.keras_internals import mask_of, set_mask
from shrink.base.metrics import without_slices
from shrink.base.types import Tensors
from shrink.contract.details import Usage
from shrink.engine.microbatch import cast_inputs
from shrink.engine.whole_split import outputs_in_batches
from shrink.report.sanity import hardly_better
from shrink.stages.context import StageContext
from shrink.stages.demands import check_record
from shrink.stages.distill.objective import Teach, TeacherOutputs
from shrink.task.artifact import best_constant, evaluate_batches

_BATCH = 250
_NO_CHANGE = {"scale": 1.0, "offset": 0.0}


@dataclass(frozen=True)
class Adapter:
    """Adapts the student's inputs to a teacher, and its outputs to the data's classes.

    Attributes:
        scale, offset: `x * scale + offset` is what the teacher takes.
        order: index among the teacher's classes of each class of the data; None for the same.
    """

    scale: float = 1.0
    offset: float = 0.0
    order: tuple[int, ...] | None = None

    def inputs(self, x: Tensors) -> Tensors:
        """Return the teacher's inputs, (n, ...) each."""
        if (self.scale, self.offset) == (1.0, 0.0):
            return x
        scale, offset = np.float32(self.scale), np.float32(self.offset)
        return tf.nest.map_structure(lambda part: tf.cast(part, tf.float32) * scale + offset, x)

    def outputs(self, outputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Return a teacher's outputs with the classes, the last axis, as the data numbers them."""
        if self.order is None:
            return list(outputs)
        return [tf.gather(output, self.order, axis=-1) for output in outputs]

    def teach(self, teach: Teach) -> Teach:
        """Return what gives the teacher's outputs for the student's inputs."""

        def adapted(x: Tensors) -> TeacherOutputs:
            given = teach(self.inputs(x))
            return TeacherOutputs(tuple(self.outputs(given.outputs)), given.features)

        return teach if self == Adapter() else adapted

    def model(self, teacher: keras.Model) -> keras.Model:
        """Return the teacher as a model that takes the student's inputs."""
        if self == Adapter():
            return teacher
        names = zip(teacher.inputs, teacher.input_names, strict=True)
        inputs = [keras.Input(tensor.shape[1:], name=name) for tensor, name in names]
        outputs = self.outputs(tf.nest.flatten(teacher(self.inputs(inputs))))
        named = zip(outputs, teacher.output_names, strict=True)
        linear = keras.layers.Activation
        return keras.Model(inputs, [linear("linear", name=name)(each) for each, name in named])

    def identity(self) -> dict[str, object]:
        """Return what it does, as plain data."""
        return asdict(self)

    def notes(self) -> Iterator[str]:
        """Yield what is done for the sake of the teacher."""
        if (self.scale, self.offset) != (1.0, 0.0):
            yield (
                "teacher: its inputs are normalized as in the run that made it: "
                f"x * {self.scale:g} + {self.offset:g} on top of data.normalize"
            )
        if self.order is not None:
            yield "teacher: its outputs are put into the order of the data's classes, by name"


def adapter_of(teacher: keras.Model, usage: Usage | None, context: StageContext) -> Adapter:
    """Return how a teacher is fed, so that it sees what its record says.

    Args:
        teacher: with the inputs and outputs of the data.
        usage: its record; None where there is none, and it is fed as the student.
        context: of the stage.

    Raises:
        ModelError: it takes other tokens or another front end, or tells other classes apart.
    """
    if usage is None or usage.data is None:
        return Adapter()
    check_record("teacher", usage, context.dataset, context.data_config)
    own = context.data_config.normalize
    stated = _NO_CHANGE if own is None else own.model_dump()
    recorded = {**_NO_CHANGE, **(usage.normalize or {})}
    if stated == recorded:
        return Adapter(order=_class_order(teacher, usage, context))
    scale = float(str(recorded["scale"])) / stated["scale"]
    offset = float(str(recorded["offset"])) - stated["offset"] * scale
    return Adapter(scale, offset, _class_order(teacher, usage, context))


def _class_order(
    teacher: keras.Model, usage: Usage, context: StageContext
) -> tuple[int, ...] | None:
    names, labels = context.dataset.class_names, usage.labels or ()
    if not names or not labels or labels[: len(names)] == names or len(teacher.outputs) != 1:
        return None
    if not set(names) <= set(labels) or all(map(str.isdigit, names)):
        return None  # one of them has class numbers for names
    if teacher.outputs[0].shape[-1] != len(labels):
        raise ModelError(
            f"the teacher has {teacher.outputs[0].shape[-1]} outputs, and its record names "
            f"{len(labels)} classes",
            subject="distill.teacher",
            hint="name the file that the run wrote",
        )
    own = [labels.index(name) for name in names]
    return (*own, *(index for index in range(len(labels)) if index not in own))


def measure_teacher(teacher: keras.Model, adapter: Adapter, context: StageContext) -> str | None:
    """Return what a teacher scores on validation examples, and warn where that is chance level.

    None where there are no validation examples, or the metric is not defined on them.
    """
    examples = context.dataset.validation
    task = context.task(teacher)
    name = next(iter(without_slices(task.metrics)), None)
    if name is None or not len(examples):
        return None

    def outputs(x: Tensors) -> list[tf.Tensor]:
        given = teacher(cast_inputs(teacher, adapter.inputs(x)), training=False)
        outputs = tf.nest.flatten(given)
        masks = [mask_of(output) for output in outputs]
        ordered = adapter.outputs(outputs)
        for output, mask in zip(ordered, masks, strict=True):
            set_mask(output, mask)
        return ordered

    measured = replace(task, metrics=(name,))
    value = evaluate_batches(
        outputs_in_batches(examples, outputs, _BATCH), len(examples), measured, with_intervals=False
    ).metrics.get(name)
    if value is None:
        return None
    figure, chance = metric_figure(name), best_constant(examples, name)
    text = f"{figure.text(value)} on {len(examples):,} validation examples"
    if chance is not None and hardly_better(figure, value, chance, None, None):
        context.warn(
            "teacher-at-chance",
            f"the teacher's {name} is {text}, no better than a constant answer "
            f"({figure.text(chance)}): a student learns nothing from it",
            "check that it was trained for these classes, in this order, and on inputs that are "
            "normalized in this way",
        )
    return f"teacher: {name} {text}"
