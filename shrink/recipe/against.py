"""Saved reports that gates compare with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from shrink.base.cache import REPORT_NAME
from shrink.base.errors import InputError
from shrink.model.reference import exists
from shrink.recipe.schema import Recipe
from shrink.report.config import Gate

if TYPE_CHECKING:
    from shrink.contract.report import Report


def saved_reports(recipe: Recipe) -> dict[str, Report]:
    """Return the report that each gate with `against` compares with, by the gate's name.

    They are read before the run, not after it: training for hours to compare with nothing helps
    nobody, and a run may overwrite the very report that it is compared with.

    Raises:
        InputError: a report that is not there, though the gate needs one, or not readable.
    """
    if not any(gate.against for gate in recipe.gates.values()):
        return {}
    from shrink.contract.report_file import read_report

    reports: dict[str, Report] = {}
    for name, gate in recipe.gates.items():
        if gate.against and _is_saved(name, gate, Path(gate.against)):
            reports[name] = read_report(Path(gate.against))
    return reports


def _is_saved(name: str, gate: Gate, path: Path) -> bool:
    """Whether there is a report to read; raise `InputError` where the gate needs one."""
    file = path / REPORT_NAME if path.is_dir() else path
    if exists(file):
        return True
    if gate.missing == "pass":
        return False
    raise InputError(
        f"gate {name}: there is no report to compare with",
        subject=path,
        hint="name the report.json or the folder of a finished run; for a first run, before there "
        f"is one, write {name}: {{against: {path.name}, missing: pass}}",
    )
