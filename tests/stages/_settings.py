"""Settings of the stages, level by level, and the recipe that a row of levels makes."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from tests.oracle.pairs import allowed_pairs
from tests.stages._networks import Network, task

Row = Mapping[str, str]
Piece = dict[str, Any]
"""Keys of the stage; with `training` those of its training; `data`, `before` and `after` go to the
recipe: its data section, and stages before and after the one that is tried."""

METADATA_BYTES = 500
"""What an embedded interface may add to a file."""
BUDGETS: Mapping[str, Mapping[str, int]] = {
    name: dict(
        zip(("float file", "int8 file", "float arena", "int8 arena", "mixed"), row, strict=True)
    )
    for name, row in {
        "plain": (10_700, 5_500, 4_600, 3_000, 5_800),
        "residual": (11_500, 6_800, 9_500, 4_700, 7_200),
        "depthwise": (6_000, 6_000, 4_500, 4_100, 7_300),
        "sequence": (6_000, 5_300, 4_200, 4_500, 6_640),
        "pooled": (4_200, 3_900, 3_300, 3_700, 4_460),
        "two": (8_100, 4_700, 3_600, 3_000, 5_200),
        "labels": (6_600, 3_900, 2_500, 2_350, 3_900),
    }.items()
}
"""Bytes below those that each network has, and above what every second channel leaves; for `mixed`
between those of 4 and 8 bits."""

SIX = ("plain", "residual", "depthwise", "sequence", "two", "labels")


def _training(**keys: Any) -> Piece:
    return {"training": keys}


_KEPT = {
    "last": {},
    "best": _training(restore_best=True),
    "patience": _training(patience=1),
}
_PRECISION = {
    "float32": {},
    "bfloat16": _training(precision="mixed_bfloat16"),
    "float16": _training(precision="mixed_float16"),
}
_SPLIT = {
    "whole": {},
    "micro": _training(micro_batch_size=5),
    "replicas": _training(replicas=2),
    "recomputed": _training(recompute=2),
}
_OPTIMIZER = {
    "adam": {},
    "cosine": _training(
        optimizer={"name": "sgd", "momentum": 0.9, "learning_rate": 0.02, "schedule": "cosine"}
    ),
    "clipped": _training(optimizer={"name": "adamw", "global_clipnorm": 1.0, "warmup": 0.5}),
}
_INT8 = {"quantize": {"scheme": "static_wi8_ai8"}}

MAGNITUDE: dict[str, dict[str, Piece]] = {
    "network": {name: {} for name in SIX},
    "sparsity": {"default": {}, "30": {"sparsity": 0.3}, "93": {"sparsity": 0.93}},
    "pattern": {
        "default": {},
        "2:4": {"pattern": "2:4"},
        "block": {"pattern": "block"},
    },
    "schedule": {
        "default": {},
        "constant": {"schedule": "constant"},
        "short": {"schedule": "polynomial", "ramp": 0.1, "frequency": 1},
        "long": {"ramp": 1.0, "initial_sparsity": 0.1},
        "no ramp": {"ramp": 0.0},
    },
    "epochs": {"1": {"epochs": 1}, "2": {"epochs": 2}, "0": {"epochs": 0}},
    "exclude": {"none": {}, "second": {"exclude": ["s?cond"]}},
    "kept": _KEPT,
    "precision": _PRECISION,
    "split": _SPLIT,
    "optimizer": _OPTIMIZER,
    "after": {
        "nothing": {},
        "int8": {"after": [{"quantize": {"sparse": True}}]},
        "distill": {"after": [{"distill": {"epochs": 1}}]},
        "cluster": {"after": [{"cluster": {"epochs": 1, "clusters": 8}}]},
    },
}

CHANNELS: dict[str, dict[str, Piece]] = {
    "network": MAGNITUDE["network"],
    "target": {
        "ratio": {"ratio": 0.3},
        "ratios": {"ratio": 0.25, "ratios": {"*": 0.5}},
        "macs": {"macs": 0.7},
        "parameters": {"parameters": 0.7},
        "file": {"file_bytes": "float file"},
        "int8 file": {"file_bytes": "int8 file", "file_precision": "int8"},
        "arena": {"arena_bytes": "float arena"},
        "int8 arena": {"arena_bytes": "int8 arena", "file_precision": "int8"},
    },
    "importance": {
        name: {"importance": name}
        for name in (
            "l2", "l1", "lamp", "bn_scale", "taylor", "random", "least_squares",
        )
    },
    "allocation": {name: {"allocation": name} for name in ("uniform", "sensitivity", "global")},
    "rebuild": {"yes": {}, "no": {"rebuild": False}},
    "round_to": {"1": {}, "4": {"round_to": 4}},
    "samples": {"400": {}, "9": {"samples": 9}},
    "steps": {"1": {}, "2": {"steps": 2}},
    "teacher": {
        "none": {},
        "self": {"teacher": "self"},
        "warm": {"teacher": "self", "temperature": 2.0, "alpha": 0.5},
    },
    "exclude": MAGNITUDE["exclude"],
    "epochs": MAGNITUDE["epochs"],
    "kept": _KEPT,
    "precision": _PRECISION,
    "split": _SPLIT,
    "after": {
        "nothing": {},
        "int8": {"after": [_INT8]},
        "distill": {"after": [{"distill": {"epochs": 1}}]},
    },
}  # fmt: skip

DISTILL: dict[str, dict[str, Piece]] = {
    "network": MAGNITUDE["network"],
    "teacher": {
        "default": {},
        "file": {"teacher": "model.keras"},
        "two": {"teacher": ["model.keras", "other.keras"]},
    },
    "student": {
        "file": {"student": "student.keras"},
        "width": {"student": {"width": 0.5}},
        "cut": {"student": {"width": 0.5, "inherit": True}},
        "depth": {"student": {"depth": 0.5}},
        "before": {"before": [{"prune": {"sparsity": 0.5, "epochs": 0}}]},
    },
    "temperature": {
        "default": {},
        "1": {"temperature": 1.0},
    },
    "alpha": {
        "default": {},
        "0": {"alpha": 0.0},
        "1": {"alpha": 1.0},
    },
    "loss": {
        "auto": {},
        "kl": {"loss": "kl"},
        "logit_mse": {"loss": "logit_mse"},
        "decoupled": {"loss": "decoupled", "beta": 2.0},
        "output_mse": {"loss": "output_mse"},
    },
    "features": {
        "none": {},
        "hint": {"feature_layers": {"first": "first"}, "feature_weight": 0.1},
        "attention": {"feature_layers": {"first": "first"}, "feature_loss": "attention"},
        "relational": {"feature_layers": {"first": "first"}, "feature_loss": "relational"},
    },
    "cache": {name: {"teacher_cache": name} for name in ("auto", "on", "off")},
    "stored": {
        "float32": {},
        "float16": {"cache_dtype": "float16"},
    },
    "control": {"no": {}, "yes": {"control": True}},
    "augment": {
        "none": {},
        "flip": {"data": {"augment": {"flip": "horizontal", "crop": 1}}},
        "mixup": {"data": {"augment": {"mixup": 0.4}}},
    },
    "epochs": {"1": {"epochs": 1}, "2": {"epochs": 2}},
    "kept": _KEPT,
    "precision": _PRECISION,
    "split": _SPLIT,
}

QUANTIZE: dict[str, dict[str, Piece]] = {
    "network": {name: {} for name in (*SIX, "pooled")},
    "scheme": {
        **{
            name: {"scheme": name}
            for name in (
                "float32", "float16", "dynamic_wi8_afp32", "dynamic_wi4_afp32",
                "weight_only_wi8_afp32", "weight_only_wi4_afp32", "static_wi8_ai8",
                "static_wi8_ai16",
            )
        },
        "mixed drop": {"scheme": "mixed", "accuracy_drop": 0.2},
        "mixed drop float": {"scheme": "mixed", "accuracy_drop": 0.2, "activations": "float32"},
        "mixed file": {"scheme": "mixed", "file_bytes": "mixed"},
        "mixed file float": {"scheme": "mixed", "file_bytes": "mixed", "activations": "float32"},
    },
    "types": {
        "default": {},
        "float32": {"input_type": "float32", "output_type": "float32"},
        "integer out": {"input_type": "float32"},
        "uint8": {"input_type": "uint8", "output_type": "uint8"},
        "integer in": {"output_type": "float32"},
    },
    "dense_scales": {"default": {}, "tensor": {"dense_scales": "tensor"}},
    "aware": {"no": {}, "yes": {"aware": True, "epochs": 1}},
    "target": {"litert": {}, "tflm": {"target": "tflm"}},
    "sparse": {"no": {}, "yes": {"sparse": True}},
    "metadata": {"no": {}, "yes": {"embed_metadata": True}},
    "samples": {"500": {}, "1": {"calibration_samples": 1}, "20": {"calibration_samples": 20}},
    "before": {
        "nothing": {},
        "magnitude": {"before": [{"prune": {"sparsity": 0.8, "epochs": 0}}]},
        "channels": {"before": [{"prune": {"method": "channels", "ratio": 0.3, "epochs": 0}}]},
        "cluster": {"before": [{"cluster": {"clusters": 8, "epochs": 0}}]},
        "train": {"before": [{"train": {"epochs": 1}}]},
    },
    "model": {"keras": {}, "tflite": {"model": "model.tflite"}},
    "split": _SPLIT,
    "precision": _PRECISION,
}  # fmt: skip

STAGES: dict[str, tuple[str, Piece, dict[str, dict[str, Piece]]]] = {
    "magnitude": ("prune", {}, MAGNITUDE),
    "channels": ("prune", {"method": "channels"}, CHANNELS),
    "distill": ("distill", {}, DISTILL),
    "quantize": ("quantize", {}, QUANTIZE),
}
"""By what is tried: the stage, what its configuration always holds, and the factors."""


def legal(tried: str, row: Row) -> bool:
    """Tell whether a row is one that the recipe's own rules allow."""
    return _LEGAL[tried](row)


