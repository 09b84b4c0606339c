"""`inspect`, `bench` and `export` of .tflite files.

Nothing here imports TensorFlow, so that these verbs work where it is not installed.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from shrink.base.errors import ModelError, StageError
from shrink.base.host import machine
from shrink.base.measurement import figure_values
from shrink.base.progress import Phase
from shrink.contract.details import TensorType
from shrink.contract.events import Send
from shrink.contract.findings import (
    ArtifactInspection,
    ArtifactTensor,
    Bench,
    Firmware,
    KerasInspection,
    OperatorTensors,
    Suitability,
)
from shrink.contract.job import BenchJob, FirmwareFactsJob, InspectJob
from shrink.contract.record import as_base
from shrink.graph.macs import macs_figure
from shrink.measure.inference import measure_inference
from shrink.measure.size import operator_table
from shrink.tflite.arena import ETHOS_U, ArenaFigure, arena_of
from shrink.tflite.interpreter import plain_name
from shrink.tflite.model import Subgraph, Tensor, read, read_file
from shrink.tflite.suitability import (
    check_runs,
    findings,
    float_islands,
    microcontroller_findings,
    operators_with_state,
)
from shrink.tflite.weights import (
    float_operators,
    nonzero_parameters,
    parameters,
    quantized_operators,
)


def inspect(job: InspectJob, send: Send) -> KerasInspection | ArtifactInspection:
    """Return a description of the job's model."""
    if job.model.kind != "tflite":
        from shrink.tools.inspect import inspect_keras

        return inspect_keras(job)
    if job.groups:
        raise ModelError(
            "channel groups are those of a Keras model, and this is an artifact",
            subject=job.model.path,
            hint="inspect the Keras model that it was made from",
        )
    return describe_artifact(job.model.path)


def describe_artifact(path: Path) -> ArtifactInspection:
    """Return the operators of a TFLite artifact, with dtypes, shapes and quantization."""
    content = path.read_bytes()
    graph, macs = read(content)[0], macs_figure(content)
    arena = arena_of(path)
    return ArtifactInspection(
        path=str(path),
        file_bytes=len(content),
        inputs=tuple(_tensor(graph.tensors[i]) for i in graph.inputs),
        outputs=tuple(_tensor(graph.tensors[i]) for i in graph.outputs),
        parameters=parameters(content),
        nonzero_parameters=nonzero_parameters(content),
        macs=macs.value,
        macs_note=macs.reason,
        **_sizes(arena),
        quantized_operators=quantized_operators(content),
        float_operators=tuple(float_operators(content)),
        operators=_operators(graph),
        audit=_audit(content, graph, path, arena),
    )


def _sizes(arena: ArenaFigure) -> dict[str, Any]:
    """Return the fields of `Arenas`."""
    return {**figure_values(arena.figures), "arena_note": arena.reason}


def _audit(content: bytes, graph: Subgraph, path: Path, arena: ArenaFigure) -> Suitability:
    """Return what is found in an artifact, and whether each runtime runs it."""
    with tempfile.TemporaryDirectory(prefix="shrink-inspect-") as folder:
        try:
            check_runs(content, Path(folder) / path.name)
            litert = None
        except StageError as error:
            litert = error.message
    return Suitability(
        operators=tuple(operator_table(read(content))),
        float_islands=tuple(float_islands(graph)),
        custom_operators=tuple(sorted({o.name for o in graph.operators if o.custom})),
        findings=(*findings(graph), *microcontroller_findings(graph)),
        litert_fails=litert,
        tflm_fails=None if arena.runs else arena.reason,
    )


def _operators(graph: Subgraph) -> tuple[OperatorTensors, ...]:
    return tuple(
        OperatorTensors(
            name=operator.name,
            custom=operator.custom,
            inputs=tuple(_tensor(graph.tensors[i]) for i in operator.inputs if i >= 0),
            outputs=tuple(_tensor(graph.tensors[i]) for i in operator.outputs),
        )
        for operator in graph.operators
    )


