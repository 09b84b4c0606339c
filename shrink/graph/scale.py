"""Narrower and shallower copies of a functional model, with new weights or the most important.

A tensor through which everything passes cuts a model in two. Between neighbouring cuts lie single
layers, or whole residual blocks; a block begins at each kernel or branch and takes in what follows
it, such as its batch norm and activation, up to the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tf_keras as keras

from shrink.base.errors import ModelError, RecipeError
from shrink.graph.groups import ChannelGraph, Group, find_groups
from shrink.graph.layers import COPY_RULES
from shrink.graph.network import Call, Network, Ref, read_network
from shrink.graph.rebuild import Weights, over_kernels, rebuild, rebuild_without, weights_of


def scaled(model: keras.Model, scale: Mapping[str, float]) -> keras.Model:
    """Return a smaller copy of a model, with layers of the same names.

    Call it inside the devices' scope.

    Args:
        model: any functional model; it is not changed.
        scale: `width`, the fraction of each group's channels that stays, and `depth`, the
            fraction of the blocks of one shape, in (0, 1] both; `inherit` above 0 keeps the
            weights of what stays, else they are initialised as the layers say.

    Raises:
        ModelError: there is nothing that could be left out.
        RecipeError: a factor is above 1.
    """
    for name in ("width", "depth"):
        if scale.get(name, 1.0) > 1:
            raise RecipeError(
                f"student.{name} is {scale[name]:g}, and a model without a builder of its own can "
                "only become smaller",
                subject=f"student.{name}",
                hint=f"give a {name} of at most 1, or the student as file.py:build",
            )
    inherit = scale.get("inherit", 0) > 0
    if scale.get("depth", 1.0) < 1:
        model = shallower(model, scale["depth"], inherit=inherit)
    return narrower(model, scale.get("width", 1.0), inherit=inherit)


def narrower(model: keras.Model, width: float, *, inherit: bool) -> keras.Model:
    """Return a copy with a fraction of the channels of each group, at least one.

    With `inherit` the channels of largest group L2 norm stay (DepGraph, Fang et al. 2023, eq. 6).
    Inputs and outputs keep their channels.

    Raises:
        ModelError: no channel would go.
    """
    graph = find_groups(model, rules=COPY_RULES)
    weights = weights_of(graph)
    removed = [_removed(group, width, weights, inherit) for group in graph.groups]
    gone = np.concatenate([np.array([], np.int64), *removed])
    if width < 1 and not gone.size:
        raise _nothing(model, graph, width)
    return rebuild(graph, graph.keep(gone), weights if inherit else None)


def shallower(model: keras.Model, depth: float, *, inherit: bool) -> keras.Model:
    """Return a copy with a fraction of the blocks of each run of one shape, evenly spaced.

    Only blocks that give the shape which they take can go; see `shrink.graph.scale`. Which stay
    is as in Sanh et al. 2019, "DistilBERT", section 3: every other one at a depth of a half.

    Raises:
        ModelError: no block would go.
    """
    network = read_network(model)
    runs = stages(find_blocks(network))
    gone = [block for run in runs for block in _dropped(run, depth)]
    if runs and not gone:
        raise ModelError(
            f"no block of {model.name!r} would go at depth {depth:g}: the most of one shape that "
            f"follow each other are {max(map(len, runs))}",
            subject="student.depth",
            hint="give a lower depth",
        )
    if not gone:
        raise ModelError(
            f"no block of {model.name!r} can be left out at depth {depth:g}: none gives the shape "
            "that it takes",
            subject="student.depth",
            hint="give student.width, or the student as file.py:build",
        )
    return without_blocks(network, gone, inherit=inherit)


def without_blocks(network: Network, gone: Sequence[Block], *, inherit: bool = True) -> keras.Model:
    """Return the model without some blocks, each of which gives the shape that it takes.

    Call it inside the devices' scope.

    Args:
        network: the model.
        gone: of its removable blocks.
        inherit: whether what stays has its weights; else they are as layers initialise them.
    """
    aliases = {block.end.index: block.start.index for block in gone}
    calls = {id(call) for block in gone for call in block.calls}
    weights = {network.name(layer): layer.get_weights() for layer in network.layers()}
    return rebuild_without(network, calls, aliases, weights if inherit else None)


def _removed(group: Group, width: float, weights: Weights, inherit: bool) -> np.ndarray:
    count = len(group) - max(1, round(width * len(group)))
    if not inherit:
        return group.channels[len(group) - count :]
    scores = over_kernels(group, weights, np.square)
    return group.channels[np.argsort(scores, kind="stable")[:count]]


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


_ATTENTION = (
    keras.layers.MultiHeadAttention,
    keras.layers.Attention,
    keras.layers.AdditiveAttention,
)
_DEPTHWISE = (keras.layers.DepthwiseConv1D, keras.layers.DepthwiseConv2D)


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
        """Whether the model is still whole without it."""
        return self.start.shape == self.end.shape


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
    last_use = _last_uses(network)
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


def _last_uses(network: Network) -> dict[int, int]:
    """Return the index of the last call that reads each tensor."""
    return {ref.index: index for index, call in enumerate(network.calls) for ref in call.inputs}


def _joins(block: Block, segment: Block) -> bool:
    """Whether a segment belongs to the block before it."""
    if not _has_kernel(segment):
        return True
    kernels = [call for call in block.calls if _kernel_rank(call)]
    # A depthwise convolution and the pointwise one after it are one separable convolution.
    separable = len(kernels) == 1 and isinstance(kernels[0].layer, _DEPTHWISE)
    return separable and len(segment.calls) == 1


def _has_kernel(segment: Block) -> bool:
    return len(segment.calls) > 1 or any(_kernel_rank(call) for call in segment.calls)


def _kernel_rank(call: Call) -> bool:
    return any(weight.shape.rank > 1 for weight in call.layer.weights)
