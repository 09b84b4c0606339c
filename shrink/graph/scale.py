"""Narrower and shallower copies of a functional model, with new weights or the most important.

A tensor through which everything passes cuts a model in two. Between neighbouring cuts lie single
layers, or whole residual blocks. A block begins at each kernel or branch with kernels, and takes in
what follows it, such as its batch norm and activation. Pooling after a block that gives the shape
which it takes, preprocessing, and layers with constants or statistics of inputs belong to no block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tf_keras as keras

from shrink.base.errors import ModelError, RecipeError, listed
from shrink.base.keras_internals import own_weights, parts_of
from shrink.graph.groups import ChannelGraph, Group, find_groups, matches
from shrink.graph.layers import COPY_RULES
from shrink.graph.network import Call, Network, Ref, is_batch_norm, read_network
from shrink.graph.rebuild import (
    Weights,
    keeps_state,
    over_kernels,
    rebuild,
    rebuild_without,
    unfrozen,
    unfrozen_note,
    weights_of,
)

L = keras.layers


def scaled(model: keras.Model, scale: Mapping[str, float]) -> keras.Model:
    """Return a smaller copy of a model, with layers of the same names.

    Call it inside the devices' scope. What gradients do not learn is copied (see
    `shrink.graph.rebuild`), and frozen layers that changed become trainable.

    Args:
        model: any functional model; it is not changed.
        scale: `width`, the fraction of each group's channels that stays, and `depth`, the
            fraction of the blocks of one shape, in (0, 1] both; `inherit` above 0 keeps the
            weights of what stays, else learned weights are initialised as the layers say.

    Raises:
        ModelError: there is nothing that could be left out.
        RecipeError: a factor is above 1.
    """
    _check_factors(scale)
    inherit = scale.get("inherit", 0) > 0
    if scale.get("depth", 1.0) == 1:
        return narrower(model, scale.get("width", 1.0), inherit=inherit)
    network = read_network(model)
    student = without_blocks(network, blocks_to_remove(network, scale["depth"]), inherit=inherit)
    if scale.get("width", 1.0) == 1:
        return student
    changed = unfrozen(network, student)
    for name in changed:  # so that the narrower copy keeps their weights, too
        student.get_layer(name).trainable = False
    student = narrower(student, scale["width"], inherit=inherit)
    for name in changed:
        student.get_layer(name).trainable = True
    return student


def check_scale(model: keras.Model, scale: Mapping[str, float]) -> None:
    """Raise what `scaled` would for this model, without building anything."""
    _check_factors(scale)
    if scale.get("depth", 1.0) < 1:
        blocks_to_remove(read_network(model), scale["depth"])
    if scale.get("width", 1.0) < 1:
        graph = find_groups(model, rules=COPY_RULES)
        if not any(_removed_count(group, scale["width"]) for group in graph.groups):
            raise _nothing(model, graph, scale["width"])


def removable_blocks(network: Network, exclude: Sequence[str] = ()) -> list[Block]:
    """Return the blocks that can be removed, but those with a layer of an excluded name."""
    return [
        block
        for block in find_blocks(network)
        if block.is_removable
        and not any(matches(network.name(call.layer), exclude) for call in block.calls)
    ]


def check_blocks(model: keras.Model, blocks: int, exclude: Sequence[str] = ()) -> None:
    """Raise `ModelError` where a model has fewer removable blocks than are to be removed."""
    able = len(removable_blocks(read_network(model), exclude))
    if blocks > able:
        raise ModelError(
            f"prune.blocks is {blocks}, but the model has {able} removable blocks: such a block "
            "has a kernel, equal input and output shapes, and only its own shortcut around it",
            subject="prune.blocks",
            hint="set fewer prune.blocks, or method: channels",
        )


def student_notes(model: keras.Model, student: keras.Model, inherit: bool) -> list[str]:
    """Return what a report says of the weights of a copy that `scaled` returned."""
    network, notes = read_network(model), []
    if changed := unfrozen(network, student):
        notes.append(unfrozen_note(changed))
    present = {layer.name for layer in student.layers}
    kept = [
        network.name(layer)
        for layer in network.layers()
        if network.name(layer) in {*present} - {*changed} and keeps_state(layer)
    ]
    if kept and not inherit:
        notes.append(f"the student keeps the statistics and tables of the layers {listed(kept, 8)}")
    return notes


def narrower(model: keras.Model, width: float, *, inherit: bool) -> keras.Model:
    """Return a copy with a fraction of the channels of each group, at least one.

    The channels of largest group L2 norm stay (DepGraph, Fang et al. 2023, eq. 6). Inputs and
    outputs keep their channels.

    Raises:
        ModelError: no channel would go.
    """
    graph = find_groups(model, rules=COPY_RULES)
    weights = weights_of(graph)
    removed = [_removed(group, width, weights) for group in graph.groups]
    gone = np.concatenate([np.array([], np.int64), *removed])
    if width < 1 and not gone.size:
        raise _nothing(model, graph, width)
    return rebuild(graph, graph.keep(gone), weights, fresh=not inherit)


def blocks_to_remove(network: Network, depth: float) -> list[Block]:
    """Return the blocks that a student of this depth lacks, of each run of one shape.

    The blocks that stay are evenly spaced, as in Sanh et al. 2019, "DistilBERT", section 3: every
    other block at a depth of a half.

    Raises:
        ModelError: the model has no block that could be removed, or too few at this depth.
    """
    runs = stages(find_blocks(network))
    gone = [block for run in runs for block in _dropped(run, depth)]
    if gone or depth == 1:
        return gone
    name = network.model.name
    if runs:
        raise ModelError(
            f"depth {depth:g} removes no block of {name!r}: at most {max(map(len, runs))} "
            "removable blocks of one shape follow each other",
            subject="student.depth",
            hint="give a lower depth",
        )
    raise ModelError(
        f"depth {depth:g} removes no block of {name!r}: no block has a kernel and equal input "
        "and output shapes",
        subject="student.depth",
        hint="give student.width, or the student as file.py:build",
    )


def without_blocks(
    network: Network, gone: Sequence[Block], *, inherit: bool = True, exclude: Sequence[str] = ()
) -> keras.Model:
    """Return the model without some blocks, each of which gives the shape that it takes.

    Call it inside the devices' scope.

    Args:
        network: the model.
        gone: of its removable blocks.
        inherit: whether what stays has its weights; else learned weights are initialised anew.
        exclude: shell patterns of layers that stay frozen.
    """
    aliases = {block.end.index: block.start.index for block in gone}
    calls = {id(call) for block in gone for call in block.calls}
    return rebuild_without(network, calls, aliases, fresh=not inherit, exclude=exclude)


def _check_factors(scale: Mapping[str, float]) -> None:
    for name in ("width", "depth"):
        if scale.get(name, 1.0) > 1:
            raise RecipeError(
                f"student.{name} is {scale[name]:g}, but a model without a builder function can "
                "only become smaller",
                subject=f"student.{name}",
                hint=f"give a {name} of at most 1, or the student as file.py:build",
            )


def _removed_count(group: Group, width: float) -> int:
    return len(group) - max(1, round(width * len(group)))


def _removed(group: Group, width: float, weights: Weights) -> np.ndarray:
    scores = over_kernels(group, weights, np.square)
    return group.channels[np.argsort(scores, kind="stable")[: _removed_count(group, width)]]


def _dropped(run: list[Block], depth: float) -> list[Block]:
    """Return the blocks of a run that go: those that stay are spread evenly, the first included."""
    units, rest = _units(run)
    # What is left of a pattern has its end in a block that cannot go, and stays with that.
    count = round(depth * (len(units) + rest)) - rest
    stay = {round(i) for i in np.linspace(0, len(units) - 1, count)} if count > 0 else set()
    return [block for i, unit in enumerate(units) if i not in stay for block in unit]


def _units(run: list[Block]) -> tuple[list[list[Block]], bool]:
    """Return what goes together, and whether a part of one more is left over.

    Attention and the dense layers behind it are two residual blocks that are one block of a
    transformer: every other one of the two would leave attention alone. Elsewhere each is a unit.
    """
    kinds = [any(isinstance(call.layer, _ATTENTION) for call in block.calls) for block in run]
    size = 1
    if any(kinds) and not all(kinds):
        lengths = range(2, len(run))
        size = next((n for n in lengths if kinds[n:] == kinds[:-n]), 1)
    whole = len(run) // size
    return [run[i * size : (i + 1) * size] for i in range(whole)], bool(len(run) % size)


def _nothing(model: keras.Model, graph: ChannelGraph, width: float) -> ModelError:
    reasons = "; ".join(f"{p.layer}: {p.reason}" for p in graph.protected[:8])
    if graph.groups:
        reasons = f"the largest of {len(graph.groups)} groups has {max(map(len, graph.groups))}"
    return ModelError(
        f"no channel of {model.name!r} would go at width {width:g} ({reasons or 'none has any'})",
        subject="student.width",
        hint="shrink inspect MODEL --groups",
    )


_ATTENTION = (L.MultiHeadAttention, L.Attention, L.AdditiveAttention)
_DEPTHWISE = (L.DepthwiseConv1D, L.DepthwiseConv2D)
_WITH_KERNEL = (
    L.Conv1D, L.Conv2D, L.Conv3D, L.Conv1DTranspose, L.Conv2DTranspose, L.Conv3DTranspose,
    L.SeparableConv1D, L.SeparableConv2D, *_DEPTHWISE, L.LocallyConnected1D, L.LocallyConnected2D,
    L.Dense, L.EinsumDense, L.RNN,
)  # fmt: skip
_BY_CHANNEL = (L.LayerNormalization, L.GroupNormalization, L.UnitNormalization, L.PReLU)


@dataclass(frozen=True)
class Block:
    """Calls between two cuts.

    Attributes:
        calls: of the block, in order.
        start: the tensor that comes in.
        end: the tensor that goes out.
    """

    calls: tuple[Call, ...]
    start: Ref
    end: Ref

    @property
    def is_removable(self) -> bool:
        """Whether it has a kernel, and the model is still whole without it."""
        return self.start.shape == self.end.shape and self.has_kernel

    @property
    def has_kernel(self) -> bool:
        """Whether it mixes channels or positions by weights that training learns."""
        several = len(self.calls) > 1
        return any(_has_kernel(call.layer, several) for call in self.calls)


def find_blocks(network: Network) -> list[Block]:
    """Return a model's blocks in order; none before everything passes through one tensor.

    The last block, which makes the model's output, is not among them.
    """
    blocks: list[Block] = []
    for segment in _segments(network):
        before = blocks[-1] if blocks else None
        if (
            before is not None
            and before.end.index == segment.start.index
            and _joins(before, segment)
        ):
            blocks[-1] = Block((*before.calls, *segment.calls), before.start, segment.end)
        else:
            blocks.append(segment)
    return blocks[:-1]


def stages(blocks: Sequence[Block]) -> list[list[Block]]:
    """Return the runs of removable blocks that work at the same shape."""
    runs: list[list[Block]] = []
    before: Block | None = None
    for block in blocks:
        if block.is_removable:
            follows = before is not None and before.is_removable
            follows = follows and before is not None and before.end.index == block.start.index
            if follows and runs:
                runs[-1].append(block)
            else:
                runs.append([block])
        before = block
    return runs


def _segments(network: Network) -> list[Block]:
    """Return what lies between neighbouring cuts; stretches that make an output are left out."""
    last_use = {ref.index: index for index, call in enumerate(network.calls) for ref in call.inputs}
    outputs = {ref.index for ref in network.outputs}
    alive = {ref.index: ref for _, ref in network.inputs if ref.index in last_use}
    segments, calls = [], []
    start = next(iter(alive.values())) if len(alive) == 1 else None
    for index, call in enumerate(network.calls):
        calls.append(call)
        for ref in call.outputs:
            alive[ref.index] = ref
        alive = {i: r for i, r in alive.items() if last_use.get(i, -1) > index}
        if len(alive) == 1:
            (cut,) = alive.values()
            made = {ref.index for each in calls for ref in each.outputs}
            if start is not None and not made & outputs:
                segments.append(Block(tuple(calls), start, cut))
            start, calls = cut, []
    if start is not None and calls:
        segments.append(Block(tuple(calls), start, calls[-1].outputs[0]))
    return segments


def _joins(block: Block, segment: Block) -> bool:
    """Whether a segment belongs to the block before it."""
    if segment.has_kernel:
        kernels = [call for call in block.calls if _has_kernel(call.layer, True)]
        # A depthwise convolution and the pointwise one after it are one separable convolution.
        separable = len(kernels) == 1 and isinstance(kernels[0].layer, _DEPTHWISE)
        return separable and len(segment.calls) == 1
    if not block.has_kernel:
        return True
    if any(_stands_alone(call.layer) for call in segment.calls):
        return False
    return not block.is_removable or segment.start.shape == segment.end.shape


def _has_kernel(layer: keras.layers.Layer, among_others: bool) -> bool:
    """Whether a layer has a kernel.

    A layer of another class with a weight of two axes may be a dense layer, or add a position
    embedding: it has a kernel among the layers of a branch, and none by itself.
    """
    parts = parts_of(layer)
    if any(isinstance(part, _WITH_KERNEL) for part in parts):
        return True
    return among_others and any(
        weight.shape.rank > 1
        for part in parts
        if not isinstance(part, (*_BY_CHANNEL, L.Embedding)) and not is_batch_norm(part)
        for weight in own_weights(part)
    )


def _stands_alone(layer: keras.layers.Layer) -> bool:
    """Whether a layer without a kernel means something by itself, not as part of a block."""
    if type(layer).__module__.startswith("tf_keras.src.layers.preprocessing"):
        return True
    known = isinstance(layer, _BY_CHANNEL) or is_batch_norm(layer)
    return bool(layer.weights) and not known
