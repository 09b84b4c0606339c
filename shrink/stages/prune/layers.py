"""Pruning by layers: whole blocks go, those without which the loss on validation examples is least.

One after the other, as a block may do without its neighbour or not (greedy, as in Zhang et al.
2024, "FinerCut", for transformers; by the task's own loss, which is what fine-tuning begins with).
"""

from __future__ import annotations

from collections.abc import Sequence

import tf_keras as keras

from shrink.base.errors import StageError
from shrink.base.losses import takes_logits
from shrink.contract.choices import Choice, Option
from shrink.contract.details import Details
from shrink.contract.report import Skipped
from shrink.engine.record import TrainingRecord
from shrink.graph.groups import find_groups
from shrink.graph.network import Network, read_network
from shrink.graph.rebuild import unfrozen, unfrozen_note
from shrink.graph.scale import (
    Block,
    check_blocks,
    find_blocks,
    removable_blocks,
    without_blocks,
)
from shrink.pruning.masks import refuse_unmatched
from shrink.stages.context import StageContext, StageResult
from shrink.stages.distill.objective import temperature_choice
from shrink.stages.prune.choice import validation_loss
from shrink.stages.prune.config import AUTO, PruneConfig
from shrink.stages.prune.fine_tuning import fine_tuning
from shrink.stages.prune.length import first_epochs, prolong

_FIGURE = "validation_loss"
_LISTED = 6


def prune_layers(config: PruneConfig, context: StageContext) -> StageResult:
    """Remove whole blocks from the model, then fine-tune what is left.

    Raises:
        ModelError: the model has not so many blocks that could go.
        StageError: there are no validation examples to choose by.
    """
    model = context.load()
    network = read_network(model)
    names = [network.name(layer) for layer in network.layers()]
    refuse_unmatched(config.exclude, names, "prune.exclude")
    blocks, wanted = find_blocks(network), config.blocks or 0
    check_blocks(model, wanted, config.exclude)
    able = removable_blocks(network, config.exclude)
    if not len(context.dataset.validation):
        raise StageError(
            "blocks are chosen on validation examples, and there are none",
            subject=context.name,
            hint="raise data.validation_split",
        )
    context.phase("choosing blocks")
    with context.devices.scope():
        before = validation_loss(model, context)
        gone, choices = _chosen(network, able, wanted, context)
        smaller = without_blocks(network, gone, exclude=config.exclude)
        after = validation_loss(smaller, context)
    config = _with_teacher(config, smaller, context)
    record = None
    if config.passes:
        record, length = _fine_tuned(smaller, model, config, context)
        choices += length
    if config.teacher == "self" and config.passes:
        losses = context.task(smaller).losses
        choices = (*choices, *temperature_choice(config.temperature, losses))
    count, left = model.count_params(), smaller.count_params()
    notes = [
        f"{len(gone)} of {len(able)} blocks removed: "
        f"{'; '.join(named(one, network) for one in gone)}",
        f"loss on validation examples before fine-tuning: {before:.4g} to {after:.4g}",
        f"parameters: {count:,} to {left:,} ({left / max(count, 1):.1%})",
        *(one.sentence for one in choices),
    ]
    if changed := unfrozen(network, smaller):
        notes.append(unfrozen_note(changed))
    fixed = tuple(
        Skipped(layer=named(one, network), reason=_reason(one))
        for one in blocks
        if not one.is_removable
    )
    return StageResult(
        model=smaller,
        training=record,
        skipped=fixed,
        notes=notes,
        details=Details(choices=choices),
    )


def _chosen(
    network: Network, able: Sequence[Block], count: int, context: StageContext
) -> tuple[list[Block], tuple[Choice, ...]]:
    """Return the blocks that go, in the order in which they were chosen, and over what."""
    gone, choices, left = list[Block](), list[Choice](), [*able]
    for _ in range(count):
        losses = [validation_loss(without_blocks(network, [*gone, one]), context) for one in left]
        best = losses.index(min(losses))
        options = tuple(
            Option(value=named(one, network), figures={_FIGURE: loss})
            for one, loss in sorted(zip(left, losses, strict=True), key=lambda pair: pair[1])
        )
        why = "least loss on validation examples without it, before fine-tuning"
        taken = f"without {named(left[best], network)}"
        choices.append(Choice(key="blocks", value=taken, why=why, options=options[:_LISTED]))
        gone.append(left.pop(best))
    return gone, tuple(choices)


def named(block: Block, network: Network) -> str:
    """Return a block as people find it in a summary: `conv2d_3 to add_1`."""
    names = [network.name(block.calls[0].layer), network.name(block.calls[-1].layer)]
    return " to ".join(dict.fromkeys(names))


def _reason(block: Block) -> str:
    return "its output has another shape than its input" if block.has_kernel else "has no kernel"


def _with_teacher(config: PruneConfig, model: keras.Model, context: StageContext) -> PruneConfig:
    """Return it with the unpruned model as teacher, where that is open and has softened outputs."""
    if config.teacher != AUTO:
        return config
    task = context.task(model)
    softened = task.detector is not None or takes_logits(task.loss)
    taken = "self" if softened and config.passes else None
    return config.model_copy(update={"teacher": taken})


def _fine_tuned(
    smaller: keras.Model, unpruned: keras.Model, config: PruneConfig, context: StageContext
) -> tuple[TrainingRecord, tuple[Choice, ...]]:
    graph, epochs = find_groups(unpruned), first_epochs(config, context)
    with fine_tuning(smaller, graph, config, context) as (learning, objective):
        record = context.train(learning, objective, epochs)
    if config.epochs != AUTO:
        return record, ()
    return prolong(smaller, record, epochs, context)
