"""The schema of report.json: a run, its stages, and their figures.

Keys that a later version wrote are left out where a report is read.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from shrink.base.errors import ReportWarning
from shrink.base.figures import figure_of
from shrink.base.measurement import Note
from shrink.contract.codec import left_out
from shrink.contract.details import Deltas, Details, FigureDelta, Limits, Training
from shrink.contract.record import record
from shrink.contract.slices import Slicing

SCHEMA_VERSION = 1
Figures = Mapping[str, float | None]
Status = Literal["done", "cached", "failed", "skipped"]
Ending = Literal["passed", "failed", "finished", "interrupted"]


class HasFigures:
    """What has figures, in four groups; a group is None where nothing was measured."""

    size: Figures | None
    memory: Figures | None
    metrics: Figures | None
    latency: Figures | None

    def figure(self, name: str) -> float | None:
        """Return a figure or a metric by its name; None where it is null or not there."""
        groups = {"size": self.size, "memory": self.memory, "latency": self.latency}
        return (groups.get(figure_of(name).group, self.metrics) or {}).get(name)


@record
class RecipeName:
    """The recipe that was run.

    Attributes:
        name: its name.
        sha256: hash of the resolved recipe.
    """

    name: str = ""
    sha256: str | None = None


@record
class Environment:
    """Versions and devices that a report was made with.

    Attributes:
        packages: versions of what computes, by name.
    """

    shrink: str | None = None
    tensorflow: str | None = None
    devices: tuple[str, ...] = ()
    python: str | None = None
    system: str | None = None
    machine: str | None = None
    packages: Mapping[str, str | None] | None = None


@record
class DataSet:
    """The data set.

    Attributes:
        path: the last name of its path.
        fingerprint: of what the source holds.
        examples: how many each split has.
        classes: names by index; None where targets are real.
        test_examples: hash of which examples were tested on: data and division.
    """

    source: str | None = None
    path: str | None = None
    fingerprint: str | None = None
    examples: Mapping[str, int | None] | None = None
    classes: tuple[str, ...] | None = None
    test_examples: str | None = left_out(None)


@record
class Checkout:
    """The repository that holds the recipe; its commit is None without one."""

    commit: str | None = None


@record
class Origin(HasFigures):
    """The first baseline of a line of runs, with its figures in a stage's groups."""

    run: str | None = None
    stage: str | None = None
    size: Figures | None = None
    memory: Figures | None = None
    metrics: Figures | None = None
    latency: Figures | None = None
    examples: int | None = None


@record
class ReportedChain:
    """What a run goes on from.

    Attributes:
        same_examples: whether it was measured on the test examples of this run.
    """

    origin: Origin
    same_examples: bool


@record
class MeasuredAt:
    """When and where figures were measured: `at` is a time of ISO 8601."""

    at: str | None = None
    machine: str | None = None


@record
class Guess:
    """What guessing would score, and what is likely wrong where a model does no better.

    Attributes:
        metric: the first metric that a constant answer can be scored by, else the main metric.
        value: what the best constant answer scores on the test examples.
        classes: at most twenty names in the order of the labels.
        num_classes: how many there are.
        low, high: of the first input over some test examples, before any layer.
        rescales: whether a layer of the model scales its inputs.
        only_in_test, only_in_train: names of classes.
    """

    metric: str | None = None
    value: float | None = None
    classes: tuple[str, ...] = ()
    num_classes: int | None = None
    low: float | None = None
    high: float | None = None
    rescales: bool | None = None
    only_in_test: tuple[str, ...] = ()
    only_in_train: tuple[str, ...] = ()


@record
class Skipped:
    """A layer that was left alone, and why."""

    layer: str = "?"
    reason: str = ""


@record
class Failure:
    """Why a stage failed: `ShrinkError.to_dict()`."""

    type: str | None = None
    exit_code: int | None = None
    message: str | None = None
    position: Mapping[str, object] | None = None
    subject: str | None = None
    hint: str | None = None


_NOTHING_MORE = Details()


