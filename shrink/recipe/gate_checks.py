"""Checks that gates name existing stages and slices, before anything is computed."""

from __future__ import annotations

from collections.abc import Sequence

from shrink.base.errors import RecipeError, hint_for
from shrink.data.slice_config import BY_CLASS
from shrink.recipe.load import LoadedRecipe
from shrink.report.config import Gate, why_unmeasured


def check_gates(names: Sequence[str], loaded: LoadedRecipe) -> None:
    """Refuse gates on what the recipe does not have.

    Args:
        names: of the steps.
        loaded: the recipe.

    Raises:
        RecipeError: an unknown stage, an unknown slicing, a metric that nothing measures.
    """
    recipe = loaded.recipe
    for gate, settings in recipe.gates.items():
        if settings.stage is not None and settings.stage not in names:
            raise RecipeError(
                f"gate {gate}: no stage is called {settings.stage!r}",
                position=loaded.position("gates", gate, "stage"),
                hint=hint_for(settings.stage, names),
            )
        if (why := why_unmeasured(gate, recipe.task.metrics)) is not None:
            place = loaded.position("gates", gate)
            raise RecipeError(f"gate {gate}: {why.reason}", position=place, hint=why.hint)
        _check_slicing(gate, settings, loaded)


def _check_slicing(name: str, gate: Gate, loaded: LoadedRecipe) -> None:
    slicings = [BY_CLASS, *(one.called for one in loaded.recipe.data.slices or ())]
    if gate.by is not None and gate.by not in slicings:
        raise RecipeError(
            f"gate {name}: no slicing is called {gate.by!r}",
            position=loaded.position("gates", name, "by"),
            hint=hint_for(gate.by, slicings),
        )