def _trains_as_by_default(row: Row) -> bool:
    plain = {"kept": "last", "precision": "float32", "split": "whole", "optimizer": "adam"}
    return all(row.get(factor, level) == level for factor, level in plain.items())


def _legal_magnitude(row: Row) -> bool:
    if row["epochs"] == "0" and not _trains_as_by_default(row):
        return False
    if row["epochs"] == "0" and row["schedule"] in ("short", "long", "no ramp"):
        return False
    if row["pattern"] == "2:4" and (row["sparsity"] != "default" or row["schedule"] != "default"):
        return False
    return not (row["pattern"] == "2:4" and row["after"] == "cluster")


def _legal_channels(row: Row) -> bool:
    if row["epochs"] == "0" and not _trains_as_by_default(row):
        return False
    if row["allocation"] == "global" and row["importance"] == "least_squares":
        return False
    if row["target"] == "ratios" and row["allocation"] != "uniform":
        return False
    if row["rebuild"] == "no" and ("ratio" not in row["target"] or row["steps"] == "2"):
        return False
    if row["epochs"] == "0" and row["teacher"] != "none":
        return False
    return not (row["steps"] == "2" and row["epochs"] != "2")


def _legal_distill(row: Row) -> bool:
    if row["temperature"] != "default" and row["loss"] in ("logit_mse", "output_mse"):
        return False
    if row["cache"] == "off" and row["stored"] != "float32":
        return False
    if row["student"] == "depth" and row["network"] != "residual":
        return False
    if row["cache"] == "on" and row["augment"] != "none":
        return False
    if row["network"] in ("sequence", "two") and row["augment"] == "flip":
        return False
    return not (row["network"] == "labels" and row["loss"] == "decoupled")


