"""The `quantize` stage."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from shrink.base.errors import StageError
from shrink.quantization.audit import audit, with_errors
from shrink.quantization.calibration import CalibrationExamples
from shrink.quantization.lint import lint_calibration
from shrink.quantization.source import FloatModel, read_float_tflite
from shrink.stages.context import StageContext, StageResult
from shrink.stages.quantize.aware import train_aware
from shrink.stages.quantize.budget import mixed_artifact
from shrink.stages.quantize.config import QuantizeConfig
from shrink.stages.quantize.schemes import CALIBRATED_SCHEMES, INTEGER_SCHEMES, SCHEMES
from shrink.stages.quantize.whole_numbers import with_exact_inputs
from shrink.task.artifact_interface import describe_interface
from shrink.tflite.convert import Conversion
from shrink.tflite.edit import with_metadata, with_ordered_borders
from shrink.tflite.flatbuffer import quantized_operators, weights
from shrink.tflite.interpreter import load
from shrink.tflite.names import Named
from shrink.tflite.random_inputs import random_inputs
from shrink.tflite.sparse import with_sparse_constants

METADATA_ENTRY = "shrink"
"""Name of the metadata entry with labels, normalisation, and what inputs and outputs are."""


def run(config: QuantizeConfig, context: StageContext) -> StageResult:
    """Convert the model under the scheme and check that the scheme took hold."""
    calibration = CalibrationExamples(
        context.dataset.train,
        config.calibration_samples,
        context.training.seed,
        context.dataset.input_names,
    )
    trained = train_aware(config, context, calibration) if config.aware else None
    source = trained.source if trained else _source(context)
    context.phase("converting")
    conversion, details = _converted(source, calibration, config, context)
    content = conversion.content
    notes = [*conversion.notes, *_lint(config, calibration, context)]
    examples = next(iter(calibration.batches())) if context.has_data else random_inputs(content)
    if config.sparse:
        content, told = _stored_sparsely(content, examples)
        notes.append(told)
    if config.embed_metadata:
        interface = describe_interface(content, context.dataset, context.data_config)
        content = with_metadata(content, METADATA_ENTRY, json.dumps(interface).encode())
    context.phase("auditing")
    candidate = context.work / "audited.tflite"
    compared_on = "training examples" if context.has_data else "random inputs"
    details["audit"], found = audit(
        content, source, examples, config.target, candidate, compared_on
    )
    notes += found

    def later() -> dict[str, Any]:
        rows = with_errors(details["audit"]["operators"], content, source, examples)
        return {"audit": {**details["audit"], "operators": rows}}

    if trained is None:
        return StageResult(tflite=content, notes=notes, details=details, later=later)
    return StageResult(
        tflite=content,
        training=trained.record,
        skipped=trained.skipped,
        notes=[*trained.notes, *notes],
        details=details,
        later=later,
    )


def _converted(
    source: FloatModel,
    calibration: CalibrationExamples,
    config: QuantizeConfig,
    context: StageContext,
) -> tuple[Conversion, dict[str, Any]]:
    """Return the conversion and, of `mixed`, what the report says about it."""
    details: dict[str, Any] = {}
    config, kept_float = with_exact_inputs(config, source)
    if config.scheme == "mixed":
        conversion, details["mixed"] = mixed_artifact(source, calibration, config, context)
    else:
        conversion = SCHEMES[config.scheme](source, calibration, config)
    conversion = Conversion(
        _in_order_of(source, conversion.content), (*conversion.notes, *kept_float)
    )
    if config.scheme in INTEGER_SCHEMES and quantized_operators(conversion.content) == 0:
        raise StageError(
            f"{config.scheme} quantized no operator of this model",
            subject=context.name,
            hint="it has no convolution or dense layer; try static_wi8_ai8",
        )
    return conversion, details


def _in_order_of(source: FloatModel, content: bytes) -> bytes:
    """Return the artifact with its inputs and outputs in the float model's order."""
    inputs, outputs = source.border_names()
    if len(inputs) == len(outputs) == 1:
        return content
    return with_ordered_borders(content, inputs, outputs)


def _stored_sparsely(content: bytes, examples: Named) -> tuple[bytes, str]:
    """Return the smaller of both files, and a sentence on what leaving out zeros saves."""
    sparse = with_sparse_constants(content)
    kernels = [tensor for tensor in weights(sparse) if tensor.sparse]
    if not kernels or len(sparse) >= len(content):
        return content, "sparse: leaving zeros out of its kernels would not shrink the file"
    before, after = (load(one).predict(examples) for one in (content, sparse))
    if not all(np.array_equal(*pair) for pair in zip(before, after, strict=True)):
        return content, "sparse: not used, as LiteRT gives other outputs without the zeros"
    kept = f"zeros are left out of {len(kernels)} kernels"
    return sparse, f"sparse: {kept}: {len(content):,} bytes became {len(sparse):,}"


def _source(context: StageContext) -> FloatModel:
    if context.input_path().suffix == ".tflite":
        return read_float_tflite(context.input_path())
    model = context.load()
    if context.has_data:
        context.task(model)  # raises where model and data do not belong together
    return FloatModel(model)


def _lint(
    config: QuantizeConfig, calibration: CalibrationExamples, context: StageContext
) -> list[str]:
    if config.scheme not in CALIBRATED_SCHEMES:
        return []
    return lint_calibration(calibration, context.dataset.class_names)
