"""Other forms of a model: Keras files, SavedModels, and what firmware needs for a C array."""

from __future__ import annotations

from shrink.base import files
from shrink.base.progress import Phase
from shrink.contract.events import Send
from shrink.contract.job import ExportJob, FirmwareFactsJob
from shrink.model.keras3.export import to_keras3
from shrink.model.load import load_source
from shrink.task.interface import describe_tensors
from shrink.tflite.arena import arena_bytes
from shrink.tflite.structure import read_file


def export(job: ExportJob, send: Send) -> dict[str, object]:
    """Write the job's model to its target in the wanted format; return the path and its size."""
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
    return {"path": str(target), "format": job.format, "file_bytes": files.size_bytes(target)}


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


def firmware_facts(job: FirmwareFactsJob, send: Send) -> dict[str, object]:
    """Return what the job's .tflite file needs of a firmware, as plain data.

    Returns:
        `operators` (methods of the resolver, each once, sorted), `arena_bytes` (None where TFLite
        Micro does not allocate, with the reason in `arena_note`), its estimate for 32-bit targets,
        `inputs` and `outputs`.
    """
    path = job.model.path
    send(Phase("asking TFLite Micro"))
    arena = arena_bytes(path)
    names = {operator.name for graph in read_file(path) for operator in graph.operators}
    return {
        "operators": sorted(map(resolver_method, names)),
        "arena_bytes": arena.value,
        "arena_32_bytes": arena.estimate_32.value,
        "arena_note": arena.reason,
        **describe_tensors(path.read_bytes()),
    }


def resolver_method(operator: str) -> str:
    """Return the method that registers an operator, such as AddConv2D for CONV_2D."""
    words = "".join(word[0] + word[1:].lower() for word in operator.split("_") if word)
    return f"Add{_WORDS.get(operator) or words.replace('2d', '2D').replace('3d', '3D')}"
