"""Noise of an artifact's outputs against those of its float model."""

from __future__ import annotations

import numpy as np

from shrink.quantization.calibration import Batches
from shrink.quantization.float_front import relative_error
from shrink.quantization.source import FloatModel
from shrink.tflite.convert import Conversion
from shrink.tflite.interpreter import load
from shrink.tflite.model import read


def noise(conversion: Conversion, source: FloatModel, batches: Batches) -> float:
    """Return the squared error of the worst output over that of taking its mean for it."""
    reference, now = load(source.float32.content), load(conversion.content)
    wanted, outputs = (
        [np.concatenate(column) for column in zip(*map(runner.predict, batches), strict=True)]
        for runner in (reference, now)
    )
    graph = read(source.float32.content)[0]
    names = [graph.tensors[graph.outputs[p]].name for p in reference.output_positions]
    ends = (source.bounds.get(name, (-np.inf, np.inf)) for name in names)
    wanted = [np.clip(one, *each) for one, each in zip(wanted, ends, strict=True)]
    return relative_error(wanted, outputs)
