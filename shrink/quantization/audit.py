"""What is inside a quantized artifact, and how far its outputs are from the float model's."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np

from shrink.base.errors import StageError
from shrink.contract.details import Agreement, Audit
from shrink.measure.layers import layer_paths
from shrink.measure.size import operator_table
from shrink.quantization.bias_correction import layer_errors, noise_figures, noise_sums
from shrink.quantization.source import FloatModel
from shrink.tflite.arena import predict_in_micro
from shrink.tflite.interpreter import load
from shrink.tflite.model import read
from shrink.tflite.names import Named, row_count
from shrink.tflite.suitability import (
    check_runs,
    findings,
    float_islands,
    microcontroller_findings,
    narrow_weights_beyond_micro,
    wrong_shapes,
)

_MICRO_EXAMPLES = 20


def audit(
    content: bytes,
    source: FloatModel,
    inputs: Named,
    target: Literal["litert", "tflm"],
    path: Path,
    compared_on: str = "training examples",
) -> tuple[Audit, list[str]]:
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
    found = Audit(
        operators=tuple(operator_table(graphs, layers)),
        float_islands=tuple(float_islands(graph)),
        custom_operators=tuple(sorted({o.name for o in graph.operators if o.custom})),
        agreement=tuple(agreements),
        compared_on=compared_on,
    )
    return found, notes


def with_errors(found: Audit, content: bytes, source: FloatModel, inputs: Named) -> Audit:
    """Return an audit whose operators have how far each one's output is from the float model's.

    It needs the float .tflite form, which some schemes do without: a conversion of its own.
    """
    reference = source.float32.content
    errors = layer_errors(content, reference, inputs) if content != reference else {}
    rows = []
    for number, row in enumerate(found.operators):
        snr, cosine = errors.get(number, (None, None))
        rows.append(replace(row, snr_db=snr, cosine=cosine))
    return replace(found, operators=tuple(rows))


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
    snr, cosine = noise_figures(*noise_sums(reference, other))
    return Agreement(output=output, compared=compared, snr_db=snr, cosine=cosine)


def _agreement_note(agreements: Sequence[Agreement], compared_on: str) -> str:
    several = len({one.output for one in agreements}) > 1
    parts = [
        f"{one.compared}{f' (output {one.output})' if several else ''} "
        f"{'exact' if one.snr_db is None else f'{one.snr_db:.1f} dB'}"
        for one in agreements
    ]
    return f"agreement of outputs on {compared_on}: {', '.join(parts)}"
