"""Arguments of `shrink compare`: run folders, reports, and sweeps, which stand for their runs."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from shrink.base import files
from shrink.base.cache import REPORT_NAME
from shrink.base.errors import InputError, RecipeError
from shrink.base.settings import in_words
from shrink.contract.codec import ContractError, from_plain
from shrink.contract.comparison import COMPARE_NAME, ComparedRow, Comparison
from shrink.contract.report_file import read_report
from shrink.recipe.recipe_diff import settings_that_differ
from shrink.report.comparison import check_overwritten, render_comparison
from shrink.report.comparison_rows import RunToCompare, compare_runs


@dataclass(frozen=True)
class _Named:
    """What the command line names: a run, or a sweep with its runs, which `prefix` goes before."""

    path: Path
    sweep: Comparison | None
    prefix: str = ""


def compare_folders(paths: Sequence[Path], output: Path | None) -> Comparison:
    """Return the comparison of runs and sweeps, and write its pages.

    Args:
        paths: run folders, `report.json` files, or the folders of sweeps.
        output: where the pages go; paths are relative to it. None: as they are given, no pages.

    Raises:
        InputError: a folder that is missing, or is neither a run nor a sweep.
        RecipeError: the output is the folder of another sweep.
    """
    prefixes = [f"{os.path.relpath(path.resolve())}: " if len(paths) > 1 else "" for path in paths]
    pairs = zip(paths, prefixes, strict=True)
    named = [_Named(path, _sweep_in(path), prefix) for path, prefix in pairs]
    alone = named[0].sweep if len(named) == 1 else None
    _check_output(output, named)
    by_folder: dict[Path, RunToCompare] = {}  # each counts once, whatever names it twice
    for run in (run for one in named for run in _runs(one, output)):
        by_folder.setdefault(run.folder.resolve(), run)
    runs = list(by_folder.values())
    if alone is not None:
        titled = Comparison(
            rows=(), title=alone.title, sweep=True, repeat=alone.repeat, jobs=alone.jobs
        )
    else:
        settings = settings_that_differ([run.report for run in runs])
        runs = [replace(run, settings=own) for run, own in zip(runs, settings, strict=True)]
        repeats = [one.sweep.repeat for one in named if one.sweep is not None and one.sweep.repeat]
        title = f"{len(runs)} runs" if len(runs) != 1 else runs[0].name
        titled = Comparison(rows=(), title=title, repeat=max(repeats, default=None))
        runs = _called_apart(runs)
    found = compare_runs(runs, titled)
    if output is not None:
        check_overwritten(output, "choose another folder with --output")
        files.make_folder(output)
        files.write_together(output, render_comparison(found))
    return found


def _sweep_in(path: Path) -> Comparison | None:
    """Return the sweep that a folder holds; None where it holds none."""
    value = files.read_mapping(path / COMPARE_NAME) if path.is_dir() else {}
    if not value.get("sweep"):
        return None
    try:
        return from_plain(Comparison, value)
    except ContractError as error:
        raise InputError(
            f"is not a comparison of shrink: {error}", subject=path / COMPARE_NAME
        ) from None


def _runs(named: _Named, output: Path | None) -> Iterator[RunToCompare]:
    if named.sweep is None:
        report = read_report(named.path)
        folder = named.path if named.path.is_dir() else named.path.parent
        name = folder.resolve().name or str(folder)
        yield RunToCompare(name, _place(folder, output), folder, report, {})
        return
    seen: set[str] = set()
    for row in named.sweep.rows:
        if row.run not in seen:
            seen.add(row.run)
            yield _run_of_sweep(row, named.path / row.run, named.prefix, output)


def _run_of_sweep(row: ComparedRow, folder: Path, prefix: str, output: Path | None) -> RunToCompare:
    name = in_words(row.settings) or row.name
    report = read_report(folder) if (folder / REPORT_NAME).is_file() else None
    return RunToCompare(
        name=prefix + name,
        place=_place(folder, output),
        folder=folder,
        report=report,
        settings=row.settings,
        combination=None if row.combination is None else prefix + row.combination,
        error=None if report is not None else row.error,
    )


def _place(folder: Path, output: Path | None) -> str:
    return str(folder) if output is None else os.path.relpath(folder, output)


def _called_apart(runs: Sequence[RunToCompare]) -> list[RunToCompare]:
    """Return the runs with the folders above in the names of those that are called alike."""
    counts = Counter(run.name for run in runs)
    return [
        replace(run, name=os.path.relpath(run.folder.resolve())) if counts[run.name] > 1 else run
        for run in runs
    ]


def _check_output(output: Path | None, named: Sequence[_Named]) -> None:
    if output is None or (there := _sweep_in(output)) is None:
        return
    if len(named) == 1 and named[0].path.resolve() == output.resolve():
        return
    is_search = there.split == "validation"
    folders = [Path(os.path.normpath(row.run)).parent for row in there.rows]
    if folders and not is_search and Path() not in folders:
        return  # a page about a sweep elsewhere
    raise RecipeError(
        f"the folder holds the runs of the sweep {there.title!r}; its compare.json lists them",
        subject=output,
        hint="choose another folder with --output",
    )