def _tensor(tensor: Tensor) -> ArtifactTensor:
    return ArtifactTensor(
        name=tensor.name,
        shape=tuple(tensor.shape),
        dtype=tensor.dtype.lower(),
        constant=bool(tensor.data.size),
        scales=len(tensor.scales),
        scale=tensor.scales[0] if len(tensor.scales) == 1 else None,
        zero_point=tensor.zero_points[0] if len(tensor.zero_points) == 1 else None,
    )


_MADE_UP = {
    "random": "random numbers",
    "zeros": "zeros, which some kernels skip: it cannot run random numbers",
}


def bench(job: BenchJob, send: Send) -> Bench:
    """Measure the job's artifact in fresh processes.

    Raises:
        ModelError: LiteRT cannot run it.
    """
    path = job.model.path
    timed = measure_inference(path, job.threads)
    median = timed.p50_ms
    if median.value is None or timed.p90_ms.value is None or timed.made_up is None:
        raise ModelError(median.reason, subject=path)
    inputs = f"timed on {_MADE_UP[timed.made_up]}, because there are no examples"
    peak = timed.peak_bytes
    return Bench(
        path=str(path),
        p50_ms=median.value,
        p90_ms=timed.p90_ms.value,
        threads=timed.threads,
        examples=timed.examples,
        inferences_per_s=1000 / median.value,
        inference_peak_bytes=peak.value,
        file_bytes=path.stat().st_size,
        machine=machine(),
        notes=(*([peak.reason] if peak.reason else []), inputs),
    )


_WORDS = {
    "BATCH_MATMUL": "BatchMatMul",
    "CUMSUM": "CumSum",
    "PADV2": "PadV2",
    "TFLM_DECODE": "Decode",
    "TFLite_Detection_PostProcess": "DetectionPostprocess",
    "UNIDIRECTIONAL_SEQUENCE_LSTM": "UnidirectionalSequenceLSTM",
    ETHOS_U: "EthosU",
}
"""Operators whose method of TFLite Micro's `MicroMutableOpResolver` is spelled in its own way."""


def firmware_facts(job: FirmwareFactsJob, send: Send) -> Firmware:
    """Return what the job's .tflite file needs of a firmware."""
    path = job.model.path
    send(Phase("asking TFLite Micro"))
    arena = arena_of(path)
    graphs = read_file(path)
    operators = [operator for graph in graphs for operator in graph.operators]
    names = {operator.name for operator in operators}
    variables = {
        (operator.options.container, operator.options.sharedName)
        for operator in operators
        if operator.name == "VAR_HANDLE"
    }
    custom = any(operator.custom for operator in operators)  # a firmware may have its kernel
    return Firmware(
        operators=tuple(sorted(map(resolver_method, names))),
        tflm_fails=arena.reason if arena.fails and not custom else None,
        resource_variables=len(variables),
        keeps_state=any(map(operators_with_state, graphs)),
        **_sizes(arena),
        inputs=tuple(_place(graphs[0].tensors[i]) for i in graphs[0].inputs),
        outputs=tuple(_place(graphs[0].tensors[i]) for i in graphs[0].outputs),
    )


def _place(tensor: Tensor) -> TensorType:
    """Return an input or output in the order that TFLite Micro gives them in, the file's own."""
    return replace(as_base(_tensor(tensor), TensorType), name=plain_name(tensor.name))


def resolver_method(operator: str) -> str:
    """Return the method that registers an operator, such as AddConv2D for CONV_2D."""
    if operator in _WORDS:
        return f"Add{_WORDS[operator]}"
    if operator.startswith("Signal"):  # TFLite Micro's own custom operators
        return f"Add{operator.removeprefix('Signal')}"
    if not operator.isupper():
        return f'AddCustom /* "{operator}", its TFLMRegistration */'
    words = "".join(word[0] + word[1:].lower() for word in operator.split("_") if word)
    return f"Add{words.replace('2d', '2D').replace('3d', '3D')}"
