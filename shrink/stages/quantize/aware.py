"""Quantization-aware training: a float model whose weights are trained to be rounded."""

from __future__ import annotations

from dataclasses import dataclass

import tf_keras as keras

from shrink.base.errors import ModelError
from shrink.engine.record import TrainingRecord
from shrink.quantization.aware_model import aware_model
from shrink.quantization.calibration import CalibrationExamples
from shrink.quantization.source import FloatModel
from shrink.stages.context import StageContext
from shrink.stages.quantize.config import QuantizeConfig
from shrink.stages.quantize.static import static_int8
from shrink.stages.quantize.whole_numbers import with_exact_inputs
from shrink.tflite.micro import predict_in_micro
from shrink.tflite.rewrite import for_conversion

_TRIED_ON = 4


@dataclass(frozen=True)
class AwareTraining:
    """What quantization-aware training gave.

    Attributes:
        source: the float model with the trained weights.
        record: how it was trained.
        skipped: layers that were trained with float weights, each with the reason.
        notes: sentences for the report.
    """

    source: FloatModel
    record: TrainingRecord
    skipped: list[dict[str, str]]
    notes: list[str]


def train_aware(
    config: QuantizeConfig, context: StageContext, calibration: CalibrationExamples
) -> AwareTraining:
    """Train the stage's model under rounding; zeros and clusters of earlier stages stay.

    Raises:
        ModelError: there is no Keras model with layers to train.
        StageError: a type would change indices, or TFLite Micro could not run the artifact.
    """
    path = context.input_path()
    if path.suffix == ".tflite" or context.input_graph_only():
        raise ModelError(
            "quantization-aware training needs the Keras model",
            subject=path,
            hint="start from the .keras or .h5 file, or leave out quantize.aware",
        )
    given = context.load()
    task = context.task(given)
    if not context.planning:
        _refuse_early(given, config, context)
    context.phase("calibrating")
    with context.devices.scope():
        # A mean is trained as the mean that the artifact will have.
        rewritten, notes = for_conversion(given)
        model = aware_model(rewritten, calibration.batches())
    record = context.train(model.aware, task.objective(), config.epochs, task=task)
    return AwareTraining(FloatModel(model.trained()), record, model.skipped, list(notes))


def _refuse_early(model: keras.Model, config: QuantizeConfig, context: StageContext) -> None:
    """Raise `StageError` for what would fail after the training, whatever the weights are then."""
    source, on_micro = FloatModel(model), config.target == "tflm"
    if config.input_type is not None or on_micro:
        config, _ = with_exact_inputs(config, source)
    if on_micro:
        context.phase("trying TFLite Micro")
        few = CalibrationExamples(
            context.dataset.train, _TRIED_ON, context.training.seed, context.dataset.input_names
        )
        artifact = static_int8(source, few, config)
        predict_in_micro(artifact.content, next(iter(few.batches())))
