"""Narrower and shallower copies of a functional model, with new weights or the most important."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tf_keras as keras

from shrink.base.errors import ModelError, RecipeError
from shrink.graph.blocks import Block, find_blocks, stages
from shrink.graph.groups import ChannelGraph, Group, find_groups
from shrink.graph.layers import COPY_RULES
from shrink.graph.network import read_network
from shrink.graph.norms import over_kernels
from shrink.graph.rebuild import Weights, rebuild, rebuild_without, weights_of


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

    Only blocks that give the shape which they take can go; see `shrink.graph.blocks`. Which stay
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
    names = {network.name(call.layer) for block in gone for call in block.calls}
    weights = {network.name(layer): layer.get_weights() for layer in network.layers()}
    kept = {name: arrays for name, arrays in weights.items() if name not in names}
    aliases = {block.end.index: block.start.index for block in gone}
    calls = {id(call) for block in gone for call in block.calls}
    return rebuild_without(network, calls, aliases, kept if inherit else None)


def _removed(group: Group, width: float, weights: Weights, inherit: bool) -> np.ndarray:
    count = len(group) - max(1, round(width * len(group)))
    if not inherit:
        return group.channels[len(group) - count :]
    scores = over_kernels(group, weights, np.square)
    return group.channels[np.argsort(scores, kind="stable")[:count]]


def _dropped(run: list[Block], depth: float) -> list[Block]:
    """Return the blocks of a run that go: those that stay are spread evenly, the first included."""
    count = round(depth * len(run))
    stay = {round(place) for place in np.linspace(0, len(run) - 1, count)} if count else set()
    return [block for place, block in enumerate(run) if place not in stay]


def _nothing(model: keras.Model, graph: ChannelGraph, width: float) -> ModelError:
    reasons = "; ".join(f"{p['layer']}: {p['reason']}" for p in graph.protected[:8])
    if graph.groups:
        reasons = f"the largest of {len(graph.groups)} groups has {max(map(len, graph.groups))}"
    return ModelError(
        f"no channel of {model.name!r} would go at width {width:g} ({reasons or 'none has any'})",
        subject="student.width",
        hint="shrink inspect MODEL --groups",
    )
