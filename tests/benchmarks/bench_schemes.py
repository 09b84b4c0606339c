"""What quantization schemes give: accuracy on one model, figures on every model, sizes.

Run: python -m tests.benchmarks.bench_schemes accuracy --model model.h5 --data pictures
         [--seed 0] [--only mixed]
     python -m tests.benchmarks.bench_schemes every [--only NAME ...] [--model FILE ...]
     python -m tests.benchmarks.bench_schemes sizes

accuracy: bytes, accuracy and seconds of every scheme on one trained model. `--data` is a folder
{train,test}/<class>/*. Nothing is trained; calibration, ranking and search see training images
only; accuracy is on all test images, through LiteRT. Seconds are from the loaded model to the
artifact, so the first scheme's include what TensorFlow sets up once.

every: does every scheme's artifact of every model of models/ run, and does it stay integer? One
`shrink run` for each model, with a stage for each scheme; --model adds trained files. Weights of
models/ and all examples are random. Each artifact is run by LiteRT, int8 ones by TFLite Micro as
well (`target: tflm`). Prints a row of a Markdown table for each artifact: bytes, operators that
compute in float, and how near its outputs are to the float file's, in dB; `micro` is how near
TFLite Micro's outputs are to LiteRT's.

sizes: bytes of int8 artifacts of the four MLPerf Tiny architectures, beside the reference files.
The networks come from models/. Their weights are random, biases and batch norm too, for the
converter leaves out biases of 0; other values do not change a size. Calibration examples are
random. The autoencoder has `dense_scales: tensor`, as its reference, and as `auto` chooses: scales
and zero points for each channel of its dense layers would add 40 KB. The reference sizes are those
of the int8 files of the MLPerf Tiny benchmark (github.com/mlcommons/tiny, benchmark/training).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.benchmarks.harness import accuracy_of, say, stages_of_run, subcommands
from tests.benchmarks.random_models import examples, random_model

CONFIGS: tuple[dict[str, Any], ...] = (
    {"scheme": "float32"},
    {"scheme": "float16"},
    {"scheme": "dynamic_wi8_afp32"},
    {"scheme": "weight_only_wi8_afp32"},
    {"scheme": "static_wi8_ai8"},
    {"scheme": "static_wi8_ai16"},
    {"scheme": "dynamic_wi4_afp32"},
    {"scheme": "weight_only_wi4_afp32"},
    {"scheme": "mixed", "file_bytes": "60KB"},
    {"scheme": "mixed", "file_bytes": "56KB", "activations": "float32"},
    {"scheme": "mixed", "accuracy_drop": 0.005},
    {"scheme": "mixed", "accuracy_drop": 0.005, "activations": "float32"},
)


MODELS = ("digits_cnn", "resnet", "ds_cnn", "mobilenet_v1", "autoencoder")
EVERY: dict[str, str] = {
    "float32": "",
    "float16": "",
    "dynamic_wi8_afp32": "",
    "weight_only_wi8_afp32": "",
    "static_wi8_ai8": ", target: tflm",
    "static_wi8_ai16": "",
    "dynamic_wi4_afp32": "",
    "weight_only_wi4_afp32": "",
    "mixed": ", file_bytes: 10MB",
}
_RECIPE = """
name: schemes
model: model.keras
data: {source: npz, path: data.npz}
task: {loss: mean_squared_error, metrics: [mean_squared_error]}
stages:
"""
_EXAMPLES = 120


REFERENCES = {
    "resnet": ("ResNet8", 98_496),
    "ds_cnn": ("DS-CNN", 53_936),
    "mobilenet_v1": ("MobileNetV1-0.25", 333_288),
    "autoencoder": ("autoencoder", 276_976),
}
"""By file of models/: name and bytes of the reference int8 artifact."""


def main() -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    of = subcommands(parser, {"accuracy": accuracy, "every": every, "sizes": sizes})
    of["accuracy"].add_argument("--model", required=True, type=Path)
    of["accuracy"].add_argument("--data", required=True, type=Path)
    of["accuracy"].add_argument("--seed", default=0, type=int)
    of["accuracy"].add_argument("--only", default="", help="schemes whose names contain this")
    of["every"].add_argument("--only", nargs="*", default=MODELS)
    of["every"].add_argument("--model", nargs="*", default=[], type=Path)
    options = parser.parse_args()
    options.run(options)


def accuracy(options: argparse.Namespace) -> None:
    """Accuracy, bytes and seconds of each scheme on one trained model."""
    say(f"{'scheme':<62} {'accuracy':>8} {'bytes':>9} {'seconds':>8}")
    with tempfile.TemporaryDirectory() as folder:
        for config in CONFIGS:
            if options.only in config["scheme"]:
                right, size, seconds = measured(config, options, Path(folder))
                words = ", ".join(
                    str(value) if k == "scheme" else f"{k}: {value}" for k, value in config.items()
                )
                say(f"{words:<62} {right:8.2%} {size:9,} {seconds:8.1f}")


def measured(
    config: dict[str, Any], options: argparse.Namespace, folder: Path
) -> tuple[float, int, float]:
    """Return accuracy, bytes and seconds of one scheme."""
    from shrink.stages.quantize.config import QuantizeConfig
    from shrink.stages.quantize.run import run
    from tests.jobs import context_of

    data = {"source": "images", "path": str(options.data.resolve())}
    context = context_of(
        folder,
        kind="quantize",
        inputs={"model": options.model},
        data=data,
        training={"seed": options.seed},
    )
    context.dataset  # noqa: B018  opened before the clock starts
    started = time.perf_counter()
    result = run(QuantizeConfig.model_validate(config), context)
    seconds = time.perf_counter() - started
    content = result.tflite or b""
    return accuracy_of(content, context, context.load()), len(content), seconds


def every(options: argparse.Namespace) -> None:
    """A row of a table for each artifact."""
    say("| model | scheme | bytes | float operators | to float, dB | micro, dB |")
    say("|---|---|--:|---|--:|--:|")
    for name in (*options.only, *options.model):
        with tempfile.TemporaryDirectory() as folder:
            for row in rows(Path(folder), name):
                say(row)


def rows(folder: Path, name: str | Path) -> list[str]:
    """Return the rows of one model."""
    _write_model(folder, name)
    stages = [
        f"  - quantize: {{name: {scheme}, from: baseline, scheme: {scheme}{more}}}\n"
        for scheme, more in EVERY.items()
    ]
    (folder / "recipe.yaml").write_text(_RECIPE + "".join(stages), encoding="utf-8")
    stages_found = stages_of_run(folder, failing=True).items()
    return [_row(Path(name).stem, stage) for key, stage in stages_found if key != "baseline"]


def _write_model(folder: Path, name: str | Path) -> None:
    import numpy as np
    import tf_keras as keras

    random = np.random.default_rng(0)
    if isinstance(name, Path):
        model = keras.models.load_model(name, compile=False)
    else:
        model = random_model(name, random)
    x = random.random((_EXAMPLES, *model.input_shape[1:]), dtype=np.float32)
    y = np.asarray(model(x[:_EXAMPLES], training=False))
    model.save(folder / "model.keras")
    cut = _EXAMPLES - 20
    np.savez(folder / "data.npz", x_train=x[:cut], y_train=y[:cut], x_test=x[cut:], y_test=y[cut:])


def _row(model: str, stage: dict[str, Any]) -> str:
    details = (stage.get("details") or {}).get("audit")
    if details is None:
        return f"| {model} | {stage['name']} | {stage.get('error') or stage.get('status')} | | | |"
    size = stage["size"]["tflite_bytes"]
    near = {each["compared"]: each["snr_db"] for each in details["agreement"]}
    floats = ", ".join(sorted(set(details["float_islands"]))) or "none"
    quantized = _db(near, "to quantized")
    return (
        f"| {model} | {stage['name']} | {size:,} | {floats} | {quantized} | {_db(near, 'tflm')} |"
    )


def _db(near: dict[str, float | None], ending: str) -> str:
    """Return what was compared last and ends so, in dB; nothing where nothing was."""
    found = [snr for compared, snr in near.items() if compared.endswith(ending)]
    if not found:
        return ""
    return "no difference" if found[-1] is None else f"{found[-1]:.1f}"


def sizes(options: argparse.Namespace) -> None:
    """A line for each int8 artifact, beside the reference file."""
    from shrink.tflite.weights import float_operators

    say(f"{'model':<18} {'shrink':>9} {'reference':>9} {'ratio':>6}  float operators")
    for module, (name, reference) in REFERENCES.items():
        content = artifact(module)
        floats = ", ".join(float_operators(content)) or "none"
        ratio = len(content) / reference
        say(f"{name:<18} {len(content):9,} {reference:9,} {ratio:6.3f}  {floats}")


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


if __name__ == "__main__":
    main()
