"""`dense_scales: auto`: a scale for each output channel of dense layers, or one for each layer.

A scale and a zero point of each channel, of the weights and again of the biases, are 24 bytes: an
eighth of an autoencoder's file. Where all channels of a layer have weights of about the same size,
they buy little. So both files are made, and compared with the float model on calibration examples.

A bit less for each weight costs 6 dB and saves an eighth of the bytes, 0.48 dB for each percent of
the file. Scales of channels stay where they bring more than half of that for the bytes they take.
"""

from __future__ import annotations

import math

from shrink.contract.choices import Choice, Option
from shrink.quantization.calibration import CalibrationExamples
from shrink.quantization.source import FloatModel
from shrink.stages.quantize.config import QuantizeConfig
from shrink.stages.quantize.noise import noise
from shrink.stages.quantize.schemes import SCHEMES
from shrink.tflite.convert import Conversion
from shrink.tflite.model import read

_COMPARED_ON = 200
LEAST_SAVING = 0.01
"""Part of the file that has to be saved before a second file is tried."""
DB_PER_PERCENT, MOST_LOST_DB = 0.24, 3.0
"""Signal to noise that one scale may cost for each percent of the file, and in all."""
_BYTES_PER_CHANNEL = 24
_WEIGHTS, _BIAS = 1, 2


def with_best_scales(
    source: FloatModel, calibration: CalibrationExamples, config: QuantizeConfig
) -> tuple[Conversion, tuple[Choice, ...]]:
    """Convert under the scheme, with the scales of dense layers that are worth their bytes.

    Weights that were trained under rounding keep the scales they were trained with.

    Returns:
        The conversion, and what was chosen; nothing where nothing was left to choose.
    """
    per_channel = SCHEMES[config.scheme](source, calibration, config)
    if config.scheme != "static_wi8_ai8" or config.dense_scales != "auto" or config.aware:
        return per_channel, ()
    size, saving = len(per_channel.content), saved_bytes(per_channel.content)
    if not saving:
        return per_channel, ()
    if saving < LEAST_SAVING * size:
        why = f"per-tensor scales would save only {saving:,} of {size:,} bytes"
        return per_channel, (Choice(key="dense_scales", value="channel", why=why),)
    one_each = config.model_copy(update={"dense_scales": "tensor"})
    per_tensor = SCHEMES[config.scheme](source, calibration, one_each)
    if source.untrained:  # the smallest that may be chosen later
        return min(per_channel, per_tensor, key=lambda made: len(made.content)), ()
    fine = _figures(per_channel, source, calibration)
    coarse = _figures(per_tensor, source, calibration)
    options = (Option(value="channel", figures=fine), Option(value="tensor", figures=coarse))
    allowed = allowed_loss_db(fine["file_bytes"], coarse["file_bytes"])
    least_db = fine.get("snr_db", math.inf) - allowed
    if coarse["file_bytes"] < fine["file_bytes"] and coarse.get("snr_db", math.inf) >= least_db:
        why = f"the file is smaller, and less than {allowed:.1f} dB of precision is lost"
        return per_tensor, (Choice(key="dense_scales", value="tensor", why=why, options=options),)
    why = f"one scale for each layer loses more than {allowed:.1f} dB of precision"
    return per_channel, (Choice(key="dense_scales", value="channel", why=why, options=options),)


def saved_bytes(content: bytes) -> int:
    """Return about how much smaller a file is with one scale for each dense layer."""
    graph = read(content)[0]
    channels = 0
    for operator in graph.operators:
        if operator.name == "FULLY_CONNECTED":
            parts = [graph.tensors[i] for i in operator.inputs[_WEIGHTS : _BIAS + 1] if i >= 0]
            channels += sum(max(0, len(part.scales) - 1) for part in parts if part.constant)
    return channels * _BYTES_PER_CHANNEL // 2


def _figures(
    conversion: Conversion, source: FloatModel, calibration: CalibrationExamples
) -> dict[str, float]:
    error = noise(conversion, source, calibration.batches(_COMPARED_ON))
    figures = {"file_bytes": float(len(conversion.content))}
    if error > 0:
        figures["snr_db"] = round(-10 * math.log10(error), 2)
    return figures


def allowed_loss_db(channel_bytes: float, tensor_bytes: float) -> float:
    """Return the signal to noise that the smaller of two files may be behind by; 0 of a larger."""
    percent = 100 * max(0.0, 1 - tensor_bytes / channel_bytes)
    return min(MOST_LOST_DB, DB_PER_PERCENT * percent)
