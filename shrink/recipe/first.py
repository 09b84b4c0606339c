"""A first recipe for a model and its data: short, commented, with gates that should hold."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shrink.base.figures import METRICS
from shrink.model.reference import ModelReference, near_path
from shrink.recipe.data_reference import NamedData
from shrink.recipe.resolved import recipe_text

_MEMORY_LIMIT = "2GB"
_ROOM = 10
"""A tenth: fine-tuning and other calibration examples move a size by a few percent."""


def first_recipe(
    name: str,
    model: ModelReference,
    named: NamedData,
    found: Mapping[str, Any],
    folder: Path,
) -> str:
    """Return the recipe as commented YAML.

    Args:
        name: of the recipe.
        model: the model; a builder is trained first.
        named: the `data` section, its path absolute, and what it says of the task.
        found: what `shrink.tools.first_look` told of both.
        folder: where the recipe will lie; paths below it become relative.
    """
    section = dict(named.data)
    if isinstance(section.get("path"), str):
        section["path"] = near_path(Path(section["path"]), folder)
    place = near_path(model.path, folder) + (f":{model.function}" if model.function else "")
    task = {"task": named.task} if named.task else {}
    parts = [
        "# Written by `shrink init`: a start, to be changed. `shrink run` runs it.",
        f"# The model: {_model_line(model, found)}.",
        f"# The data: {_data_line(found)}.",
        recipe_text({"name": name, "model": place, "data": section, **task}).rstrip(),
        *_training(model),
        "stages:",
        *_stages(model, found),
        "# A missed gate is exit code 1. Tighten them once the first report is there.",
        "gates:",
        *_gates(model, found),
    ]
    return "\n".join(parts) + "\n"


def _model_line(model: ModelReference, found: Mapping[str, Any]) -> str:
    kind = "built anew, and trained by the first stage" if not model.trained else "trained already"
    size = f"{found['parameters']:,} parameters, {found['float_bytes']:,} bytes as float32 .tflite"
    return f"{size}, {kind}"


def _data_line(found: Mapping[str, Any]) -> str:
    counts = ", ".join(f"{found[n]:,} for {n}" for n in ("train", "validation", "test"))
    real = METRICS[found["metric"]].is_of_real_targets
    other = "real targets" if real else "several labels for each example"
    kind = f"{found['classes']} classes" if found["classes"] else other
    return f"{kind}; {counts}"


def _training(model: ModelReference) -> list[str]:
    if model.form == "tflite":
        return []
    return [
        "# What an update sees; how it is split over memory and devices is worked out.",
        "training:",
        "  global_batch_size: 64",
        f"  optimizer: {{name: adam, learning_rate: {_rate(model)}, schedule: cosine}}",
        f"  memory_limit: {_MEMORY_LIMIT}",
    ]


def _rate(model: ModelReference) -> str:
    return "3e-4" if model.trained else "1e-3"


def _stages(model: ModelReference, found: Mapping[str, Any]) -> list[str]:
    train = [] if model.trained else ["  - train: {epochs: 20}"]
    prune = [
        "  # Smaller and faster still: remove whole channels, and fine-tune. Costs training time.",
        "  # - prune: {method: channels, ratio: 0.3, importance: least_squares, epochs: 5}",
    ]
    quantize = [
        f"  - quantize: {{scheme: {found['scheme']}}}",
        "  # Instead, 4-bit weights where they cost least, to a budget:",
        "  # - quantize: {scheme: mixed, accuracy_drop: 0.01}",
    ]
    can_prune = found["groups"] > 0
    is_classifier = found["metric"] == "accuracy"
    return [*train, *(prune if can_prune else []), *quantize[: None if is_classifier else 1]]


def _gates(model: ModelReference, found: Mapping[str, Any]) -> list[str]:
    metric, chance = found["metric"], "  # what chance explains is none"
    if METRICS[metric].higher_is_better:
        gates = [f"  {metric}_drop: {{limit: 0.02, confidence: 0.95}}{chance}"]
    else:
        gates = [f"  {metric}: {{ratio: 1.1}}  # at most a tenth above the baseline's"]
    for name, key, before in (
        ("tflite_bytes", "quantized_bytes", f"  # {found['float_bytes']:,} as float32"),
        ("arena_bytes", "quantized_arena_bytes", ""),
    ):
        if found[key] is not None:
            gates.append(f"  {name}: {_rounded_up(found[key] + found[key] // _ROOM)}{before}")
    if not model.trained:
        gates.append(f"  training_peak_bytes: {_MEMORY_LIMIT}")
    return gates


def _rounded_up(size_bytes: float) -> str:
    """Return a size of two digits as a recipe has it, such as 34KB or 1.2MB; never less."""
    unit, name = (1e6, "MB") if size_bytes >= 1e6 else (1e3, "KB")
    tenths = -(-size_bytes * 10 // unit)
    number = tenths / 10 if size_bytes < 10 * unit else -(-size_bytes // unit)
    return f"{number:g}{name}"
