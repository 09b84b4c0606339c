"""Bytes of int8 artifacts of the four MLPerf Tiny architectures, beside the reference files.

Run: python -m tests.benchmarks.bench_tiny_sizes

The networks come from models/. Their weights are random, biases and batch norm too, for the
converter leaves out biases of 0; other values do not change a size. Calibration examples are
random. The autoencoder has `dense_scales: tensor`, as its reference: a scale and a zero point for
each channel of its dense layers would add 20 KB. The reference sizes are those of the int8 files
of the MLPerf Tiny benchmark (github.com/mlcommons/tiny, benchmark/training).
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

REFERENCES = {
    "resnet": ("ResNet8", 98_496),
    "ds_cnn": ("DS-CNN", 53_936),
    "mobilenet_v1": ("MobileNetV1-0.25", 333_288),
    "autoencoder": ("autoencoder", 276_976),
}
"""By file of models/: name and bytes of the reference int8 artifact."""


def main() -> None:
    """Quantize all four and print one line each."""
    write = sys.stdout.write
    write(f"{'model':<18} {'shrink':>9} {'reference':>9} {'ratio':>6}  float operators\n")
    for module, (name, reference) in REFERENCES.items():
        content = artifact(module)
        floats = ", ".join(floating(content)) or "none"
        ratio = len(content) / reference
        write(f"{name:<18} {len(content):9,} {reference:9,} {ratio:6.3f}  {floats}\n")
        sys.stdout.flush()


def artifact(module: str) -> bytes:
    """Return the `static_wi8_ai8` artifact of a reference architecture."""
    import numpy as np

    from shrink.quantization.source import FloatModel
    from shrink.stages.quantize.config import QuantizeConfig
    from shrink.stages.quantize.schemes import SCHEMES

    random = np.random.default_rng(0)
    model = random_model(module, random)
    x = random.random((100, *model.input_shape[1:]), dtype=np.float32)
    config = QuantizeConfig(dense_scales="tensor" if module == "autoencoder" else "channel")
    return SCHEMES["static_wi8_ai8"](FloatModel(model), examples(x), config).content


def random_model(module: str, random: Any) -> Any:
    """Return a model of models/ with no two weights alike, biases and batch norm's among them."""
    import tf_keras as keras

    keras.utils.set_random_seed(0)
    model = importlib.import_module(f"models.{module}").build()
    weights = [w * random.uniform(0.5, 1.5, w.shape) for w in model.get_weights()]
    model.set_weights([w + 0.01 * random.random(w.shape) for w in weights])
    return model


def examples(x: Any) -> Any:
    """Return random examples as a calibration sample."""
    from shrink.quantization.calibration import CalibrationExamples
    from tests.unlabelled import UnlabelledExamples

    rows: Any = UnlabelledExamples(x)
    return CalibrationExamples(rows, len(x), 0)


def floating(content: bytes) -> list[str]:
    """Return the operators of an artifact that compute in float."""
    from shrink.tflite.flatbuffer import float_operators

    return float_operators(content)


if __name__ == "__main__":
    main()
