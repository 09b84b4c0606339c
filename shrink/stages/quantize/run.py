"""The `quantize` stage."""

from __future__ import annotations

from shrink.errors import StageError
from shrink.stages.context import StageContext, StageResult
from shrink.stages.quantize.calibration import CalibrationExamples
from shrink.stages.quantize.config import QuantizeConfig
from shrink.stages.quantize.schemes import INTEGER_SCHEMES, SCHEMES
from shrink.tflite.flatbuffer import float_operators, quantized_operators


def run(config: QuantizeConfig, context: StageContext) -> StageResult:
    """Convert the model under the scheme and check that the scheme took hold."""
    model = context.load()
    context.task(model)  # raises where model and data do not belong together
    context.phase("converting")
    calibration = CalibrationExamples(
        context.dataset.train, config.calibration_samples, context.training.seed
    )
    conversion = SCHEMES[config.scheme](model, calibration, config)
    content, notes = conversion.content, list(conversion.notes)
    if config.scheme in INTEGER_SCHEMES:
        if quantized_operators(content) == 0:
            raise StageError(
                f"{config.scheme} quantized no operator of this model",
                subject=context.name,
                hint="layers below 1,024 weights stay float in dynamic schemes; try static_wi8_ai8",
            )
        notes += _float_note(config, content)
    return StageResult(tflite=content, notes=notes)


def _float_note(config: QuantizeConfig, content: bytes) -> list[str]:
    names = float_operators(content) if config.scheme.startswith("static") else []
    return [f"operators that stay float: {', '.join(sorted(set(names)))}"] if names else []
