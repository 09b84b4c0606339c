"""`shrink export`: Keras files, SavedModels, and the metadata of a C array."""

from __future__ import annotations

from shrink.base import files
from shrink.contract.events import Send
from shrink.contract.findings import Exported
from shrink.contract.job import ExportJob
from shrink.model.keras3.export import to_keras3
from shrink.model.load import load_source


def export(job: ExportJob, send: Send) -> Exported:
    """Write the job's model to its target in the wanted format."""
    as_graph = job.format == "savedmodel"
    model, target = load_source(job.model, as_graph), job.target
    files.remove_leftovers(target.parent)  # what a killed export left here
    with files.replacing(target) as temporary:
        if job.format == "savedmodel":
            model.export(str(temporary))
        elif job.format == "keras3":
            to_keras3(model).save(temporary)
        else:
            model.save(temporary)
    size = files.size_bytes(target)
    return Exported(path=str(target), format=job.format, file_bytes=size)
