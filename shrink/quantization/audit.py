"""What is inside a quantized artifact, and how far its outputs are from the float model's."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np

from shrink.base import files
from shrink.base.child import NoAnswer, run_child
from shrink.base.errors import StageError
from shrink.contract.details import Agreement
from shrink.contract.stage_details import ArtifactAudit, ComparedOperator
from shrink.measure.size import layer_paths, operator_table
from shrink.quantization.bias_correction import layer_errors
from shrink.quantization.edge_quantizer import MICRO_INT4_OPERATORS
from shrink.quantization.source import FloatModel
from shrink.tflite.arena import predict_in_micro
from shrink.tflite.edit import exposing
from shrink.tflite.interpreter import load
from shrink.tflite.model import Operator, Subgraph, read
from shrink.tflite.names import Named, row_count
from shrink.tflite.planner import wrong_shapes
from shrink.tflite.runtime import MODULE as CHILD_MODULE
from shrink.tflite.runtime import LitertRequest

_BORDERS = {"QUANTIZE", "DEQUANTIZE"}
_FLOATS = {"FLOAT32", "FLOAT16", "BFLOAT16", "FLOAT64"}
_INTEGERS = {"INT8", "UINT8", "INT16"}
_WITHOUT_ARITHMETIC = {"RESHAPE", "SHAPE", "SQUEEZE", "EXPAND_DIMS"}
_TIMEOUT_S = 60.0
_MICRO_EXAMPLES = 20


def audit(
    content: bytes,
    source: FloatModel,
    inputs: Named,
    target: Literal["litert", "tflm"],
    path: Path,
    compared_on: str = "training examples",
) -> tuple[ArtifactAudit, list[str]]:
    """Return the audit, and its findings as sentences.

    Args:
        content: the artifact.
        source: the float model that it was made from.
        inputs: float32 (n, ...) by the name of the model's input.
        target: the runtime that the artifact is for.
        path: where to put the artifact for a child process that runs it.
        compared_on: what the inputs are, for people.

    Raises:
        StageError: LiteRT, or for the target tflm TFLite Micro, cannot run the artifact.
    """
    check_runs(content, path)
    graphs = read(content)
    graph = graphs[0]
    layers = layer_paths(source.model) if source.model is not None else []
    agreements = compare_forms(content, source, inputs)
    if target == "tflm" and (wrong := wrong_shapes(graph)):
        raise StageError(wrong)
    micro = microcontroller_findings if target == "tflm" else narrow_weights_beyond_micro
    notes = [*findings(graph), *micro(graph)]
    if agreements:
        notes.append(_agreement_note(agreements, compared_on))
    if target == "tflm":
        few = {name: array[:_MICRO_EXAMPLES] for name, array in inputs.items()}
        micro_agreements, micro_note = compare_with_micro(content, few, compared_on)
        agreements, notes = [*agreements, *micro_agreements], [*notes, micro_note]
    found = ArtifactAudit(
        operators=tuple(operator_table(graphs, layers)),
        float_islands=tuple(float_islands(graph)),
        custom_operators=tuple(sorted({o.name for o in graph.operators if o.custom})),
        agreement=tuple(agreements),
        compared_on=compared_on,
    )
    return found, notes


def check_runs(content: bytes, path: Path) -> None:
    """Raise `StageError` where LiteRT, in a process of its own, cannot allocate and run it."""
    failure = _failure(content, path)
    if failure is None:
        return
    operator, layer = _first_failing(content, path)
    files.write_bytes(path, content)
    raise StageError(
        f"{failure}, at the operator {operator}",
        subject=layer,
        hint="try another scheme; float32 tells whether the model itself can run",
    )


def _failure(content: bytes, path: Path) -> str | None:
    files.write_bytes(path, content)
    request = LitertRequest(str(path.resolve()))
    run = run_child(CHILD_MODULE, request, NoAnswer, timeout_s=_TIMEOUT_S)
    if run.failure is None or run.timed_out:
        return None
    return run.error.message if run.error is not None else f"LiteRT cannot run it: {run.failure}"


def _first_failing(content: bytes, path: Path) -> tuple[str, str]:
    """Return the first operator that LiteRT cannot run, and what it writes, by bisection."""
    operators = read(content)[0].operators
    runs, fails = 0, len(operators)
    while fails - runs > 1:
        middle = (runs + fails) // 2
        written = [i for operator in operators[:middle] for i in operator.outputs if i >= 0]
        if _failure(exposing(content, written), path) is None:
            runs = middle
        else:
            fails = middle
    last = operators[fails - 1]
    return last.name, read(content)[0].tensors[last.outputs[0]].name


def with_errors(
    found: ArtifactAudit, content: bytes, source: FloatModel, inputs: Named
) -> ArtifactAudit:
    """Return an audit whose operators have how far each one's output is from the float model's.

    It needs the float .tflite form, which some schemes do without: a conversion of its own.
    """
    reference = source.float32.content
    errors = layer_errors(content, reference, inputs) if content != reference else {}
    rows = []
    for number, row in enumerate(found.operators):
        snr, cosine = errors.get(number, (None, None))
        rows.append(ComparedOperator(**vars(row), snr_db=snr, cosine=cosine))
    return replace(found, operators=tuple(rows))


def float_islands(graph: Subgraph) -> list[str]:
    """Return the operators with float outputs, where others have integer ones."""
    computing = [o for o in graph.operators if o.name not in _BORDERS]
    if not any(_writes(graph, operator, _INTEGERS) for operator in computing):
        return []
    return [operator.name for operator in computing if _writes(graph, operator, _FLOATS)]


def findings(graph: Subgraph) -> list[str]:
    """Return a sentence for float islands, operators beyond TFLite's own, and idle conversions."""
    notes = []
    if islands := float_islands(graph):
        notes.append(f"operators that stay float: {_counted(islands)}")
    if custom := [o.name for o in graph.operators if o.custom]:
        notes.append(f"operators that only some runtimes have: {_counted(custom)}")
    if pairs := idle_pairs(graph):
        notes.append(f"{pairs} times a value is dequantized only to be quantized again")
    return notes


