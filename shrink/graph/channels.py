"""Sets of channels that must go together: a union-find over every channel of every tensor.

Each position along a tensor's channel axis has a label. Layers copy labels (activations), repeat
them (flattening), join them (concatenation) or unite them (addition); what ends in one set is
removed together or not at all, as in DepGraph (Fang et al. 2023, "Towards Any Structural
Pruning"), but channel by channel instead of layer by layer.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

Labels = np.ndarray
"""int64 (channels,): the label of each position along a channel axis."""


@dataclass(frozen=True)
class Channels:
    """The channels of one tensor.

    Attributes:
        shape: of the tensor, batch included; None for an unknown side.
        axis: the channel axis, counted with the batch as 0.
        labels: one label per position of that axis; empty where its length is unknown.
    """

    shape: tuple[int | None, ...]
    axis: int
    labels: Labels

    @property
    def is_last(self) -> bool:
        """Whether the channels are the last axis."""
        return self.axis == len(self.shape) - 1


@dataclass
class ChannelSets:
    """A union-find over labels, with the reasons why some must stay."""

    _parent: list[int] = field(default_factory=list)
    _reasons: dict[int, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._parent)

    def new(self, count: int) -> Labels:
        """Return `count` fresh labels, each a set of its own."""
        start = len(self._parent)
        self._parent.extend(range(start, start + count))
        return np.arange(start, start + count)

    def find(self, label: int) -> int:
        """Return the representative of a label's set."""
        root = label
        while self._parent[root] != root:
            root = self._parent[root]
        while self._parent[label] != root:
            self._parent[label], label = root, self._parent[label]
        return root

    def roots(self, labels: Labels) -> Labels:
        """Return the representative of each label, of the same shape."""
        unique, inverse = np.unique(labels, return_inverse=True)
        found = np.array([self.find(int(label)) for label in unique], np.int64)
        return found[inverse].reshape(np.shape(labels))

    def unite(self, left: Labels, right: Labels) -> None:
        """Make one set of each pair of labels at the same position."""
        pairs = {(int(a), int(b)) for a, b in zip(left, right, strict=True) if a != b}
        for a, b in pairs:
            self._unite(a, b)

    def protect(self, labels: Labels, reason: str) -> None:
        """Keep these channels for the reason given; the first reason of a set is the one told."""
        for label in np.unique(labels):
            self._reasons.setdefault(self.find(int(label)), reason)

    def reason(self, label: int) -> str | None:
        """Return why the label's set must stay, None where it may go."""
        return self._reasons.get(self.find(label))

    def _unite(self, a: int, b: int) -> None:
        a, b = self.find(a), self.find(b)
        if a == b:
            return
        low, high = min(a, b), max(a, b)
        self._parent[high] = low
        reason = self._reasons.pop(high, None)
        if reason is not None:
            self._reasons.setdefault(low, reason)
