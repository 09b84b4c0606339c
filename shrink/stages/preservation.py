"""Zeros and clusters of earlier stages, which every later stage has to preserve."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from shrink.base.errors import StageError
from shrink.pruning.masks import Zeros, count_zeros, prunable_kernels
from shrink.pruning.sharing import MOST_VALUES, Few, few_values
from shrink.stages.context import StageContext, StageResult
from shrink.tflite.lazy import keras
from shrink.tflite.model import values
from shrink.tflite.weights import nonzero_parameters, parameters, weights

_CHANNELS = {5: 4}
"""The axis of a kernel's output channels in a file, by its dimensions; 0 but for Conv3D."""


@dataclass(frozen=True)
class Clustered:
    """A kernel whose weights share a few values."""

    layer: str
    few: Few
    size: int

    def kept_by(self, now: Few | None) -> bool:
        """Whether the kernel's weights take no more values now."""
        if now is None or now.values > self.few.values:
            return False
        return self.few.per_channel or not now.per_channel


@dataclass(frozen=True)
class Preserved:
    """The figures that a stage must preserve, taken from its input before it runs.

    Attributes:
        zeros: in all prunable kernels, or None where no stage pruned.
        clustered: the kernels of few values; empty without a cluster stage.
    """

    zeros: Zeros | None = None
    clustered: tuple[Clustered, ...] = ()

    @classmethod
    def of(cls, context: StageContext) -> Preserved:
        """Measure the input of a stage that must preserve something."""
        if not context.preserves:
            return cls()
        zeros, clusters = (trait in context.preserves for trait in ("sparsity", "clusters"))
        if context.input_path().suffix == ".tflite":  # of quantize, which compact goes on from
            content = context.input_path().read_bytes()
            of = parameters(content)
            found = (
                Clustered(f"a kernel of {size:,}", Few(count, per_channel=True), size)
                for size, counts in (_values_by_size(content).items() if clusters else ())
                for count in counts
                if count <= MOST_VALUES
            )
            return cls(Zeros(of - nonzero_parameters(content), of) if zeros else None, tuple(found))
        model = context.load()
        return cls(
            count_zeros(model) if zeros else None,
            tuple(_clustered(model)) if clusters else (),
        )

    @staticmethod
    def refuse_broken(breaks: Collection[str], context: StageContext) -> None:
        """Raise `StageError` where a stage cannot keep a trait of an imported model."""
        for trait in context.imported.traits:
            if trait in breaks:
                raise StageError(
                    f"it cannot keep the {trait} that the model came with",
                    subject=context.name,
                    hint="start from the model as it was before them",
                )

    def check(self, outcome: StageResult, context: StageContext) -> None:
        """Raise `StageError` where the stage broke what it had to preserve.

        A file that was compiled for an accelerator holds no weights that could be counted.
        """
        if outcome.not_run:
            return
        if self.zeros is not None:
            if outcome.model is not None:
                zeros = count_zeros(outcome.model).count
            else:
                content = outcome.tflite or b""
                zeros = parameters(content) - nonzero_parameters(content)
            if zeros < self.zeros.count:
                raise StageError(
                    f"an earlier stage pruned {self.zeros.count:,} of {self.zeros.of:,} weights, "
                    f"and only {zeros:,} are zero now",
                    subject=context.name,
                )
        if lost := self._not_shared(outcome):
            raise StageError(
                f"an earlier stage clustered the weights of {', '.join(lost)}, and they take more "
                "values now",
                subject=context.name,
                hint="take a scheme that rounds every weight by itself, such as static_wi8_ai8",
            )

    def _not_shared(self, outcome: StageResult) -> list[str]:
        """Return the layers whose weights take more values than they did."""
        if outcome.model is not None:
            now = {one.layer: one.few for one in _clustered(outcome.model)}
            return [c.layer for c in self.clustered if not c.kept_by(now.get(c.layer))]
        counts = _values_by_size(outcome.tflite or b"")
        lost = []
        for one in sorted(self.clustered, key=lambda c: c.few.values):
            # A file names its tensors as it likes, and stores equal ones once.
            if counts[one.size] and counts[one.size].pop(0) > one.few.values:
                lost.append(one.layer)
        return lost


def _clustered(model: keras.Model) -> list[Clustered]:
    clustered = []
    for one in prunable_kernels(model)[0]:
        kernel = one.kernel.numpy()
        if (few := few_values(kernel)) is not None:
            clustered.append(Clustered(one.layer, few, kernel.size))
    return clustered


def _values_by_size(content: bytes) -> dict[int, list[int]]:
    """Return the most distinct values of a channel of each weight tensor, ascending, by its size.

    Batch normalization is folded into a file's kernels, channel by channel, and so are the scales
    of integers: the values of a channel are as few as before, those of a kernel are not.
    """
    by_size: dict[int, list[int]] = defaultdict(list)
    for tensor in weights(content):
        stored = values(tensor)
        if stored is not None:  # 4 bits, which need no more than 16 values
            array = stored.reshape(tensor.shape)
            channels = np.moveaxis(array, _CHANNELS.get(array.ndim, 0), 0)
            by_size[array.size].append(max(len(np.unique(channel)) for channel in channels))
    return defaultdict(list, {size: sorted(counts) for size, counts in by_size.items()})
