"""Mixed precision: what each operator's weights cost, and which get 4 bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shrink.base.errors import StageError
from shrink.quantization.calibration import Batches
from shrink.quantization.edge_quantizer import Weighted
from shrink.quantization.rounding import measure_moments, round_operator
from shrink.tflite.edit import with_constants
from shrink.tflite.interpreter import load


@dataclass(frozen=True)
class Sensitivity:
    """What 4-bit weights of one operator do.

    Attributes:
        name: of the operator's output tensor.
        kind: CONV_2D and so on.
        parameters: the number of its weights.
        error: mean squared difference of the float model's outputs with this operator alone
            rounded, over that of the outputs around their mean.
    """

    name: str
    kind: str
    parameters: int
    error: float

    @property
    def saved_bytes(self) -> int:
        """What 4 bits save against 8."""
        return self.parameters // 2


def measure_sensitivity(
    content: bytes,
    operators: Sequence[Weighted],
    batches: Batches,
    on_operator: Callable[[int], None] = lambda number: None,
) -> list[Sensitivity]:
    """Round each operator alone to 4 bits and measure the outputs; least error per byte first.

    Args:
        content: a float .tflite model.
        operators: those of its operators that may have 4-bit weights.
        batches: unlabelled examples.
        on_operator: called before each operator, with its number.
    """
    reference = _outputs(content, batches)
    spread = float(np.mean((reference - reference.mean(axis=0)) ** 2)) or 1.0
    measured = []
    for number, operator in enumerate(operators):
        on_operator(number)
        moments = measure_moments(content, content, operator, batches)
        changed = with_constants(content, round_operator(operator, 4, moments))
        error = float(np.mean((_outputs(changed, batches) - reference) ** 2)) / spread
        measured.append(Sensitivity(operator.name, operator.kind, operator.weights.size, error))
    return sorted(measured, key=lambda one: one.error / max(one.saved_bytes, 1))


def _outputs(content: bytes, batches: Batches) -> np.ndarray:
    runner = load(content)
    rows = [
        np.concatenate([output.reshape(len(output), -1) for output in runner.predict(arrays)], 1)
        for arrays in batches
    ]
    return np.concatenate(rows).astype(np.float64)


Build = Callable[[Mapping[str, int], bool], bytes]
"""From widths by operator to an artifact; the flag: with its weights rounded with care."""


@dataclass(frozen=True)
class Assignment:
    """A mixed artifact.

    Attributes:
        content: the .tflite file.
        bits: width of the weights of every ranked operator, by name.
        drop: how much worse the metric is on the validation split; None where it was not measured.
        tried: number of artifacts scored.
        metric: that `drop` is of.
    """

    content: bytes
    bits: dict[str, int]
    drop: float | None
    tried: int
    metric: str = "accuracy"


def smallest_within_drop(
    ranked: Sequence[Sensitivity],
    build: Build,
    drop_of: Callable[[bytes], float],
    limit: float,
    metric: str = "accuracy",
) -> Assignment:
    """Return the artifact with the most operators of 4 bits that loses no more than `limit`.

    Bisection over the ranking: the first k operators get 4 bits.

    Args:
        ranked: operators, the least error per byte first.
        build: makes an artifact.
        drop_of: how much worse the metric is of an artifact, in its own unit.
        limit: how much worse it may be.
        metric: its name.

    Raises:
        StageError: 8 bits everywhere lose more.
    """
    all_wide = build({}, True)
    best = Assignment(all_wide, _widths(ranked, 0), drop_of(all_wide), 1, metric)
    if best.drop is not None and best.drop > limit:
        raise StageError(
            f"with 8-bit weights everywhere {metric} is worse by {best.drop:.4g} on the validation "
            f"split, more than the budget of {limit:g}",
            hint="allow a larger drop, or use `activations: float32`",
        )
    low, high, tried = 0, len(ranked), 1
    while low < high:
        count = (low + high + 1) // 2
        bits = _widths(ranked, count)
        content = build(_four(bits), True)
        drop, tried = drop_of(content), tried + 1
        if drop <= limit:
            best, low = Assignment(content, bits, drop, tried, metric), count
        else:
            high = count - 1
    return Assignment(best.content, best.bits, best.drop, tried, metric)


def least_error_within_bytes(
    ranked: Sequence[Sensitivity],
    build: Build,
    limit: int,
    file_bytes: Callable[[bytes], int] = len,
) -> Assignment:
    """Return the artifact of at most `limit` bytes with little summed error.

    Operators get 4 bits in the order of error per byte until the file is small enough; then those
    that cost most get their 8 bits back where the file stays small enough.

    Args:
        ranked: operators, the least error per byte first.
        build: makes an artifact; sizes do not depend on how weights are rounded.
        limit: bytes of the file.
        file_bytes: returns how large an artifact's file is, with what will be added to it.

    Raises:
        StageError: 4 bits everywhere are larger.
    """
    count, size = 0, file_bytes(build({}, False))
    while size > limit:
        if count == len(ranked):
            raise StageError(
                f"with 4-bit weights wherever possible the artifact has {size:,} bytes, more than "
                f"the budget of {limit:,}",
                hint="allow more file_bytes, or prune the model first",
            )
        count += 1
        size = file_bytes(build(_four(_widths(ranked, count)), False))
    bits = _widths(ranked, count)
    for one in sorted(ranked[:count], key=lambda one: -one.error):
        wider = bits | {one.name: 8}
        if size + one.saved_bytes <= limit and file_bytes(build(_four(wider), False)) <= limit:
            bits, size = wider, size + one.saved_bytes
    return Assignment(build(_four(bits), True), bits, None, 0)


def _widths(ranked: Sequence[Sensitivity], count: int) -> dict[str, int]:
    return {one.name: 4 if rank < count else 8 for rank, one in enumerate(ranked)}


def _four(bits: Mapping[str, int]) -> dict[str, int]:
    return {name: width for name, width in bits.items() if width == 4}
