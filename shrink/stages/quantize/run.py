"""The `quantize` stage."""

from __future__ import annotations

from typing import Any

from shrink.errors import StageError
from shrink.stages.context import StageContext, StageResult
from shrink.stages.quantize.budget import mixed_artifact
from shrink.stages.quantize.calibration import CalibrationExamples
from shrink.stages.quantize.config import QuantizeConfig
from shrink.stages.quantize.schemes import INTEGER_SCHEMES, SCHEMES
from shrink.stages.quantize.source import FloatModel, read_float_tflite
from shrink.tflite.flatbuffer import float_operators, quantized_operators


def run(config: QuantizeConfig, context: StageContext) -> StageResult:
    """Convert the model under the scheme and check that the scheme took hold."""
    source = _source(context)
    context.phase("converting")
    calibration = CalibrationExamples(
        context.dataset.train, config.calibration_samples, context.training.seed
    )
    details: dict[str, Any] = {}
    if config.scheme == "mixed":
        conversion, details["mixed"] = mixed_artifact(source, calibration, config, context)
    else:
        conversion = SCHEMES[config.scheme](source, calibration, config)
    content, notes = conversion.content, list(conversion.notes)
    if config.scheme in INTEGER_SCHEMES:
        if quantized_operators(content) == 0:
            raise StageError(
                f"{config.scheme} quantized no operator of this model",
                subject=context.name,
                hint="it has no convolution or dense layer; try static_wi8_ai8",
            )
        notes += _float_note(config, content)
    return StageResult(tflite=content, notes=notes, details=details)


def _source(context: StageContext) -> FloatModel:
    if context.input_path().suffix == ".tflite":
        return read_float_tflite(context.input_path())
    model = context.load()
    context.task(model)  # raises where model and data do not belong together
    return FloatModel(model)


def _float_note(config: QuantizeConfig, content: bytes) -> list[str]:
    names = float_operators(content) if config.scheme.startswith("static") else []
    return [f"operators that stay float: {', '.join(sorted(set(names)))}"] if names else []
