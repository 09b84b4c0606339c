"""The teacher's outputs: computed on every batch, or cached once for all of them."""

from __future__ import annotations

import contextlib
import gc
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import ModelError, ResourceError, StageError
from shrink.base.keras_internals import nodes_of
from shrink.base.packages import versions
from shrink.base.types import Spec
from shrink.contract.details import TeacherCache
from shrink.data.dataset import Dataset
from shrink.data.examples import Batch, Examples
from shrink.data.matching import fed_like
from shrink.data.views import View
from shrink.stages.context import StageContext
from shrink.stages.distill.config import DistillConfig
from shrink.stages.distill.objective import (
    DistillationTargets,
    Teach,
    TeacherOutputs,
    ensemble,
    logarithm_note,
    open_outputs,
    teacher_outputs_of,
)
from shrink.stages.distill.teacher_cache import (
    Rows,
    Shape,
    cache_key,
    check_room,
    model_digest,
    open_cache,
    shapes_of,
    write_cache,
)
from shrink.stages.distill.teacher_usage import adapter_of, measure_teacher
from shrink.task.interface import check_shapes, keras_interface


class DistillationExamples(View):
    """Training examples with `DistillationTargets`: their own targets and the teacher's row.

    Args:
        base: the examples.
        rows: how outputs are stored.
        stored: (n, columns); None where only sizes matter, as for planning.
    """

    def __init__(self, base: Examples, rows: Rows, stored: np.ndarray | None) -> None:
        super().__init__(base)
        self._form = rows
        self._stored = stored
        row = Spec((rows.columns,), np.dtype(rows.dtype))
        self.target_spec = DistillationTargets(base.target_spec, row)

    def arrays(self, indices: np.ndarray) -> Batch:
        """Return a batch as numpy arrays."""
        x, y = self._base.arrays(indices)
        if self._stored is None:
            rows = np.zeros((len(indices), self._form.columns), self._form.dtype)
            return x, DistillationTargets(y, rows)
        return x, DistillationTargets(y, np.asarray(self._stored[indices]))


_MOST_FLOAT32_OUTPUTS = 1024
_AUTO_BYTES = 2 * 1000**3
_MOST_AT_ONCE = 256


@dataclass(frozen=True)
class Teaching:
    """What a student's training needs of its teacher.

    Attributes:
        losses: the task's, of each output.
        rows: the shapes of what the teacher gives.
        dataset: to train on.
        teach: gives the teacher's outputs; None where they are cached and it is not in memory.
        decode: from what the dataset's targets hold to `TeacherOutputs`, where they are cached.
        notes: sentences for the report.
        cached: the cache of the teacher's outputs; None without one.
    """

    losses: tuple[str, ...]
    rows: Rows
    dataset: Dataset
    teach: Teach | None = None
    decode: Callable[[tf.Tensor], TeacherOutputs] | None = None
    notes: tuple[str, ...] = ()
    cached: TeacherCache | None = None


def open_teaching(
    config: DistillConfig, context: StageContext, held: contextlib.ExitStack
) -> Teaching:
    """Load the teachers; cache all of their outputs now, or have them ready for every batch.

    Args:
        config: of the stage.
        context: of the stage.
        held: keeps live teachers' final activations switched off.

    Raises:
        ResourceError: the recipe sets a cache, and it does not fit on the disk.
        StageError: the recipe sets a cache, and the data or the outputs do not allow one.
    """
    roles = context.roles("teacher")
    models = [fed_like(context.load(role), context.dataset) for role in roles]
    for model in models:
        check_shapes(context.dataset, keras_interface(model), "teacher")
        check_outputs(shapes_of(models[0].outputs), model, "other teacher")
    usages = map(context.teacher_usage, roles)
    adapters = [adapter_of(*pair, context) for pair in zip(models, usages, strict=True)]
    measured: list[str] = []
    if not context.planning:
        context.phase("evaluating the teacher")
        found = [measure_teacher(*pair, context) for pair in zip(models, adapters, strict=True)]
        measured = [note for note in found if note is not None]
    losses = context.task(models[0]).losses
    endings = [context.task(model).from_logits for model in models]
    with contextlib.ExitStack() as opened, context.devices.scope():
        live = [
            opened.enter_context(open_outputs(model, losses, from_logits))
            for model, from_logits in zip(models, endings, strict=True)
        ]
        notes = (note for one in live for note in logarithm_note(one, "teacher", config.loss))
        adapted = (note for adapter in adapters for note in adapter.notes())
        common = list(dict.fromkeys([*measured, *adapted, *notes]))
        follow = scores_of if config.feature_loss == "attention_scores" else features_of
        features = follow(live[0], tuple(config.feature_layers), "teacher")
        outputs = shapes_of(live[0].outputs)
        rows = Rows(outputs, shapes_of(features), config.cache_dtype)
        each = [teacher_outputs_of(live[0], features), *map(teacher_outputs_of, live[1:])]
        teach = ensemble([a.teach(one) for a, one in zip(adapters, each, strict=True)])
        why = _why_live(config, rows, context)
        if why is not None:
            held.push(opened.pop_all())
            return Teaching(losses, rows, context.dataset, teach, notes=(*common, *why))
        identity = {**_identity(models, config, losses, context), "from_logits": endings}
        identity["adapters"] = [adapter.identity() for adapter in adapters]
        folder = context.teachers / cache_key(identity)
        stored, computed, began = None, False, time.perf_counter()
        train = context.dataset.train
        if not context.planning:
            context.phase("running the teacher")
            batch_size = min(_MOST_AT_ONCE, context.training.global_batch_size)
            computed = write_cache(folder, rows, train, batch_size, teach)
            stored = open_cache(folder, rows, len(train))
        size = rows.row_bytes * len(train)
        return Teaching(
            losses,
            rows,
            replace(context.dataset, train=DistillationExamples(train, rows, stored)),
            decode=rows.decode,
            notes=(
                *common,
                f"the teacher ran once: {len(train):,} outputs, {size:,} bytes on disk",
            ),
            cached=TeacherCache(bytes=size, asked=computed, duration_s=time.perf_counter() - began),
        )


