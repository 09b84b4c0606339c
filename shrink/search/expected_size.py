"""What a recipe leaves of a file, by what its keys mean, before anything is asked or measured."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from shrink.base.foreign import Json, JsonObject
from shrink.recipe.plan import Plan

_LEAST = 1e-3
_FIXED = (0.0, 0.003, 0.01, 0.02, 0.03, 0.045, 0.065, 0.1, 0.15, 0.25, 0.5, 1.0, 3.0, 10.0)
"""What `fixed_part` chooses from."""
_BITS = {"float32": 32.0, "float16": 16.0, "mixed": 6.0}
"""Of a weight; of other schemes their names tell."""


def expected_share(plan: Plan) -> float:
    """Return about what a plan's stages leave of the bytes of a model's weights in float32.

    Of a narrower student the square of its width, as both sides of most kernels are narrower; of
    pruned channels what their budget says; zeros count where the file leaves them out. What all
    files have beside weights is not in it.
    """
    configs: list[tuple[str, JsonObject]] = [
        (step.kind, step.config.model_dump(mode="json"))
        for step in plan.steps
        if step.config is not None
    ]
    leaves_out = any(config.get("sparse") for kind, config in configs if kind == "quantize")
    share = 1.0
    for kind, config in configs:
        if kind == "distill":
            share *= share_of_student(config.get("student"))
        elif kind == "prune":
            share *= share_of_pruned(config, leaves_out)
        elif kind == "quantize":
            share *= _bits(str(config.get("scheme"))) / 32
    return max(share, _LEAST)


def fixed_part(values: Sequence[float], shares: Sequence[float]) -> float:
    """Return the part of a figure that stays whatever a recipe leaves of the weights.

    Files hold structure, scales and biases beside weights, and an arena has little to do with them.

    Args:
        values: of a figure, positive.
        shares: what the recipes leave, in the same order.

    Returns:
        As a share, such that the values are most nearly proportional to both shares together: the
        variance of the logarithm of their ratio is least.
    """

    def unlike(fixed: float) -> float:
        return statistics.pvariance(
            [math.log(v / (s + fixed)) for v, s in zip(values, shares, strict=True)]
        )

    return min(_FIXED, key=unlike)


def share_of_student(student: Json) -> float:
    """Return about which part of the weights a student has, by its width and depth."""
    if not isinstance(student, dict):
        return 1.0
    return _number(student.get("width"), 1.0) ** 2 * _number(student.get("depth"), 1.0)


def share_of_pruned(config: JsonObject, leaves_out: bool) -> float:
    """Return about which part of the weights pruning leaves.

    Args:
        config: of the stage.
        leaves_out: whether zeros count as gone.
    """
    if config.get("method") == "magnitude":
        return 1 - _number(config.get("sparsity"), 0.0) if leaves_out else 1.0
    if config.get("method") == "layers":
        return 1.0
    for budget in ("parameters", "macs"):
        if config.get(budget) is not None:
            return _number(config[budget], 1.0)
    return (1 - _number(config.get("ratio"), 0.0)) ** 2


def _bits(scheme: str) -> float:
    return _BITS.get(scheme, 4.0 if "wi4" in scheme else 8.0)


def _number(value: Json, otherwise: float) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(str(value)) if is_number else otherwise
