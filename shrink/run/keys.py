"""Content keys: two steps with the same key give the same artifact."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import shrink
from shrink.model.compiled import said_by_run
from shrink.recipe.plan import Plan, Source, Step
from shrink.run import files

_PACKAGES = ("tensorflow", "tf-keras", "tensorflow-model-optimization", "ai-edge-litert", "numpy")
_NOT_IN_KEYS = {"name", "from_", "training", "teacher", "student"}


def step_keys(plan: Plan, data_fingerprint: str) -> dict[str, str]:
    """Return the key of every step, by name.

    A key holds the step's configuration, the keys or hashes of its inputs, the data's
    fingerprint, the seed, and the versions of shrink and of the libraries that compute.
    """
    keys: dict[str, str] = {}
    for step in plan.steps:
        keys[step.name] = _hash(describe_step(plan, step, data_fingerprint, keys))
    return keys


def describe_step(
    plan: Plan, step: Step, data_fingerprint: str, keys: Mapping[str, str]
) -> dict[str, Any]:
    """Return everything that a step's outcome depends on, as plain data."""
    config = step.config.model_dump(mode="json", exclude=_NOT_IN_KEYS) if step.config else {}
    data = plan.recipe.data.model_dump(mode="json", exclude={"path"})
    custom = plan.custom_objects
    return {
        "kind": step.kind,
        "config": config,
        "training": step.training.model_dump(mode="json"),
        "inputs": {role: _source(source, keys) for role, source in step.inputs.items()},
        "claims": list(step.claims),
        "custom_objects": None if custom is None else files.sha256(custom),
        "data": data,
        "data_fingerprint": data_fingerprint,
        "split_seed": plan.recipe.training.seed,
        "task": plan.recipe.task.model_dump(mode="json"),
        # The file of the recipe's model says which loss is meant where the recipe does not.
        "task_model": _task_model(plan.steps[0].inputs["model"], keys),
        "versions": versions(),
    }


@functools.cache
def versions() -> dict[str, str]:
    """Return the versions that decide what a step computes."""
    found = {"shrink": shrink.__version__}
    if (digest := _sources_digest()) is not None:
        found["shrink_sources"] = digest
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "missing"
    return found


def _sources_digest() -> str | None:
    """Return a hash of shrink's sources in a checkout, None where it is installed."""
    package = Path(shrink.__file__).parent
    if not (package.parent / "pyproject.toml").is_file():
        return None
    digest = hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        digest.update(f"{file.relative_to(package)}\0".encode() + file.read_bytes())
    return digest.hexdigest()


def _task_model(source: Source, keys: Mapping[str, str]) -> Any:
    reference = source.reference
    return [_source(source, keys), None if reference is None else said_by_run(reference.path)]


def _source(source: Source, keys: Mapping[str, str]) -> Any:
    if source.step is not None:
        key = keys[source.step]
        return {"step": key, "arguments": dict(source.arguments)} if source.arguments else key
    if source.reference is None:
        return None
    return {
        "sha256": files.sha256(source.reference.path),
        "function": source.reference.function,
        "arguments": dict(source.arguments),
    }


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
