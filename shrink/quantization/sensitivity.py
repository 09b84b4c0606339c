"""What each operator's 4-bit weights cost in the model's outputs, and what they save."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shrink.quantization.calibration import Batches
from shrink.quantization.operators import Weighted
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
    content: bytes, operators: Sequence[Weighted], batches: Batches
) -> list[Sensitivity]:
    """Round each operator alone to 4 bits and measure the outputs; least error per byte first.

    Args:
        content: a float .tflite model.
        operators: those of its operators that may have 4-bit weights.
        batches: unlabelled examples.
    """
    reference = _outputs(content, batches)
    spread = float(np.mean((reference - reference.mean(axis=0)) ** 2)) or 1.0
    found = []
    for operator in operators:
        moments = measure_moments(content, content, operator, batches)
        changed = with_constants(content, round_operator(operator, 4, moments))
        error = float(np.mean((_outputs(changed, batches) - reference) ** 2)) / spread
        found.append(Sensitivity(operator.name, operator.kind, operator.weights.size, error))
    return sorted(found, key=lambda one: one.error / max(one.saved_bytes, 1))


def _outputs(content: bytes, batches: Batches) -> np.ndarray:
    runner = load(content)
    rows = [
        np.concatenate([output.reshape(len(output), -1) for output in runner.predict(arrays)], 1)
        for arrays in batches
    ]
    return np.concatenate(rows).astype(np.float64)
