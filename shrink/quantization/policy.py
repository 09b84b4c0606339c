"""Which operators can hold weights of which width under which scheme: checked before work starts.

After ai-edge-quantizer 0.10's own table, cut down to what LiteRT 2.3 was seen to run.
"""

from __future__ import annotations

from typing import Literal

Mode = Literal["dynamic", "static", "weight_only"]
Target = Literal["litert", "tflm"]

INT4_OPERATORS: dict[Mode, frozenset[str]] = {
    "dynamic": frozenset({"CONV_2D", "FULLY_CONNECTED"}),
    "static": frozenset({"CONV_2D", "FULLY_CONNECTED"}),
    "weight_only": frozenset({"CONV_2D", "FULLY_CONNECTED"}),
}
"""Operators that can have 4-bit weights; the others keep 8 bits."""

MICRO_INT4_OPERATORS = frozenset({"CONV_2D"})
"""Those of them that TFLite Micro's stock kernels run so, with integer activations."""


def int4_operators(mode: Mode, target: Target) -> frozenset[str]:
    """Return the operators that can have 4-bit weights on a runtime."""
    if target == "tflm":
        return INT4_OPERATORS[mode] & MICRO_INT4_OPERATORS
    return INT4_OPERATORS[mode]


INT8_OPERATORS: dict[Mode, frozenset[str]] = {
    "dynamic": frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV"}),
    "static": frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV"}),
    "weight_only": frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV"}),
}
"""Operators that can have 8-bit weights; the weights of others stay float."""
