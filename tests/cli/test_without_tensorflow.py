"""Commands on .tflite files and saved reports, where TensorFlow and its relatives are missing."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from PIL import Image

from tests.compact.toys import Net, chain

ROOT = Path(__file__).parents[2]
MISSING = (
    *("tensorflow", "tf_keras", "keras", "tensorflow_model_optimization", "ai_edge_quantizer"),
    *("scipy", "sklearn", "h5py"),
)
BLOCKER = f"""
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {MISSING!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
import importlib.metadata as metadata
find = metadata.distribution
def distribution(name):
    if name.replace("-", "_").replace("scikit_learn", "sklearn") in {MISSING!r}:
        raise metadata.PackageNotFoundError(name)
    return find(name)
metadata.distribution = distribution
"""
"""As `sitecustomize`, every Python that starts runs it: commands and their workers."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("without")
    (folder / "sitecustomize.py").write_text(BLOCKER)
    (folder / "model.tflite").write_bytes(chain(64))
    for name in ("a", "b"):
        (folder / name).mkdir()
        shutil.copyfile(ROOT / "tests/report/saved/chain.json", folder / name / "report.json")
    return folder


def shrink(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join((str(folder), str(ROOT), os.environ.get("PYTHONPATH", "")))
    environment = {**os.environ, "PYTHONPATH": path, "SHRINK_CACHE_DIR": str(folder / "cache")}
    return subprocess.run(
        [sys.executable, "-m", "shrink", *words],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [
        ["inspect", "model.tflite"],
        ["bench", "model.tflite"],
        ["export", "model.tflite", "--format", "cc-array", "--output", "firmware"],
        ["diff", "a", "b"],
        ["compare", "a", "b", "--output", "compared"],
        ["report", "a"],
    ],
    ids=lambda words: words[0],
)
def test_a_command_on_files_needs_no_tensorflow(folder: Path, words: list[str]) -> None:
    done = shrink(folder, *words)
    assert done.returncode == 0, done.stderr


def test_the_demo_shrinks_the_arena_and_keeps_what_is_there(folder: Path) -> None:
    done = shrink(folder, "compact", "--demo", "--json")
    found = json.loads(done.stdout)
    assert found["arena_after"] < 0.8 * found["arena_before"]
    assert (folder / "demo.tflite").is_file()
    assert (folder / "demo-compact.tflite").is_file()
    (folder / "demo.tflite").write_bytes(b"my own file")
    refused = shrink(folder, "compact", "--demo", "--output", "other.tflite")
    assert refused.returncode == 2
    assert (folder / "demo.tflite").read_bytes() == b"my own file"


def classifier(size: int, shape: tuple[int, ...]) -> bytes:
    """Return a model that says 1 where the second half of its inputs is the brighter one."""
    net = Net((1, *shape))
    halves = np.repeat(10 * np.eye(2, dtype=np.int8), size // 2, axis=1)
    return net.file(net.dense(net.input, halves))


def bright_halves(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return whole numbers (count, 64), and which half is the brighter one."""
    random = np.random.default_rng(0)
    labels = np.arange(count) % 2
    x = random.integers(0, 9, (count, 64))
    x[labels == 0, :32] += 20
    x[labels == 1, 32:] += 20
    return x.astype(np.uint8), labels


def write_data(folder: Path, kind: str) -> tuple[str, tuple[int, ...]]:
    """Write 20 test examples, 3 of them mislabelled, and what goes with them; return a shape.

    `split` has 40 training examples too, `flat` has the test examples without a split.
    """
    x, y = bright_halves(60)
    y[[41, 46, 58]] = 1 - y[[41, 46, 58]]
    form, _, has = kind.partition("-")
    arrays = {"x_test": x[40:], "y_test": y[40:]}
    if form == "npz":
        arrays |= {"x_train": x[:40], "y_train": y[:40]} if has == "split" else {}
        if has == "flat":
            arrays = {name.removesuffix("_test"): one for name, one in arrays.items()}
        np.savez(folder / kind, **arrays)  # type: ignore[arg-type]
        return f"{kind}.npz", (64,)
    for row, (values, label) in enumerate(zip(x, y, strict=True)):
        if row < 40 and has != "split":
            continue
        split = "" if has == "flat" else "train" if row < 40 else "test"
        own = folder / kind / split / "ab"[label]
        own.mkdir(parents=True, exist_ok=True)
        Image.fromarray(values.reshape(8, 8)).save(own / f"{row}.png")
    return kind, (8, 8, 1)


@pytest.mark.parametrize(
    ("kind", "least", "code"),
    [
        ("npz-split", "0.85", 0),
        ("npz-flat", "0.9", 1),
        ("pictures-split", "0.9", 1),
        ("pictures-flat", "0.85", 0),
    ],
)
def test_a_file_is_evaluated_and_gated(folder: Path, kind: str, least: str, code: int) -> None:
    data, shape = write_data(folder, kind)
    (folder / f"{kind}.tflite").write_bytes(classifier(64, shape))
    metrics = ("--task-metrics", "[accuracy, roc_auc, f1_macro]")
    call = ("evaluate", f"{kind}.tflite", "--data", data, *metrics, "--output", f"out-{kind}")
    done = shrink(folder, *call, "--gate", f"accuracy={least}", "--gate", "tflite_bytes=4KB")
    assert done.returncode == code, done.stderr
    (stage,) = json.loads((folder / f"out-{kind}" / "report.json").read_text())["stages"]
    assert stage["metrics"]["accuracy"] == pytest.approx(0.85)
    assert stage["examples"] == 20


def test_sizes_are_gated_without_data_and_a_quiet_command_says_what_missed(folder: Path) -> None:
    (folder / "m.tflite").write_bytes(classifier(64, (64,)))
    call = ("evaluate", "m.tflite", "--output", "sizes", "--force", "--gate", "arena_bytes=64KiB")
    passed = shrink(folder, *call)
    assert passed.returncode == 0, passed.stderr
    missed = shrink(folder, *call, "--gate", "tflite_bytes=0.1KB", "-q")
    assert missed.returncode == 1
    assert missed.stdout == "sizes\n"
    assert missed.stderr.startswith("Gate tflite_bytes of baseline missed: ")
    refused = shrink(folder, *call, "--gate", "accuracy=0.5")
    assert refused.returncode == 2
    assert "gate accuracy: metrics are not measured, because no data was named" in refused.stderr


def test_inputs_that_are_quantized_already_are_a_warning(folder: Path) -> None:
    net = Net((1, 64))
    net.graph.tensors[net.input].quantization.zeroPoint[:] = -128  # of scale 0.5: holds 0 to 127.5
    halves = np.repeat(10 * np.eye(2, dtype=np.int8), 32, axis=1)
    (folder / "full.tflite").write_bytes(net.file(net.dense(net.input, halves)))
    x, y = bright_halves(60)
    np.savez(folder / "stored.npz", x_test=(2.0 * x - 128).astype(np.int8), y_test=y)

    def evaluated(
        *words: str, command: str = "evaluate"
    ) -> tuple[float | None, list[dict[str, str]]]:
        call = (command, "full.tflite", "--data", "stored.npz", *words, "--json", "--force")
        done = shrink(folder, *call, "--output", f"out-{command}")
        report = json.loads(done.stdout)
        clipped = [one for one in report["warnings"] if one["code"] == "clipped-inputs"]
        return report["stages"][0]["metrics"].get("accuracy"), clipped

    accuracy, (warning,) = evaluated()
    assert accuracy is not None
    assert accuracy < 0.6
    assert "100.0 % of the values" in warning["message"]
    assert "they are -128 to -72, and the quantized input holds 0 to 127.5" in warning["message"]
    named = ("--normalize-scale", "0.5", "--normalize-offset", "64")
    assert " ".join(named) in warning["hint"]
    assert evaluated(*named) == (1.0, [])
    assert evaluated("--data-target", "none", command="compact") == (None, [warning])


def test_a_file_is_compacted_and_measured_in_one_run(folder: Path) -> None:
    data, shape = write_data(folder, "npz-test")
    (folder / "own.tflite").write_bytes(classifier(64, shape))
    done = shrink(folder, "compact", "own.tflite", "--data", data, "--output", "compacted")
    assert done.returncode == 0, done.stderr
    stages = json.loads((folder / "compacted" / "report.json").read_text())["stages"]
    assert [stage["kind"] for stage in stages] == ["baseline", "compact"]
    assert {stage["metrics"]["accuracy"] for stage in stages} == {0.85}


@pytest.mark.parametrize(
    "words",
    [
        ["run", "digits", "--output", "out"],
        ["prune", "model.h5", "--data", "digits", "--output", "out"],
        ["quantize", "float.tflite", "--scheme", "float16", "--output", "out"],
        ["inspect", "model.h5"],
        ["evaluate", "model.tflite", "--data", "digits"],
        ["data", "check", "digits"],
    ],
    ids=["run", "prune", "quantize", "inspect", "evaluate", "data"],
)
def test_other_commands_name_the_full_installation(folder: Path, words: list[str]) -> None:
    (folder / "model.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(64))
    net = Net((1, 8))
    output = net.relu(net.input)
    for tensor in net.graph.tensors:
        tensor.type, tensor.quantization = schema.TensorType.FLOAT32, None
    (folder / "float.tflite").write_bytes(net.file(output))
    done = shrink(folder, *words)
    assert done.returncode == 5, done.stderr
    assert "needs the package " in done.stderr
    (hint,) = [line for line in done.stderr.splitlines() if "pip install" in line]
    assert re.search(r"python -m pip install (-e )?(/\S+|\.)( |$)", hint), hint
    assert not (folder / "out").exists()


def test_doctor_takes_this_installation_as_complete(folder: Path) -> None:
    done = shrink(folder, "doctor")
    assert done.returncode == 0, done.stdout
    assert "PROBLEM" not in done.stdout
    (limit,) = [line for line in done.stdout.splitlines() if "Keras models need" in line]
    assert "tensorflow, tf-keras, keras" in limit
    assert "python -m pip install " in limit
    (folder / "more").mkdir()
    (folder / "more/sitecustomize.py").write_text(BLOCKER.replace("('tensor", "('jinja2', 'tensor"))
    path = folder / "more"
    broken = shrink(path, "doctor")
    assert broken.returncode == 5
    (problem,) = [line for line in broken.stdout.splitlines() if "PROBLEM" in line]
    assert "jinja2 is missing" in problem