@record
class Stage(HasFigures):
    """One stage: a failed or skipped one has null groups and empty differences.

    Attributes:
        kind: baseline, train, distill, prune, ...
        status: cached figures were measured by an earlier run; skipped stages never started.
        duration_s: seconds that the stage took when it was computed.
        artifact: path relative to the run folder.
        intervals: of each metric.
        slices: what slices of the test examples score: by class, and by each of `data.slices`.
        examples: test examples that the metrics are of.
        delta, delta_previous, delta_origin: differences to the baseline, to the stage that this
            one started from, and to the first baseline of a line of runs.
        latency: `p50_ms`, `p90_ms`, `threads` and the number of `examples` it was timed on.
        notes: why a figure is null, how it was measured, what happened.
    """

    name: str
    kind: str
    status: Status
    duration_s: float | None
    measured: MeasuredAt | None
    artifact: str | None
    sha256: str | None
    size: Figures | None
    memory: Figures | None
    metrics: Figures | None
    intervals: Mapping[str, Limits] = field(default_factory=dict)
    examples: int | None
    guess: Guess | None = None
    delta: Deltas
    delta_previous: Deltas
    training: Training | None
    latency: Figures | None
    skipped: tuple[Skipped, ...]
    notes: tuple[Note, ...]
    details: Details | None = None
    error: Failure | None = left_out(None)
    delta_origin: Deltas | None = left_out(None)
    slices: tuple[Slicing, ...] = left_out(())

    @property
    def extra(self) -> Details:
        """The details, empty ones where there are none."""
        return self.details or _NOTHING_MORE

    def reason(self, name: str) -> Note | None:
        """Return the note that says why a figure is null, or how it was measured."""
        return next((note for note in self.notes if name in note.figures), None)

    def ratio(self, name: str) -> float | None:
        """Return a figure's ratio to the baseline's; None where there is none."""
        delta = self.delta.get(name)
        return delta.ratio if isinstance(delta, FigureDelta) else None


@record
class GateResult:
    """What became of a gate on one stage.

    Attributes:
        value: of the figure, or its share of the baseline's, or how much worse it is than saved.
        stage: None for a figure of the whole run.
        reason: where a value alone does not explain the outcome.
        confidence, low, high: where an interval decided.
        relative_to, current, reference: of a share, the baseline and both figures.
        against, current, saved: of a comparison with a saved report, its name and both figures.
        judged: false where nothing was decided.
        by, slice, metric: of the worst slice, what divides the examples, its name, and the metric.
    """

    name: str
    limit: float
    value: float | None
    passed: bool
    stage: str | None = None
    level: Literal["fail", "warn"] = "fail"
    reason: Note | None = left_out(None)
    confidence: float | None = left_out(None)
    low: float | None = left_out(None)
    high: float | None = left_out(None)
    relative_to: str | None = left_out(None)
    against: str | None = left_out(None)
    current: float | None = left_out(None)
    reference: float | None = left_out(None)
    saved: float | None = left_out(None)
    judged: bool = left_out(True)
    by: str | None = left_out(None)
    slice: str | None = left_out(None)
    metric: str | None = left_out(None)


@record
class Report:
    """A run.

    Attributes:
        passed: whether no stage failed and no gate was missed; true without gates.
        resolved_recipe: as YAML.
        command: the command line that ran it.
        trust_model: whether model files were loaded whatever they hold.
        baseline: the stage that all others are compared with.
        finals: names of the last stage of each branch.
        outcome: how the run ended.
    """

    schema_version: int = SCHEMA_VERSION
    passed: bool
    recipe: RecipeName
    resolved_recipe: str | None = None
    command: str | None = None
    trust_model: bool = False
    baseline: str
    chain: ReportedChain | None = None
    finals: tuple[str, ...] = ()
    data: DataSet | None = None
    source: Checkout | None = None
    environment: Environment
    stages: tuple[Stage, ...]
    gates: tuple[GateResult, ...]
    warnings: tuple[ReportWarning, ...] = ()
    outcome: Ending | None = None

    def stage(self, name: str | None) -> Stage | None:
        """Return the stage of this name, if it is there."""
        return next((stage for stage in self.stages if stage.name == name), None)

    @property
    def ends(self) -> list[Stage]:
        """The last stage of each branch; the last of all in a report that names none."""
        names = self.finals or [stage.name for stage in self.stages[-1:]]
        return [stage for name in names if (stage := self.stage(name)) is not None]
