"""What search.json says: what was tried, what nothing beats, and what is best."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from shrink.base.foreign import Json
from shrink.contract.codec import left_out
from shrink.contract.record import record
from shrink.contract.report import Figures

SEARCH_NAME = "search.json"
SCHEMA_VERSION = 1
TrialStatus = Literal["done", "infeasible", "failed", "duplicate", "pruned", "stopped", "halted"]


@record
class Rung:
    """A training of a point that was shorter than its recipe's.

    Attributes:
        share: of the epochs and calibration examples.
        figures: there, metrics of validation examples; no other figure is compared with them;
            none where it failed.
        duration_s: that it took.
        run: its folder, relative to the search's.
    """

    share: float
    figures: Figures
    duration_s: float
    run: str


@record
class Trial:
    """A point of the search.

    Attributes:
        number: counts from 0 over all workers.
        settings: keys of the recipe with their values; `chain` names the stages.
        figures: by report.json's names, metrics of validation examples; of a point that was not
            trained, what is known without.
        feasible: whether every limit holds.
        status: `infeasible` was not trained, as its size or arena alone breaks a limit; nor was
            `pruned`, as it could not be better than the best, nor `duplicate`, the recipe of an
            earlier point; `stopped` was left to whoever asks next, under another number; `halted`
            was trained for a part of its epochs, where others did better.
        broken: the limits that do not hold.
        duration_s: that it took.
        run: its folder, relative to the search's; None where it was not run.
        error: why it failed.
        rungs: its shorter trainings, the shortest first.
    """

    number: int
    settings: Mapping[str, Json]
    figures: Figures
    feasible: bool
    status: TrialStatus
    broken: tuple[str, ...] = ()
    duration_s: float | None = None
    run: str | None = None
    error: str | None = left_out(None)
    rungs: tuple[Rung, ...] = left_out(())


@record
class Luck:
    """How much of the best point's metric is chance: winner's optimism by bootstrap.

    Attributes:
        metric: that it is of.
        optimism: what the choice among the trials adds on validation examples, on average.
        resamples: of the validation examples, on each of which the choice was made again.
        chosen_again: share of the resamples on which the same point is chosen.
        trials: among which was chosen.
    """

    metric: str
    optimism: float
    resamples: int
    chosen_again: float
    trials: int


@record
class Best:
    """The point that was chosen.

    Attributes:
        number: of the trial.
        recipe: the recipe that reproduces it, relative to the search's folder.
        artifact: the file, likewise.
        figures: by report.json's names, metrics of the test split.
        baseline: the same of the baseline.
        drop: what the main metric lost against the baseline, on the test split.
        luck: None where it cannot be told.
    """

    number: int
    recipe: str
    artifact: str
    figures: Figures
    baseline: Figures
    drop: float | None = None
    luck: Luck | None = None


@record
class Searched:
    """A search.

    Attributes:
        name: of the recipe.
        metric: the main one.
        objectives: figures to be good at, the first decides.
        limits: by figure; `max_drop` of the metric.
        chosen_on: the split that trials are measured on.
        baseline: its figures on that split.
        trials: in the order of their numbers.
        front: numbers of feasible trials that no other beats in one objective, or in the metric and
            the size of the file, without losing in the other.
        best: None where no point is feasible.
        time_s: that all of it took in this process.
    """

    schema_version: int = SCHEMA_VERSION
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
