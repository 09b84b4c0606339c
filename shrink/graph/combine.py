"""Channels through reshapes, joins and element-wise arithmetic of several tensors."""

from __future__ import annotations

import numpy as np

from shrink.graph.channels import Channels, ChannelSets
from shrink.graph.effects import Effect, Site


def reshaped(
    channels: Channels, shape: tuple[int | None, ...], sets: ChannelSets
) -> Channels | None:
    """Return the channels after a row-major reshape to `shape`, None where they are lost.

    Elements that come to stand at one position of the new channel axis are united. Removing whole
    sets then leaves a regular grid in both shapes, with the remaining elements in the same order.
    """
    before, after = _sides(channels.shape), _sides(shape)
    if before is None or after is None:
        same = channels.is_last and shape[-1] == len(channels.labels)
        return Channels(shape, len(shape) - 1, channels.labels) if same else None
    if not after:
        return None
    along = [1] * len(before)
    along[channels.axis - 1] = -1
    full = np.broadcast_to(channels.labels.reshape(along), before)
    grid = sets.roots(full).reshape(after)
    for axis in reversed(range(grid.ndim)):
        rows = np.moveaxis(grid, axis, -1).reshape(-1, grid.shape[axis])
        if np.array_equal(rows, np.broadcast_to(rows[0], rows.shape)):
            return Channels(shape, axis + 1, rows[0])
    rows = grid.reshape(-1, grid.shape[-1])
    for row in rows[1:]:
        sets.unite(rows[0], row)
    return Channels(shape, len(shape) - 1, rows[0])


def _sides(shape: tuple[int | None, ...]) -> list[int] | None:
    """Return the shape without the batch, None where a side is unknown."""
    known = [side for side in shape[1:] if side is not None]
    return known if len(known) == len(shape) - 1 else None


def concatenate(site: Site, axis: int) -> Effect:
    """Join the channels along their axis; unite them where the tensors are joined along another."""
    first = site.inputs[0]
    if any(channels.axis != first.axis for channels in site.inputs):
        return site.protect(f"{site.name}: its inputs have their channels on different axes")
    if axis == first.axis:
        return Effect(site.passes(np.concatenate([c.labels for c in site.inputs]), axis))
    for channels in site.inputs[1:]:
        site.sets.unite(first.labels, channels.labels)
    return Effect(site.passes(first.labels, first.axis))


def merge(site: Site) -> Effect:
    """Unite the channels of tensors that are added, multiplied or compared element by element.

    A tensor with one channel is broadcast over the others', and so keeps it. Keras aligns tensors
    of fewer axes at the last one.
    """
    rank = len(site.output.shape)
    from_end = {len(channels.shape) - channels.axis for channels in site.inputs}
    aligned = len({len(channels.shape) for channels in site.inputs}) == 1
    if len(from_end) > 1 or (not aligned and from_end != {1}):
        return site.protect(f"{site.name}: its inputs have their channels on different axes")
    axis = rank - from_end.pop()
    widest = max((channels.labels for channels in site.inputs), key=len)
    for channels in site.inputs:
        if len(channels.labels) == len(widest):
            site.sets.unite(widest, channels.labels)
        else:
            site.sets.protect(channels.labels, f"{site.name}: broadcast over channels")
    return Effect(site.passes(widest, axis))
