"""The schema of compare.json: several runs side by side, and their Pareto fronts.

`shrink compare` writes it, and a sweep, whose list of runs it is at the same time.
"""

from collections.abc import Mapping
from typing import Literal

from shrink.contract.codec import left_out
from shrink.contract.details import Deltas, Limits, MetricDelta
from shrink.contract.record import record
from shrink.contract.report import Failure

COMPARE_NAME = "compare.json"
COMPARE_VERSION = 1
RowStatus = Literal["passed", "missed", "finished", "failed", "stopped", "not run"]


@record
class ComparedSlice:
    """A slice of the test examples of a row; see `Slice` of a report.

    Attributes:
        by: `class`, or a name of `data.slices`.
        name: of the slice.
        metric: that the value and the difference are of.
        examples: how many.
        delta: to the same slice of the run's own baseline.
        verdict: of the difference, judged together with all slices of the stage.
    """

    by: str
    name: str
    metric: str
    examples: int
    value: float | None = None
    delta: MetricDelta | None = None
    verdict: Literal["better", "worse", "no proven difference"] | None = None


@record
class ComparedRow:
    """A branch of a run: its last stage.

    Attributes:
        name: tells it from the other rows.
        run: the run folder, relative to compare.json where it lies below it.
        stage: the last stage of the branch; None for a run without a report.
        recipe: the recipe's name.
        settings: what was set of a sweep, as it was written; else the keys of the recipes that
            differ.
        combination: the row in `repeats` that this run is one seed of.
        status: `missed` is a missed gate or limit, `failed` a stage that failed.
        gates_missed: names of the gates, and of the limits of a search.
        error: why the run failed.
        baseline: the stage that `delta` compares with.
        tested_on: a hash of the test examples; rows with another one were tested on others.
        examples: how many there were.
        figures: what was measured, by name.
        intervals: 95 %, of each metric on other examples.
        delta: differences to the run's own baseline.
        artifact: path relative to the run folder.
        slices: of the test examples, where the report has them.
    """

    name: str
    run: str
    stage: str | None = None
    recipe: str | None = None
    settings: Mapping[str, str]
    combination: str | None = None
    status: RowStatus
    gates_missed: tuple[str, ...] = ()
    error: Failure | None = left_out(None)
    baseline: str | None = None
    tested_on: str | None = None
    examples: int | None = None
    figures: Mapping[str, float]
    intervals: Mapping[str, Limits]
    delta: Deltas
    artifact: str | None = None
    slices: tuple[ComparedSlice, ...] = left_out(())


@record
class Spread:
    """A figure over the seeds of one combination.

    Attributes:
        runs: how many have the figure.
        deviation: the standard deviation of a sample; None for one run.
        low, high: the 95 % interval of the mean by Student's t over the runs; None for one run,
            and where all are equal.
    """

    runs: int
    mean: float
    deviation: float | None = None
    low: float | None = None
    high: float | None = None


@record
class RepeatedRow:
    """A combination that was run with several seeds.

    Attributes:
        name: tells it from the others.
        stage: the last stage of the branch.
        settings: without the seed, as they were written.
        rows: names of its rows.
        figures: over the runs that have them.
        delta: of the differences to each run's own baseline.
    """

    name: str
    stage: str | None
    settings: Mapping[str, str]
    rows: tuple[str, ...]
    figures: Mapping[str, Spread]
    delta: Mapping[str, Spread]


@record
class Front:
    """The Pareto front of two figures: what nothing beats in one without losing in the other.

    Attributes:
        x, y: names of the figures.
        rows: names of the rows, or of the combinations where there are any, from the best `x`.
    """

    x: str
    y: str
    rows: tuple[str, ...]


@record
class Comparison:
    """Runs side by side.

    Attributes:
        title: what is compared.
        sweep: whether it is a sweep's; its runs are then those of its last start.
        repeat: seeds of each combination, where a sweep asks for it.
        jobs: how many runs went at a time.
        metric: the metric that is shown first.
        rows: a row for each branch of each run, in the order of the runs.
        repeats: a row for each combination and branch, where `repeat` is.
        fronts: of the metric against each cost, where all rows were tested on the same examples;
            trials that break a limit are on none.
        warnings: what keeps rows from being compared.
        split: that metrics were measured on.
        headline: the answer, in sentences, where the runs were to find one.
        best: the name of the row that was chosen, if one was.
        best_run: the run folder that measures it on the test split.
    """

    schema_version: int = COMPARE_VERSION
    title: str
    sweep: bool = False
    repeat: int | None = None
    jobs: int = 1
    metric: str | None = None
    rows: tuple[ComparedRow, ...]
    repeats: tuple[RepeatedRow, ...] = ()
    fronts: tuple[Front, ...] = ()
    warnings: tuple[str, ...] = ()
    split: Literal["test", "validation"] = left_out("test")
    headline: tuple[str, ...] = left_out(())
    best: str | None = left_out(None)
    best_run: str | None = left_out(None)