def check_outputs(expected: Sequence[Shape], model: keras.Model, role: str) -> None:
    """Raise `ModelError` unless a model gives outputs of the teacher's shapes."""
    own = shapes_of(model.outputs)
    if own != tuple(expected):
        shown = [" and ".join(map(str, shapes)) for shapes in (expected, own)]
        raise ModelError(
            f"the teacher gives outputs of shape {shown[0]}, the {role} {shown[1]}",
            subject="distill",
            hint="teacher and student must have the same classes",
        )


def features_of(model: keras.Model, names: Sequence[str], role: str) -> list[tf.Tensor]:
    """Return the outputs of a model's layers, by name.

    Raises:
        ModelError: there is no such layer, or it gives several tensors.
    """
    known = {layer.name: layer for layer in model.layers}
    for name in names:
        if name not in known or isinstance(known[name].output, list | tuple):
            raise ModelError(
                f"the {role} has no layer {name!r} that gives one tensor",
                subject="distill.feature_layers",
                hint=f"its layers are {', '.join(known)}"[:400],
            )
    return [known[name].output for name in names]


def scores_of(model: keras.Model, names: Sequence[str], role: str) -> list[tf.Tensor]:
    """Return what each position attends to, (n, queries, keys), by name of the attention layer.

    The shares add up to 1 over the keys; they are the mean over heads. The layer is called again
    on its inputs, which changes nothing of the model.

    Raises:
        ModelError: there is no such layer, it is no `MultiHeadAttention`, or it is called twice.
    """
    known = {layer.name: layer for layer in model.layers}
    attending = [n for n, x in known.items() if isinstance(x, keras.layers.MultiHeadAttention)]
    nodes = nodes_of(model)
    found = []
    for name in names:
        calls = [node for node in nodes if node.layer is known.get(name)]
        if name not in attending or len(calls) != 1:
            problem = "is called more than once" if len(calls) > 1 else "is none of the model"
            raise ModelError(
                f"attention_scores follows a MultiHeadAttention layer, and {name!r} of the {role} "
                f"{problem if name in attending or name not in known else 'is another layer'}",
                subject="distill.feature_layers",
                hint=f"its attention layers are {', '.join(attending) or 'none'}"[:400],
            )
        (call,) = calls
        arguments = {**call.call_kwargs, "return_attention_scores": True}
        _, scores = known[name](*call.call_args, **arguments)
        found.append(tf.reduce_mean(scores, axis=1))
    return found


def _why_live(config: DistillConfig, rows: Rows, context: StageContext) -> tuple[str, ...] | None:
    """Return why the teacher runs on every batch, as notes; None where its outputs are cached.

    Raises:
        StageError: the recipe sets a cache that is not possible.
    """
    if config.teacher_cache == "off":
        return ()
    reason = None
    if context.data_config.augment is not None:
        reason = "augmented examples are others in every epoch"
    elif not rows.is_known:
        reason = f"the outputs {rows.outputs} have no fixed size"
    elif rows.cache_dtype == "float32":
        most = max(map(math.prod, rows.outputs))
        if most > _MOST_FLOAT32_OUTPUTS:
            reason = f"{most:,} outputs of an example are too many for cache_dtype float32"
    if config.teacher_cache == "on":
        if reason is not None:
            raise StageError(
                f"teacher_cache is on, but {reason}",
                subject=context.name,
                hint="set distill.cache_dtype to float16, or distill.teacher_cache to auto",
            )
        return None
    needed = rows.row_bytes * len(context.dataset.train)
    if reason is None and config.epochs < 2:
        reason = "there is only one epoch"
    elif reason is None and needed > _AUTO_BYTES:
        reason = f"a cache would take {needed:,} bytes"
    if reason is None:
        try:
            check_room(context.teachers, needed)
        except ResourceError as error:
            reason = error.message
    return None if reason is None else (f"the teacher ran on every batch: {reason}",)


def _identity(
    models: Sequence[keras.Model],
    config: DistillConfig,
    losses: Sequence[str],
    context: StageContext,
) -> dict[str, object]:
    """Return everything that determines the rows of a cache, as plain data."""
    return {
        "teachers": [model_digest(model) for model in models],
        "code": [context.code_of(role) for role in context.roles("teacher")],
        "losses": list(losses),
        "features": list(config.feature_layers),
        "cache_dtype": config.cache_dtype,
        **context.data_identity(),
        "precision": context.training.precision,
        "versions": versions(),
    }


def forget_teacher() -> None:
    """Free what a cached teacher held: models are in reference cycles."""
    gc.collect()
