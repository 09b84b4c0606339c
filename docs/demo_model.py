"""Train and quantize the model of `shrink compact --demo`: `python -m docs.demo_model FILE.tflite`.

The ResNet8 of MLPerf Tiny for 32x32 pictures of scikit-learn's handwritten digits.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np  # noqa: TID253
from sklearn.datasets import load_digits  # noqa: TID253

import shrink
from models.resnet import build


def main() -> None:
    """Write the artifact to the path that the command line names."""
    images, labels = load_digits(return_X_y=True)
    pictures = np.kron(images.reshape(-1, 8, 8), np.ones((1, 4, 4)))[..., None].repeat(3, -1) * (
        255 / 16
    )
    with tempfile.TemporaryDirectory() as folder:
        data, out = Path(folder) / "digits.npz", Path(folder)
        np.savez(data, x=pictures.astype(np.float32), y=labels)
        net = build(input_shape=(32, 32, 3), classes=10)
        trained = shrink.train(
            net, data=data, epochs=25, global_batch_size=32, output=out / "trained"
        )
        shrink.quantize(trained, target="tflm", output=out / "int8")
        shutil.copy(next((out / "int8" / "artifacts").glob("*quantize.tflite")), sys.argv[1])


if __name__ == "__main__":
    main()
