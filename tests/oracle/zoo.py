"""The zoo: which models, data and chains are combined, and how an entry becomes a recipe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.oracle.pairs import allowed_pairs
from tests.oracle.truth import Truth

STEP_ENDINGS = (
    "logits", "softmax_activation", "softmax_average", "softmax_nested", "sigmoid_activation",
    "linear",
)  # fmt: skip
CLASS_ENDINGS = (
    "logits", "softmax_activation", "softmax_op", "softmax_permute", "softmax_nested",
    "softmax_average", "softmax_concat",
)  # fmt: skip
UNDECIDED = ("sigmoid_product",)
"""Endings of which shrink cannot tell probabilities from logits: the recipe says it."""
FACTORS: dict[str, list[str]] = {
    "ending": [
        *CLASS_ENDINGS, "sigmoid_activation", "sigmoid_op", "sigmoid_product", "sigmoid_logits",
        "linear",
    ],
    "source": ["npz", "images", "hdf5", "tfrecord", "csv", "python"],
    "scheme": [
        "float32", "float16", "dynamic_wi8_afp32", "static_wi8_ai8", "static_wi8_ai16",
        "weight_only_wi8_afp32",
    ],
    "inputs": ["one", "two-ab", "two-za", "two-alike", "three"],
    "chain": ["evaluate", "quantize", "train", "prune", "channels", "distill"],
    "loop": ["none", "lstm", "gru", "rnn"],
    "dtype": ["uint8", "float32", "float64", "int64"],
    "mask": ["none", "pooled", "steps"],
    "structure": ["flat", "nested", "shared"],
    "outputs": ["one", "two"],
    "shape": ["vector", "map"],
    "loss": ["plain", "arguments"],
}  # fmt: skip

Row = Mapping[str, str]


def allowed(row: Row) -> bool:
    """Tell whether a combination can be: images are one input of bytes, masks need tokens."""
    if (row["chain"] == "evaluate" and row["scheme"] != "float32") or _refused(row):
        return False
    if row["source"] in ("images", "csv"):
        only = {"dtype": "uint8", "inputs": "one", "outputs": "one", "mask": "none", "shape": "map"}
        fits = row["ending"] in CLASS_ENDINGS or (row["source"], row["ending"]) == ("csv", "linear")
        return fits and all(row[k] == v for k, v in only.items())
    if row["mask"] != "none":
        tokens = row["dtype"] in ("uint8", "int64") and row["shape"] == "vector"
        if not tokens or row["inputs"] == "two-alike":
            return False
    if row["mask"] == "steps":
        known = row["source"] in ("npz", "hdf5", "python")
        return known and row["ending"] in STEP_ENDINGS
    return True


def _refused(row: Row) -> bool:
    """Tell whether TensorFlow's converter or LiteRT refuses a combination, as shrink then says."""
    if row["scheme"] == "static_wi8_ai16":
        # There is no LSTM with 16-bit activations, and tokens, which are int32, are not calibrated.
        return row["loop"] == "lstm" or row["mask"] != "none"
    # A mean over no steps divides by 0, which integer kernels refuse to run.
    means = row["mask"] == "pooled" and row["loop"] == "none"
    return means and row["scheme"] == "static_wi8_ai8"


def rows() -> list[dict[str, str]]:
    """Return the entries: every pair of levels that can be, in one of them at least."""
    return allowed_pairs(FACTORS, allowed, tries=400)


def name_of(row: Row) -> str:
    """Return a name that says what an entry is."""
    return "-".join(row[k] for k in FACTORS)


@dataclass(frozen=True)
class Made:
    """An entry on disk.

    Attributes:
        arguments: of the command to run, in the entry's folder.
        truth: what the oracle knows.
    """

    arguments: list[str]
    truth: Truth


def make(row: Row, folder: Path, seed: int = 0) -> Made:
    """Write model, data and recipe of an entry."""
    from tests.oracle import zoo_data, zoo_models

    folder.mkdir(parents=True, exist_ok=True)
    model = zoo_models.build(row, seed)
    model.save(folder / "model.keras")
    data, truth = zoo_data.make(row, model, folder, seed)
    if row["chain"] == "distill":
        zoo_models.build(row, seed + 100).save(folder / "student.keras")
    described = {"data": data, "task": _task(row, truth)}
    truth.save(folder / "truth.npz")
    if row["chain"] == "evaluate":
        _write(folder / "data.yaml", described)
        arguments = ["evaluate", "model.keras", "--data", "data.yaml"]
        return Made([*arguments, "--output", "out"], truth)
    recipe = {
        "name": "zoo",
        "model": "model.keras",
        **described,
        "training": {"global_batch_size": 32, "optimizer": {"name": "adam", "learning_rate": 1e-3}},
        "stages": _stages(row),
        "gates": {"file_bytes": "1MB", "loss_rise": {"limit": 5.0, "confidence": 0.95}},
    }
    _write(folder / "recipe.yaml", recipe)
    return Made(["run", "recipe.yaml", "--output", "out"], truth)


def _write(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(yaml.safe_dump(dict(content), sort_keys=False), encoding="utf-8")


def _task(row: Row, truth: Truth) -> dict[str, Any]:
    losses = {
        output.name: {"name": output.loss, **output.arguments} if output.arguments else output.loss
        for output in truth.outputs
    }
    loss: Any = losses if len(losses) > 1 else next(iter(losses.values()))
    task: dict[str, Any] = {"loss": loss, "metrics": truth.metrics}
    if row["ending"] in UNDECIDED:
        task["from_logits"] = {output.name: output.from_logits for output in truth.outputs}
    return task


def _stages(row: Row) -> list[dict[str, Any]]:
    quantize = {"quantize": {"scheme": row["scheme"], "calibration_samples": 64}}
    first: dict[str, list[dict[str, Any]]] = {
        "quantize": [],
        "train": [{"train": {"epochs": 1}}],
        "prune": [{"prune": {"method": "magnitude", "sparsity": 0.5, "epochs": 0}}],
        "channels": [{"prune": {"method": "channels", "ratio": 0.25, "epochs": 0}}],
        "distill": [{"distill": {"student": "student.keras", "epochs": 1}}],
    }
    return [*first[row["chain"]], quantize]


_SAMPLE = """
softmax_op         images   float32               one       evaluate rnn  uint8   none   shared one map    arguments
softmax_concat     csv      dynamic_wi8_afp32     one       train    none uint8   none   nested one map    plain
sigmoid_activation hdf5     static_wi8_ai16       two-alike distill  none float64 none   flat   one map    arguments
sigmoid_op         tfrecord weight_only_wi8_afp32 two-ab    channels none int64   pooled flat   one vector plain
logits             npz      static_wi8_ai8        three     quantize lstm float32 none   nested two vector plain
linear             python   float16               two-za    prune    gru  uint8   steps  flat   one vector plain
"""  # noqa: E501  a table


def sample() -> list[dict[str, str]]:
    """Return six entries that hold every level but endings, in as cheap steps as that takes."""
    lines = _SAMPLE.strip().splitlines()
    return [dict(zip(FACTORS, line.split(), strict=True)) for line in lines]
