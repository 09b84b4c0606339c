"""The first step of a recipe whose model is already trained: it is only evaluated."""

from __future__ import annotations

from shrink.stages.base import StageConfig
from shrink.stages.context import StageContext, StageResult

_CONVERTED = "a SavedModel without Keras' layers: the baseline is its float32 conversion"


def run(config: StageConfig | None, context: StageContext) -> StageResult:
    """Return the model as it came, after a check that data and task go with it."""
    path = context.input_path()
    if path.suffix == ".tflite":
        if context.has_targets:
            context.task()
        return StageResult(tflite=path.read_bytes())
    from shrink.model.load import imported_from_tfmot
    from shrink.model.scan import check_model_file
    from shrink.stages.from_tfmot import metadata_from_tfmot
    from shrink.tflite.convert import convert

    if context.input_graph_only():
        check_model_file(path, context.trust())
        converted = convert(path, "float32")
        return StageResult(tflite=converted.content, notes=[*converted.notes, _CONVERTED])
    model = context.load()
    if context.has_targets:
        context.task(model)
    if imported_from_tfmot(model) is None:
        return StageResult(model=model, imported=context.imported)
    imported, notes = metadata_from_tfmot(model)
    return StageResult(model=model, imported=imported, notes=notes)
