"""Fine-tuning of a pruned model, and the peak that it takes.

A peak is taken for what arithmetic counts (weights, gradients, optimizer slots) plus a factor times
the outputs of the layers that make channels. The factor comes from real steps of the unpruned model
and is corrected by those of each model that is tried, until one fits.
"""

from __future__ import annotations

import contextlib
import gc
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import tf_keras as keras

from shrink.base.errors import RecipeError, StageError
from shrink.base.losses import takes_logits
from shrink.engine.batch_norm import batch_norm_mode
from shrink.engine.objective import Objective
from shrink.engine.probe import MicroBatchProbe, TrainingStep, WholeBatchProbe
from shrink.engine.recompute import recomputed
from shrink.engine.trainer import TrainingSetup
from shrink.graph.groups import ChannelGraph
from shrink.graph.rebuild import rebuild, weights_of
from shrink.pruning.allocation import Allocate, Counts, any_channels, by_budget
from shrink.stages.context import StageContext
from shrink.stages.distill.objective import (
    DistillationLoss,
    DistillationObjective,
    hard_loss,
    open_outputs,
    soft_loss,
    teacher_outputs_of,
    temperature_of,
    together_of,
)
from shrink.stages.prune.config import PruneConfig


@contextlib.contextmanager
def fine_tuning(
    model: keras.Model, unpruned: ChannelGraph, config: PruneConfig, context: StageContext
) -> Iterator[tuple[keras.Model, Objective]]:
    """Yield the model to train and what to minimise; both are of use inside the context only.

    Args:
        model: the pruned model; what is yielded trains its weights.
        unpruned: the teacher, where the recipe wants one.

    Raises:
        StageError: a teacher for a task that has no softened outputs.
    """
    task = context.task(model)
    if config.teacher != "self":
        yield model, task.objective()
        return
    if task.detector is None and not takes_logits(task.loss):
        raise StageError(
            f"softened outputs are for classification, and the task's loss is {task.loss}",
            subject=context.name,
            hint="leave out prune.teacher",
        )
    with context.devices.scope():
        teacher = rebuild(unpruned, unpruned.keep(np.array([])), weights_of(unpruned))
        with (
            open_outputs(teacher, task.losses, task.from_logits) as open_teacher,
            open_outputs(model, task.losses, task.from_logits) as learning,
        ):
            distillation_loss = DistillationLoss(
                loss=soft_loss("auto", task.loss),
                temperature=temperature_of(config.temperature, task.losses),
                alpha=config.alpha,
                output_weights=task.loss_weights,
            )
            yield (
                learning,
                DistillationObjective(
                    teacher_outputs_of(open_teacher),
                    hard_loss(task),
                    distillation_loss,
                    outputs=len(model.outputs),
                    together=together_of(task, "auto"),
                ),
            )


_TRIES = 6
_CLOSE = 0.95
_COPIES = 4
"""Of each parameter: itself, its gradient, and Adam's two slots."""


@dataclass(frozen=True)
class PeakBudget:
    """What was found out about a budget.

    Attributes:
        counts: channels to remove from each group.
        before: measured peak of the unpruned model's steps, in bytes.
        after: that of a model with so many channels.
    """

    counts: Counts
    before: int
    after: int

    @property
    def note(self) -> str:
        """A sentence for the report."""
        return (
            f"training_peak_bytes: steps of the unpruned model peaked at {self.before / 1e6:.1f} "
            f"MB, of the pruned one at {self.after / 1e6:.1f} MB, both before fine-tuning"
        )


def by_training_peak(
    graph: ChannelGraph,
    budget: int,
    measure: Callable[[keras.Model], int],
    allocate: Allocate,
) -> PeakBudget:
    """Return the counts with which a training step fits `budget`, in a few measurements.

    Args:
        measure: the peak of a model's training step, in bytes.

    Raises:
        StageError: one channel in each group is expected to be too many, no try fitted, or
            nothing was measured.
    """
    weights = weights_of(graph)
    counts: Counts = [0] * len(graph.groups)
    peaks: dict[tuple[int, ...], int] = {}
    for _ in range(_TRIES):
        keep = graph.keep(any_channels(graph, counts))
        peak = peaks[tuple(counts)] = measure(rebuild(graph, keep, weights))
        if not peak:
            raise StageError(
                "training_peak_bytes: a step of this model cannot be measured, as it holds less "
                "than the allocator counts (tensors under 256 KiB)",
                subject="prune",
                hint="prune to macs or parameters instead",
            )
        if peak <= budget and (peak >= _CLOSE * budget or not sum(counts)):
            break
        factor = max(0.0, peak - _COPIES * 4 * graph.parameters(keep)) / outputs(graph, keep)

        def cost(left: np.ndarray, factor: float = factor) -> float:
            return _COPIES * 4 * graph.parameters(left) + factor * outputs(graph, left)

        counts = by_budget(graph, cost, budget, "training_peak_bytes (estimated)", allocate)
        if tuple(counts) in peaks:
            break
    fitting = [tried for tried, peak in peaks.items() if peak <= budget]
    if not fitting:
        raise StageError(
            f"training_peak_bytes: no model of at most {budget:,} bytes was found in {len(peaks)} "
            f"tries; the smallest peak was {min(peaks.values()):,}",
            subject="prune",
            hint="give a smaller training.micro_batch_size, or raise training_peak_bytes",
        )
    largest = max(fitting, key=lambda tried: peaks[tried])
    return PeakBudget(list(largest), peaks[(0,) * len(largest)], peaks[largest])


def outputs(graph: ChannelGraph, keep: np.ndarray) -> float:
    """Return the elements that layers with channels of their own give for one example."""
    total = 0.0
    for call in graph.network.calls:
        produced = graph.layers[graph.network.name(call.layer)].produces
        if produced is not None and len(produced):
            share = float(np.mean(keep[produced]))
            total += share * sum(math.prod(s or 1 for s in out.shape[1:]) for out in call.outputs)
    return max(total, 1.0)


def step_peak(
    graph: ChannelGraph, config: PruneConfig, context: StageContext
) -> Callable[[keras.Model], int]:
    """Return how to measure the peak of a model's fine-tuning steps; its weights change.

    Raises:
        RecipeError: `training.memory_limit` is set, which micro-batches would meet.
    """
    training = context.training
    if training.memory_limit is not None:
        raise RecipeError(
            "training_peak_bytes makes the model smaller, training.memory_limit the micro-batches",
            subject="prune.training_peak_bytes",
            hint="leave one of them out; training.micro_batch_size may be given",
        )

    def measure(model: keras.Model) -> int:
        gc.collect()  # models that were tried before still hold their weights
        with (
            batch_norm_mode(model, training.batch_norm),
            fine_tuning(model, graph, config, context) as (learning, objective),
        ):
            step = TrainingStep(
                TrainingSetup(
                    learning,
                    objective,
                    training,
                    context.devices,
                    metrics=context.followed(context.task(model)),
                ),
                context.dataset.train,
            )
            with recomputed(learning, training.recompute, step.trainer.seeds):
                size = step.plan.micro_batch_size
                whole = size == step.plan.most_rows
                return (
                    WholeBatchProbe(step).peak(size) if whole else MicroBatchProbe(step).peak(size)
                )

    return measure
