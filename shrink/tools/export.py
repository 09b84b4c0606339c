"""Other forms of a model: Keras files, SavedModels, and what firmware needs for a C array."""

from __future__ import annotations

from shrink.base import files
from shrink.base.progress import Phase
from shrink.contract.events import Send
from shrink.contract.findings import Exported, Firmware
from shrink.contract.job import ExportJob, FirmwareFactsJob
from shrink.model.keras3.export import to_keras3
from shrink.model.load import load_source
from shrink.task.interface import describe_tensors
from shrink.tflite.arena import arena_bytes
from shrink.tflite.model import read_file


def export(job: ExportJob, send: Send) -> Exported:
    """Write the job's model to its target in the wanted format."""
    as_graph = job.format == "savedmodel"
    model, target = load_source(job.model, as_graph), job.target
    files.sweep(target.parent)  # what a killed export left here
    with files.replacing(target) as temporary:
        if job.format == "savedmodel":
            model.export(str(temporary))
        elif job.format == "keras3":
            to_keras3(model).save(temporary)
        else:
            model.save(temporary)
    size = files.size_bytes(target)
    return Exported(path=str(target), format=job.format, file_bytes=size)


_WORDS = {
    "BATCH_MATMUL": "BatchMatMul",
    "CUMSUM": "CumSum",
    "PADV2": "PadV2",
    "TFLM_DECODE": "Decode",
    "TFLite_Detection_PostProcess": "DetectionPostprocess",
    "UNIDIRECTIONAL_SEQUENCE_LSTM": "UnidirectionalSequenceLSTM",
    "ethos-u": "EthosU",
}
"""Operators whose method of TFLite Micro's `MicroMutableOpResolver` is spelled in its own way."""


def firmware_facts(job: FirmwareFactsJob, send: Send) -> Firmware:
    """Return what the job's .tflite file needs of a firmware."""
    path = job.model.path
    send(Phase("asking TFLite Micro"))
    arena = arena_bytes(path)
    operators = [operator for graph in read_file(path) for operator in graph.operators]
    names = {operator.name for operator in operators}
    variables = {
        (operator.options.container, operator.options.sharedName)
        for operator in operators
        if operator.name == "VAR_HANDLE"
    }
    inputs, outputs = describe_tensors(path.read_bytes())
    return Firmware(
        operators=tuple(sorted(map(resolver_method, names))),
        resource_variables=len(variables),
        arena_bytes=arena.value,
        arena_32_bytes=arena.estimate_32.value,
        arena_note=arena.reason,
        inputs=inputs,
        outputs=outputs,
    )


def resolver_method(operator: str) -> str:
    """Return the method that registers an operator, such as AddConv2D for CONV_2D."""
    words = "".join(word[0] + word[1:].lower() for word in operator.split("_") if word)
    return f"Add{_WORDS.get(operator) or words.replace('2d', '2D').replace('3d', '3D')}"
