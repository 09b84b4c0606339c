"""Checks what gates name and reads their saved reports, before anything is computed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from shrink.base.cache import REPORT_NAME
from shrink.base.errors import InputError, RecipeError, hint_for
from shrink.base.figures import target_of
from shrink.contract.slices import BY_CLASS
from shrink.model.reference import exists
from shrink.recipe.load import LoadedRecipe
from shrink.report.config import DIFFERENCES, why_unmeasured

if TYPE_CHECKING:
    from shrink.contract.report import Report


def check_gates(names: Sequence[str], loaded: LoadedRecipe) -> None:
    """Raise `RecipeError` for a gate on something unknown or unmeasured, or that cannot be missed.

    Args:
        names: of the steps.
        loaded: the recipe.
    """
    recipe = loaded.recipe
    slicings = [BY_CLASS, *(one.called for one in recipe.data.slices or ())]
    for gate, settings in recipe.gates.items():
        for key, what, value, known in (
            ("stage", "stage", settings.stage, names),
            ("by", "slicing", settings.by, slicings),
        ):
            if value is not None and value not in known:
                raise RecipeError(
                    f"gate {gate}: no {what} is called {value!r}",
                    position=loaded.position("gates", gate, key),
                    hint=hint_for(value, known),
                )
        if (why := why_unmeasured(gate, recipe.task.metrics)) is not None:
            place = loaded.position("gates", gate)
            raise RecipeError(f"gate {gate}: {why[0]}", position=place, hint=why[1])
        target = target_of(gate)
        differs = target is not None and target.kind in DIFFERENCES
        if (
            (differs or settings.ratio is not None)
            and settings.against is None
            and (settings.stage or names[-1]) == names[0]
        ):
            raise RecipeError(
                f"gate {gate}: it would compare the baseline, stage {names[0]}, with itself",
                position=loaded.position("gates", gate),
                hint="limit the figure itself, such as accuracy: 0.9, or compare with a saved "
                "report: accuracy: {against: report.json, limit: 0.01}",
            )


def saved_reports(loaded: LoadedRecipe) -> dict[str, Report]:
    """Return the report that each gate with `against` compares with, by the gate's name.

    They are read before the run, which may overwrite the very report that it is compared with.

    Raises:
        InputError: a report that is not there, though the gate needs one, or not readable.
    """
    reports: dict[str, Report] = {}
    for name, gate in loaded.recipe.gates.items():
        if gate.against is None:
            continue
        from shrink.contract.report_file import read_report

        path = Path(gate.against)
        if exists(path / REPORT_NAME if path.is_dir() else path):
            reports[name] = read_report(path)
        elif gate.missing != "pass":
            raise InputError(
                f"gate {name}: there is no report to compare with",
                subject=path,
                hint="name the report.json or the folder of a finished run; for a first run, "
                f"before there is one, write {name}: {{against: {path.name}, missing: pass}}",
            )
    return reports
