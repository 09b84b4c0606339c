"""The schema of search.json: every trial of a search, the Pareto front, and the best trial."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from shrink.base.foreign import Json
from shrink.contract.codec import left_out
from shrink.contract.record import record
from shrink.contract.report import Figures

SEARCH_NAME = "search.json"
SEARCH_VERSION = 1
TrialStatus = Literal["done", "infeasible", "failed", "stopped"]


@record
class Trial:
    """One setting of the search space, and what became of it.

    Attributes:
        number: unique within the search.
        settings: keys of the recipe with their values; `chain` names the chain of stages.
        figures: by the names of report.json, metrics on the validation split; of a trial that was
            not trained, the sizes that are known without training.
        feasible: whether it was trained and keeps every limit.
        status: `done` was trained and measured; `infeasible` was not trained, because its size
            alone breaks a limit; `stopped` was interrupted, and a later trial has its settings.
        broken: the limits and gates that it breaks.
        drop_bound: upper confidence bound of what the main metric lost, where a drop is limited.
        duration_s: of the trial.
        run: its run folder, relative to the search's; None where it was not run.
        error: why it failed.
    """

    number: int
    settings: Mapping[str, Json]
    figures: Figures
    feasible: bool
    status: TrialStatus
    broken: tuple[str, ...] = ()
    drop_bound: float | None = left_out(None)
    duration_s: float | None = None
    run: str | None = None
    error: str | None = left_out(None)


@record
class Best:
    """The trial that was chosen.

    Attributes:
        number: of the trial.
        recipe: the recipe that reproduces it, relative to the search's folder.
        artifact: its file, likewise.
        figures: by the names of report.json, metrics on the test split.
        baseline: the baseline's, likewise.
        drop: what the main metric lost against the baseline on the test split.
    """

    number: int
    recipe: str
    artifact: str
    figures: Figures
    baseline: Figures
    drop: float | None = None


@record
class Searched:
    """A search.

    Attributes:
        name: of the recipe.
        metric: the main one.
        objectives: figures to optimise; the first decides, or all where there are several.
        limits: by figure, of the search and of the recipe's gates; `max_drop` of the main metric.
        chosen_on: the split that trials are measured on.
        baseline: its figures on that split.
        trials: in the order of their numbers.
        front: numbers of the feasible trials on the Pareto front of the objectives, or of metric
            and file size, the smallest file first.
        best: None where no trial is feasible.
        time_s: what this search took.
    """

    schema_version: int = SEARCH_VERSION
    name: str
    metric: str
    objectives: tuple[str, ...]
    limits: Mapping[str, float]
    chosen_on: Literal["validation"] = "validation"
    baseline: Figures
    trials: tuple[Trial, ...]
    front: tuple[int, ...]
    best: Best | None
    time_s: float
    warnings: tuple[str, ...] = ()
