"""Checks of a .tflite file for runtimes: what does not run, is slow, or unfit for TFLite Micro."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from shrink.base import files
from shrink.base.child import NoAnswer, run_child
from shrink.base.errors import StageError
from shrink.tflite.model import Operator, Subgraph, values
from shrink.tflite.runtime import MODULE as CHILD_MODULE
from shrink.tflite.runtime import GuardRequest

MICRO_INT4_OPERATORS = frozenset({"CONV_2D"})
"""Operators that TFLite Micro's stock kernels run with 4-bit weights and integer activations."""
_BORDERS = {"QUANTIZE", "DEQUANTIZE"}
_FLOATS = {"FLOAT32", "FLOAT16", "BFLOAT16", "FLOAT64"}
_INTEGERS = {"INT8", "UINT8", "INT16"}
_WITHOUT_ARITHMETIC = {"RESHAPE", "SHAPE", "SQUEEZE", "EXPAND_DIMS"}
_TIMEOUT_S = 60.0


def check_runs(content: bytes, path: Path) -> None:
    """Raise `StageError` where LiteRT, in a process of its own, cannot allocate and run it."""
    files.write_bytes(path, content)
    request = GuardRequest(str(path.resolve()), as_it_is=True)
    run = run_child(CHILD_MODULE, request, NoAnswer, timeout_s=_TIMEOUT_S)
    if run.failure is not None and not run.timed_out:
        why = run.failure if run.error is None else run.error.message
        raise StageError(
            f"LiteRT cannot run the converted file: {why}",
            hint="try another scheme; float32 shows whether the model itself can run",
        )


def float_islands(graph: Subgraph) -> list[str]:
    """Return the operators with float outputs, where others have integer ones."""
    computing = [o for o in graph.operators if o.name not in _BORDERS]
    if not any(_writes(graph, operator, _INTEGERS) for operator in computing):
        return []
    return [operator.name for operator in computing if _writes(graph, operator, _FLOATS)]


def findings(graph: Subgraph) -> list[str]:
    """Return a sentence for float islands, operators beyond TFLite's own, and states."""
    notes = state_findings(graph)
    if islands := float_islands(graph):
        notes.append(f"operators that stay float: {_counted(islands)}")
    if custom := [o.name for o in graph.operators if o.custom]:
        notes.append(f"operators that only some runtimes have: {_counted(custom)}")
    return notes


def state_findings(graph: Subgraph) -> list[str]:
    """Return a sentence for operators whose state outlives an invocation, as an LSTM's does."""
    if not (keeping := operators_with_state(graph)):
        return []
    return [
        f"state kept between invocations by {_counted(keeping)}: reset it before each example "
        "(LiteRT: reset_all_variables(), TFLite Micro: Reset()), as shrink does where it measures"
    ]


def operators_with_state(graph: Subgraph) -> list[str]:
    """Return the operators that read and write variable tensors."""
    return [
        operator.name
        for operator in graph.operators
        if any(i >= 0 and graph.tensors[i].variable for i in operator.inputs)
    ]


def narrow_weights_beyond_micro(graph: Subgraph) -> list[str]:
    """Return a sentence where 4-bit weights alone keep an integer model off TFLite Micro."""
    narrow = [
        operator.name
        for operator in graph.operators
        if operator.name not in MICRO_INT4_OPERATORS
        and _writes(graph, operator, _INTEGERS)
        and any(i >= 0 and graph.tensors[i].dtype == "INT4" for i in operator.inputs)
    ]
    if not narrow:
        return []
    return [
        f"TFLite Micro has no 4-bit weights for {_counted(narrow)}, so that this file is for "
        "LiteRT alone; `target: tflm` (--target tflm) keeps 8 bits there"
    ]


def microcontroller_findings(graph: Subgraph) -> list[str]:
    """Return a sentence for what older or integer-only microcontroller runtimes do not run."""
    notes = []
    weights = [
        (operator, graph.tensors[operator.inputs[1]])
        for operator in graph.operators
        if len(operator.inputs) > 1 and operator.inputs[1] >= 0
    ]
    if any(o.name == "FULLY_CONNECTED" and len(w.scales) > 1 for o, w in weights):
        notes.append(
            "tflm: FULLY_CONNECTED has a scale per channel, which older microcontroller runtimes "
            "read as one scale"
        )
    hybrid = [
        operator.name
        for operator, weight in weights
        if weight.constant and weight.scales and _writes(graph, operator, _FLOATS)
    ]
    if hybrid:
        notes.append(
            f"tflm: integer weights with float activations in {_counted(hybrid)}, which "
            "microcontroller kernels do not run; use a static scheme"
        )
    return notes


def wrong_shapes(graph: Subgraph) -> str:
    """Return what is wrong with the stored shapes around SPACE_TO_BATCH_ND; empty for nothing.

    Converters write 1 for a batch that they leave open, also behind SPACE_TO_BATCH_ND, as in
    dilated convolutions. LiteRT computes the shapes anew; TFLite Micro takes them as stored.
    """
    for number, operator in enumerate(graph.operators):
        if operator.name not in ("SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND"):
            continue
        source, block, output = (
            graph.tensors[i] for i in (*operator.inputs[:2], operator.outputs[0])
        )
        sizes = values(block) if block.constant else None
        many, one = (output, source) if operator.name.startswith("SPACE") else (source, output)
        if sizes is None or not many.shape or not one.shape:
            continue
        batch = one.shape[0] * math.prod(sizes.tolist())
        if many.shape[0] != batch:
            return (
                f"operator {number} ({operator.name}) has a batch of {many.shape[0]} in its stored "
                f"shape in place of {batch}; TFLite Micro uses the stored shape, and its outputs "
                "differ from LiteRT's. Convert the model again with a batch size of 1"
            )
    return ""


def _writes(graph: Subgraph, operator: Operator, dtypes: set[str]) -> bool:
    if operator.name in _WITHOUT_ARITHMETIC:
        return False
    return any(graph.tensors[i].dtype in dtypes for i in operator.outputs if i >= 0)


def _counted(names: Sequence[str]) -> str:
    return ", ".join(f"{names.count(name)} {name}" for name in sorted(set(names)))
