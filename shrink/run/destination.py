"""Where a run's result goes: one .tflite file, or a run folder that no other thing's run is in."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shrink.base.errors import RecipeError, ShrinkError
from shrink.base.yaml import reader as yaml
from shrink.recipe.plan import Plan, Step
from shrink.recipe.resolved import resolved_recipe
from shrink.run.folder import RESOLVED_NAME
from shrink.run.runner import RunOptions
from shrink.run.selection import selected_steps

ARTIFACT_SUFFIX = ".tflite"
RUNS = Path("runs")
_HASH_DIGITS = 6


def names_artifact(output: Path | None) -> bool:
    """Whether `--output` means one artifact; anything but `.tflite` means a run folder."""
    return output is not None and output.suffix == ARTIFACT_SUFFIX and not output.is_dir()


def only_artifact(plan: Plan, options: RunOptions) -> Step:
    """Return the one step whose artifact `--output FILE.tflite` can hold.

    Raises:
        RecipeError: the run ends in a Keras model, or in several artifacts.
    """
    steps, output = selected_steps(plan, options.last), options.output
    finals = [plan.step(name) for name in replace(plan, steps=steps).finals]
    if len(finals) > 1:
        raise RecipeError(
            f"one file cannot hold {len(finals)} artifacts: "
            f"{', '.join(step.name for step in finals)}",
            subject=output,
            hint="name a run folder with --output, without .tflite at its end",
        )
    if finals[0].form != "tflite":
        raise RecipeError(
            f"the stage {finals[0].name!r} ends in a Keras model, not in a .tflite file",
            subject=output,
            hint="name a run folder with --output, and convert with `shrink quantize`",
        )
    return finals[0]


def free_name(plan: Plan, runs: Path = RUNS) -> str:
    """Return the recipe's name, or a longer one where its folder holds another thing's run.

    Two runs are of one thing when model, data, and the schemes or methods of their stages are the
    same; such a run replaces the earlier one, any other is told apart by what differs.

    Args:
        plan: of a single verb.
        runs: the folder of run folders.
    """
    ours = _Thing.of(resolved_recipe(plan))
    for name in _candidates(plan.recipe.name, ours, _thing_in(runs / plan.recipe.name)):
        there = _thing_in(runs / name)
        if there is None or there == ours:
            return name
    raise AssertionError("a hash of the thing itself is only its own")


@dataclass(frozen=True)
class _Thing:
    """What a run is of: the model, the data, and the scheme or method of each stage."""

    model: str
    data: str
    stages: tuple[str, ...]

    @classmethod
    def of(cls, recipe: Mapping[str, Any]) -> _Thing:
        data = recipe["data"]
        stages = [_stage_name(kind, s) for e in recipe["stages"] for kind, s in e.items()]
        place = data.get("path") or data.get("source")
        return cls(str(recipe["model"]), str(place), tuple(stages))

    def differences(self, other: _Thing) -> Iterator[str]:
        """Yield a word for each way in which this is another thing."""
        if self.model != other.model:
            mine, its = Path(self.model), Path(other.model)
            yield mine.parent.name if mine.suffix == its.suffix else mine.suffix.lstrip(".")
        if self.stages != other.stages:
            yield self.stages[-1].rpartition(":")[2] if self.stages else "evaluate"
        if self.data != other.data:
            yield Path(self.data).stem

    def digest(self) -> str:
        text = json.dumps([self.model, self.data, self.stages])
        return hashlib.sha256(text.encode()).hexdigest()[:_HASH_DIGITS]


def _stage_name(kind: str, settings: Mapping[str, Any]) -> str:
    return f"{kind}:{settings.get('scheme') or settings.get('method') or kind}"


def _candidates(name: str, ours: _Thing, there: _Thing | None) -> Iterator[str]:
    yield name
    if there is not None:
        longer = "-".join([name, *filter(None, ours.differences(there))])
        yield longer
        yield f"{longer}-{ours.digest()}"


def _thing_in(folder: Path) -> _Thing | None:
    """Return what the run in a folder is of; None where no run of shrink says it."""
    path = folder / RESOLVED_NAME
    try:
        return _Thing.of(yaml.load(path).value) if path.is_file() else None
    except (ShrinkError, KeyError, TypeError, AttributeError):
        return None  # the run folder itself refuses what it does not know
