"""The bundled recipes of segmentation, keyword spotting, forecasting, anomalies and intents.

They pass their gates, and every figure of the int8 artifact is computed again from its outputs, by
definition and in numpy. Slow; in the default suite tests/oracle/test_zoo.py has texts, tables and
series.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from ai_edge_litert.interpreter import Interpreter
from sklearn.metrics import roc_auc_score

from shrink.data.config import DataConfig
from shrink.data.opening import open_dataset
from shrink.recipe.bundle import bundled_root
from tests.cli.shell import read_report, shrink, stage
from tests.forks import ARENA

Metrics = dict[str, float]


def decided(outputs: np.ndarray) -> np.ndarray:
    """Return 1 for the largest class, the first of several that are equal, (..., classes)."""
    return np.eye(outputs.shape[-1])[outputs.argmax(axis=-1)]


def of_masks(outputs: np.ndarray, y: np.ndarray) -> Metrics:
    classes = outputs.shape[-1]
    found, true = decided(outputs).reshape(-1, classes), np.eye(classes)[y.ravel()]
    hits = (found * true).sum(axis=0)
    either = found.sum(axis=0) + true.sum(axis=0) - hits
    overlap = hits[either > 0] / either[either > 0]
    return {"mean_iou": float(overlap.mean()), "pixel_accuracy": float(hits.sum() / y.size)}


def of_classes(outputs: np.ndarray, y: np.ndarray) -> Metrics:
    own = np.take_along_axis(decided(outputs), y[:, None], axis=1)[:, 0]
    recalls = [own[y == label].mean() for label in range(outputs.shape[1])]
    keyword = np.round(outputs[:, 1] - np.log(np.exp(outputs).sum(axis=1)), 10)
    misses = int(np.floor(0.05 * np.sum(y == 1)))
    threshold = np.sort(keyword[y == 1])[misses]
    accepted = np.sum(keyword[y != 1] >= threshold) / np.sum(y != 1) * 3_600
    return {
        "balanced_accuracy": float(np.mean(recalls)),
        "false_accepts_per_hour_0.05_1_keyword": float(accepted),
    }


def of_numbers(outputs: np.ndarray, y: np.ndarray) -> Metrics:
    apart = outputs - y
    return {"rmse": float(np.sqrt(np.mean(apart**2))), "mae": float(np.mean(np.abs(apart)))}


def of_errors(outputs: np.ndarray, y: np.ndarray) -> Metrics:
    errors = np.mean(np.square(outputs - y.astype(np.float64)), axis=1)
    faulty = np.arange(len(y)) % 2  # every other test sound
    return {
        "anomaly_roc_auc_normal": float(roc_auc_score(faulty, errors)),
        "mean_squared_error": float(np.mean(errors)),
    }


def of_texts(outputs: np.ndarray, y: np.ndarray) -> Metrics:
    found, true = decided(outputs), np.eye(outputs.shape[1])[y]
    hits = (found * true).sum(axis=0)
    scores = 2 * hits / (found.sum(axis=0) + true.sum(axis=0))
    return {"accuracy": float(hits.sum() / len(y)), "f1_macro": float(scores.mean())}


@dataclass(frozen=True)
class Case:
    """A recipe, and what its metrics are by definition."""

    name: str
    metrics: Callable[[np.ndarray, np.ndarray], Metrics]


CASES = [
    Case("digits-segment", of_masks),
    Case("tones-keyword", of_classes),
    Case("series-forecast", of_numbers),
    Case("machine-anomaly", of_errors),
    Case("text-intent", of_texts),
]


GATES = [
    "mean_iou_drop", "balanced_accuracy_drop", "rmse", "anomaly_roc_auc_normal_drop",
    "accuracy_drop",
]  # fmt: skip
"""What `shrink init` proposes for each."""


WITH_FRONT_END = ("tones-keyword", "machine-anomaly", "text-intent")


def outputs_of(artifact: Path, x: np.ndarray) -> np.ndarray:
    """Return what an int8 artifact answers, as real numbers, float64."""
    interpreter = Interpreter(model_path=str(artifact))
    (source,), (target,) = interpreter.get_input_details(), interpreter.get_output_details()
    interpreter.allocate_tensors()
    scale, zero = source["quantization"]
    if source["dtype"] is np.int8:
        codes = np.round(x.astype(np.float32) / np.float32(scale)) + zero
        x = np.clip(codes, -128, 127).astype(np.int8)
    found = []
    for example in x:
        interpreter.set_tensor(source["index"], example[None])
        interpreter.invoke()
        found.append(interpreter.get_tensor(target["index"])[0].astype(np.float64))
    scale, zero = target["quantization"]
    return np.asarray(scale * (np.stack(found) - zero))


def read_recipe(name: str) -> dict[str, Any]:
    path = bundled_root() / "recipes" / f"{name}.yaml"
    recipe: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    if "path" in recipe["data"]:
        recipe["data"]["path"] = str(path.parent / recipe["data"]["path"])
    return recipe


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.name)
def ran(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Case, Path]:
    """Run a recipe; return it with its output folder."""
    case, folder = request.param, tmp_path_factory.mktemp(request.param.name)
    words = ("run", case.name, "--output", "out")
    shrink(*words, cwd=folder, store=folder / "store", measured=[ARENA])
    return case, folder / "out"


@pytest.mark.slow
def test_metrics_of_a_recipe_are_those_of_its_artifacts_outputs(ran: tuple[Case, Path]) -> None:
    case, out = ran
    last = stage(read_report(out), "quantize")
    test = open_dataset(DataConfig.model_validate(read_recipe(case.name)["data"]), seed=0).test
    x, y = test.arrays(np.arange(len(test)))
    outputs = outputs_of(out / last["artifact"], np.asarray(x))
    for name, value in case.metrics(outputs, np.asarray(y)).items():
        assert last["metrics"][name] == pytest.approx(value, rel=1e-9), name


@pytest.mark.slow
def test_a_front_end_is_written_beside_the_artifact(ran: tuple[Case, Path]) -> None:
    case, out = ran
    metadata = json.loads((out / "artifacts" / "metadata.json").read_text())
    front_end = metadata["artifacts"][-1]["front_end"]
    if case.name == "text-intent":
        lines = (out / "artifacts" / "vocabulary.txt").read_text().splitlines()
        assert lines == front_end["vocabulary"]
    assert (front_end is not None) == (case.name in WITH_FRONT_END)


@pytest.mark.slow
def test_the_whole_recipe_passes_its_gates(ran: tuple[Case, Path]) -> None:
    assert read_report(ran[1])["passed"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "gate"),
    list(zip(CASES, GATES, strict=True)),
    ids=lambda value: getattr(value, "name", value),
)
def test_init_proposes_the_metrics_of_the_recipe(case: Case, gate: str, tmp_path: Path) -> None:
    recipe = read_recipe(case.name)
    (tmp_path / "data.yaml").write_text(yaml.safe_dump({"data": recipe["data"]}))
    model = str((bundled_root() / "recipes" / recipe["model"]).resolve())
    words = ("init", model, "--data", "data.yaml")
    shrink(*words, cwd=tmp_path, store=tmp_path / "store", measured=[ARENA])
    written = yaml.safe_load((tmp_path / "recipe.yaml").read_text())
    assert written["task"]["metrics"][0] == gate.removesuffix("_drop")
    assert gate in written["gates"]
    assert {"tflite_bytes", "arena_bytes"} <= written["gates"].keys()
