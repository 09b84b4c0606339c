"""Pruning by layers: remove the blocks without which the loss on validation examples is least.

Blocks are removed one at a time and measured again after each, because a block can depend on its
neighbour (greedy, as in Zhang et al. 2024, "FinerCut", but by the loss of the task).
"""

from __future__ import annotations

from collections.abc import Sequence

from shrink.base.errors import StageError
from shrink.contract.choices import Choice, Option
from shrink.contract.details import Details
from shrink.contract.report import Skipped
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
from shrink.stages.prune.fine_tuning import fine_tuning, with_teacher
from shrink.stages.prune.length import first_epochs, prolong, watched

_FIGURE = "validation_loss"
_LISTED = 6


def prune_layers(config: PruneConfig, context: StageContext) -> StageResult:
    """Remove whole blocks from the model, then fine-tune it.

    Raises:
        ModelError: fewer blocks than `config.blocks` can be removed.
        StageError: there are no validation examples.
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
    with context.devices.scope():
        before = validation_loss(model, context)
        gone, choices = _chosen(network, able, wanted, context)
        smaller = without_blocks(network, gone, exclude=config.exclude)
        after = validation_loss(smaller, context)
    task = context.task(smaller)
    config, teacher = with_teacher(config, task)
    choices += teacher
    record = None
    if config.passes:
        epochs = first_epochs(config, context)
        with watched(smaller, context):
            with fine_tuning(smaller, find_groups(model), config, context) as (learning, objective):
                record = context.train(learning, objective, epochs)
            if config.epochs == AUTO:
                record, length = prolong(smaller, record, epochs, context)
                choices += length
        if config.teacher == "self":
            choices += temperature_choice(config.temperature, task.losses)
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
        Skipped(
            layer=named(one, network),
            reason=(
                "its output has another shape than its input" if one.has_kernel else "has no kernel"
            ),
        )
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
    """Return the blocks to remove, in the order of their choice, and the choices for the report."""
    gone, choices, left = list[Block](), list[Choice](), [*able]
    for number in range(1, count + 1):
        losses = list[float]()
        for one in left:
            context.phase(f"choosing block {number} of {count}", len(losses), len(left))
            losses.append(validation_loss(without_blocks(network, [*gone, one]), context))
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
    """Return a block's first and last layer: `conv2d_3 to add_1`."""
    names = [network.name(block.calls[0].layer), network.name(block.calls[-1].layer)]
    return " to ".join(dict.fromkeys(names))
