"""What a recipe can do without data, and what it needs examples for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from shrink.base.errors import RecipeError
from shrink.data.config import NO_DATA, WHY_NO_METRICS
from shrink.recipe.load import LoadedRecipe
from shrink.report.targets import TARGETS
from shrink.stages import STAGES
from shrink.stages.base import StageConfig
from shrink.stages.quantize.config import SCHEME_TRAITS, QuantizeConfig

_NAME_DATA = "add --data with a source, a path or a YAML file, for example --data digits"


def check_examples(
    source: str,
    stages: Mapping[str, StageConfig],
    gates: Iterable[str],
    loaded: LoadedRecipe,
) -> None:
    """Raise `RecipeError` where a recipe without data trains, calibrates or measures a metric.

    Args:
        source: `data.source`.
        stages: the configuration of every stage, by name.
        gates: names of the gates.
        loaded: the recipe's file, for the place of what is wrong.
    """
    if source != NO_DATA:
        return
    where = loaded.position("data", "source")
    if not stages:
        raise RecipeError(f"nothing to evaluate on: {WHY_NO_METRICS}", position=where, hint=_hint())
    for name, config in stages.items():
        if (why := config.needs_examples) is not None:
            told = f"{WHY_NO_METRICS}, and {name} needs examples: it {why}"
            raise RecipeError(told, position=where, hint=_hint(config.kind))
    for name in gates:
        if TARGETS[name].figure.group == "metrics":
            raise RecipeError(
                f"gate {name}: no metric is measured, as {WHY_NO_METRICS}",
                position=loaded.position("gates", name),
                hint=_hint(),
            )


def data_of_none(stages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the `data` section of a single verb without data.

    Args:
        stages: each a kind with its settings; what is wrong with these is not told here.

    Raises:
        RecipeError: a stage needs examples, or there is nothing to do but to evaluate.
    """
    if not stages:
        raise _no_data()
    for kind, settings in (pair for entry in stages for pair in entry.items()):
        try:
            config = STAGES[kind].model_validate(settings)
        except ValidationError:
            continue  # whoever reads the recipe says what is wrong, and where
        if config.needs_examples is not None:
            raise _no_data(kind, config.needs_examples)
    return {"source": NO_DATA}


def _no_data(kind: str = "", why: str = "") -> RecipeError:
    told = f"{WHY_NO_METRICS}, and {kind} needs examples: it {why}" if kind else WHY_NO_METRICS
    return RecipeError(told, subject="--data", hint=_hint(kind))


def _hint(kind: str = "") -> str:
    if kind != QuantizeConfig.kind:
        return _NAME_DATA
    without = (name for name, scheme in SCHEME_TRAITS.items() if not scheme.calibrates)
    return f"{_NAME_DATA}; schemes that need none: {', '.join(without)}"