NOT_FOR_MICRO = (
    "float16", "dynamic_wi8_afp32", "dynamic_wi4_afp32", "weight_only_wi4_afp32",
    "mixed drop float", "mixed file float",
)  # fmt: skip


def _legal_quantize(row: Row) -> bool:
    scheme, static8 = row["scheme"], row["scheme"] == "static_wi8_ai8"
    if row["aware"] == "no" and not _trains_as_by_default(row):
        return False
    if row["model"] == "tflite" and (row["before"] != "nothing" or row["aware"] == "yes"):
        return False
    if row["model"] == "tflite" and row["network"] == "two":
        return False  # the oracle's conversion numbers the outputs, and the recipe names them
    if row["types"] == "uint8" and not static8:
        return False
    if row["target"] == "tflm" and (row["sparse"] == "yes" or scheme in NOT_FOR_MICRO):
        return False
    if row["before"] == "cluster" and ("wi4" in scheme or "mixed" in scheme):
        return False
    if "yes" in row["aware"] and not static8:
        return False
    return not (row["dense_scales"] == "tensor" and not static8) and bool(scheme)


_LEGAL = {
    "magnitude": _legal_magnitude,
    "channels": _legal_channels,
    "distill": _legal_distill,
    "quantize": _legal_quantize,
}


def rows(tried: str) -> list[dict[str, str]]:
    """Return rows with every pair of levels that can be."""
    factors = {name: list(levels) for name, levels in STAGES[tried][2].items()}
    return allowed_pairs(factors, lambda row: legal(tried, row), tries=400)


def stage(tried: str, row: Row) -> Piece:
    """Return everything that a row says; byte budgets by name become numbers."""
    kind, always, factors = STAGES[tried]
    said: Piece = copy.deepcopy(always)
    for factor, level in row.items():
        for key, value in factors[factor][level].items():
            if key == "training":
                said.setdefault(key, {}).update(copy.deepcopy(value))
            else:
                said[key] = copy.deepcopy(value)
    for key in ("file_bytes", "arena_bytes"):
        if key in said:
            said[key] = BUDGETS[row["network"]][said[key]]
            if row.get("metadata") == "yes":
                said[key] += METADATA_BYTES
    return {"kind": kind, **said}


def row(tried: str, **levels: str) -> dict[str, str]:
    """Return a row of the first level of each factor but those that are given."""
    return {name: levels.get(name, next(iter(of))) for name, of in STAGES[tried][2].items()}


def recipe(
    tried: str, row: Row, network: Network, changed: Mapping[str, Any] | None = None
) -> Piece:
    """Return the recipe of a row, as plain data, with some of the stage's keys changed."""
    said = stage(tried, row) | dict(changed or {})
    kind, data = said.pop("kind"), {**network.data, **said.pop("data", {})}
    before, after = said.pop("before", []), said.pop("after", [])
    model = network.folder / said.pop("model", "model.keras")
    _with_paths(said, network)
    return {
        "name": tried,
        "model": str(model),
        "data": data,
        "task": task(network),
        "training": {"global_batch_size": 16, "optimizer": {"learning_rate": 1e-3}},
        "stages": [*before, {kind: said}, *after],
    }


def _with_paths(said: Piece, network: Network) -> None:
    for key in ("teacher", "student"):
        value = said.get(key)
        if isinstance(value, str) and value.endswith(".keras"):
            said[key] = str(network.folder / value)
        elif isinstance(value, Sequence) and not isinstance(value, str):
            said[key] = [str(network.folder / one) for one in value]