def idle_pairs(graph: Subgraph) -> int:
    """Return the number of QUANTIZE operators that read what a DEQUANTIZE wrote."""
    written = {i for o in graph.operators if o.name == "DEQUANTIZE" for i in o.outputs}
    return sum(o.name == "QUANTIZE" and o.inputs[0] in written for o in graph.operators)


def compare_forms(content: bytes, source: FloatModel, inputs: Named) -> list[Agreement]:
    """Return the agreement Keras to float .tflite to artifact, as far as there are these forms."""
    forms = {"quantized": load(content).predict(inputs)}
    if (converted := source.converted) is not None:
        forms = {"float tflite": load(converted.content).predict(inputs), **forms}
    if source.model is not None:
        forms = {"keras": source.keras_outputs(inputs), **forms}
    names = list(forms)
    return [
        agreement(number, f"{before} to {after}", first, second)
        for before, after in itertools.pairwise(names)
        for number, (first, second) in enumerate(zip(forms[before], forms[after], strict=True))
    ]


def compare_with_micro(
    content: bytes, inputs: Named, compared_on: str = "training examples"
) -> tuple[list[Agreement], str]:
    """Return the agreement of TFLite Micro's outputs with LiteRT's, and a sentence on it.

    Raises:
        StageError: TFLite Micro cannot run the artifact.
    """
    runner = load(content)
    reference, other = runner.predict(inputs), predict_in_micro(content, inputs)
    pairs = list(zip(reference, other, strict=True))
    agreements = [agreement(i, "litert to tflm", a, b) for i, (a, b) in enumerate(pairs)]
    most = max(float(np.max(np.abs(a - b), initial=0)) for a, b in pairs)
    scale = max(detail.scale for detail in runner.output_details)
    apart = f"{most / scale:.0f} of 255 steps" if scale else f"{most:.3g}"
    verdict = "equal LiteRT's" if most == 0 else f"differ from LiteRT's by at most {apart}"
    count = row_count(inputs)
    return agreements, f"tflm: outputs of TFLite Micro on {count} {compared_on} {verdict}"


def agreement(output: int, compared: str, reference: np.ndarray, other: np.ndarray) -> Agreement:
    """Compare two arrays of one shape; the first is the signal."""
    signal = reference.astype(np.float64).ravel()
    changed = other.astype(np.float64).ravel()
    power, noise = float(signal @ signal), float(np.sum((signal - changed) ** 2))
    lengths = np.linalg.norm(signal) * np.linalg.norm(changed)
    cosine = float(signal @ changed / lengths) if lengths else float(noise == 0)
    snr = 10 * float(np.log10(power / noise)) if noise and power else None
    return Agreement(output=output, compared=compared, snr_db=snr, cosine=cosine)


def _agreement_note(agreements: Sequence[Agreement], compared_on: str) -> str:
    several = len({one.output for one in agreements}) > 1
    parts = [
        f"{one.compared}{f' (output {one.output})' if several else ''} "
        f"{'exact' if one.snr_db is None else f'{one.snr_db:.1f} dB'}"
        for one in agreements
    ]
    return f"agreement of outputs on {compared_on}: {', '.join(parts)}"


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
    if wrong := wrong_shapes(graph):
        notes.append(f"tflm: {wrong}")
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


def _writes(graph: Subgraph, operator: Operator, dtypes: set[str]) -> bool:
    if operator.name in _WITHOUT_ARITHMETIC:
        return False
    return any(graph.tensors[i].dtype in dtypes for i in operator.outputs if i >= 0)


def _counted(names: Sequence[str]) -> str:
    return ", ".join(f"{names.count(name)} {name}" for name in sorted(set(names)))
