"""The result of a step, as a worker returns it, the cache keeps it and the report reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from shrink.base.bootstrap import Resampled
from shrink.base.errors import ReportWarning
from shrink.base.foreign import Json, JsonObject
from shrink.base.measurement import Note
from shrink.contract.codec import from_plain, left_out, to_plain
from shrink.contract.codec import left_out as no_key
from shrink.contract.details import Details, Training
from shrink.contract.record import record
from shrink.contract.report import Failure, Figures, Guess, HasFigures, MeasuredAt, Skipped, Status
from shrink.contract.slices import MeasuredSlicing

Evidence: TypeAlias = Sequence[float] | Resampled
"""What intervals of a metric are computed from: one score per test example, of which it is the
mean, or its values on resamples of the examples."""
Scores: TypeAlias = Mapping[str, Evidence]
"""The evidence by metric."""


def scores_from_plain(plain: Mapping[str, Json]) -> dict[str, Evidence]:
    """Return the scores that a step left in its file.

    Raises:
        ContractError: they are something else.
    """
    return {
        name: from_plain(Resampled, one) if isinstance(one, Mapping) else one
        for name, one in plain.items()
    }


def scores_to_plain(scores: Scores) -> dict[str, Json]:
    """Return scores as `scores_from_plain` takes them."""
    return {
        name: to_plain(one) if isinstance(one, Resampled) else list(one)
        for name, one in scores.items()
    }


@record
class StoredFile:
    """A file by its content; `size` in bytes."""

    sha256: str
    size: int
    suffix: str

    @property
    def name(self) -> str:
        """What it is called beside the manifest."""
        return f"{self.sha256}{self.suffix}"


@record
class StepManifest:
    """A finished step.

    Attributes:
        version: of this layout.
        key: of the step.
        files: by role.
        result: what came of it.
        digest: SHA-256 of all other fields.
    """

    version: int
    key: str
    files: Mapping[str, StoredFile]
    result: StepResult
    digest: str = left_out("")


@record
class Measurement:
    """What was said of the figures alone, not of how the artifact was made."""

    notes: tuple[Note, ...] = ()
    warnings: tuple[ReportWarning, ...] = ()


@record
class SharedExamples:
    """Examples of one split that are also in another, by their inputs as they are stored.

    Attributes:
        split: whose examples they are.
        other: where they are too.
        count: how many of the split.
        total: examples of the split.
        example: the first of them, and the one of the other split that it equals.
    """

    split: str
    other: str
    count: int
    total: int
    example: str


@record
class HeldOut:
    """What is known of the test examples; nothing where there is no data.

    Attributes:
        test_given: whether the data has a test split of its own.
        test: how many test examples there are.
        test_examples: hash of their inputs and labels, whatever their order.
        left_out: how many were left out of each split, for an earlier run trained on them.
        comparable: whether they could be compared with those of earlier runs.
        trained_on: how many examples earlier runs trained on.
        shared: examples that splits of the data have in common.
        shared_left_out: whether these were left out of validation and test.
    """

    test_given: bool | None = no_key(None)
    test: int | None = no_key(None)
    test_examples: str | None = no_key(None)
    left_out: Mapping[str, int] | None = no_key(None)
    comparable: bool | None = no_key(None)
    trained_on: int | None = no_key(None)
    shared: tuple[SharedExamples, ...] = no_key(())
    shared_left_out: bool = no_key(False)


@record
class Counts:
    """How many examples each split has, and the names of classes by index."""

    examples: Mapping[str, int] | None = None
    classes: tuple[str, ...] | None = None


@record
class StepResult(HasFigures):
    """What came of a step.

    Attributes:
        size, memory, latency: by the names of `shrink.base.figures`; latency has `threads` and
            `examples` too.
        metrics: by name; none without examples.
        slices: what slices of the examples score.
        examples: that the metrics are of; None without data.
        guess: what guessing would score; None of stages that none is compared with.
        training: None where nothing was trained.
        skipped: layers left alone, each with the reason.
        notes: why a figure is None, how it was measured, what happened.
        measurement: what of the notes and warnings is of the measuring.
        details: what each kind of stage tells, with the task.
        devices: that it was computed on.
        stage_s: seconds that the stage itself took, without the measurements.
        duration_s: seconds from the start of the worker to its end; None while it is at work.
    """

    size: Figures = field(default_factory=dict)
    memory: Figures = field(default_factory=dict)
    metrics: Figures = field(default_factory=dict)
    slices: tuple[MeasuredSlicing, ...] = no_key(())
    examples: int | None = None
    latency: Figures = field(default_factory=dict)
    guess: Guess | None = None
    training: Training | None = None
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[Note, ...] = ()
    warnings: tuple[ReportWarning, ...] = ()
    measurement: Measurement | None = no_key(None)
    details: Details | None = None
    splits: HeldOut = HeldOut()
    measured: MeasuredAt | None = None
    stage_s: float = 0.0
    devices: tuple[str, ...] = ()
    data: Counts = Counts()
    duration_s: float | None = None


@record
class StepDone:
    """What the worker of a step sends: the result, and by role the files in its folder."""

    result: StepResult
    files: Mapping[str, str]


TaskKind = Literal[
    "classes", "clips", "texts", "sequences", "masks", "labels", "values", "forecast",
    "reconstruction", "several", "boxes",
]  # fmt: skip
"""What a model is for: a class for each example, clip, text, step or pixel; several labels;
numbers, or those to come; its own input; several outputs; or boxes."""


@record
class FirstLook:
    """What a first recipe is written from.

    Attributes:
        parameters, groups: of the model; groups of channels that can be pruned, 0 for an artifact.
        float_bytes: the size as float32 .tflite.
        scheme: `static_wi8_ai8` where the model takes it.
        quantized_bytes, quantized_arena_bytes: what the scheme really gives.
        metric, loss: that the data asks for.
        classes: 0 where targets are real.
        kind: of the task.
        metrics: that a first recipe states, the main one first; empty where they are those of the
            loss, or stated already.
        class_names: by label; empty where there are none.
        clip_seconds: of audio, the length of an example; 0 of other data.
        decode: of a detector, the proposed `task.decode`; None for other tasks, and where stated.
        train, validation, test: examples of each split.
    """

    parameters: int
    groups: int
    float_bytes: int
    scheme: str
    quantized_bytes: int
    quantized_arena_bytes: int | None
    metric: str
    loss: str
    classes: int
    train: int
    validation: int
    test: int
    kind: TaskKind = "classes"
    metrics: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ()
    clip_seconds: float = 0.0
    decode: JsonObject | None = None


@dataclass(frozen=True)
class StageOutcome:
    """How one stage ended, and what its worker measured.

    Args:
        name: the stage's name in the run.
        kind: baseline, train, distill, prune, ...
        status: cached figures were measured by an earlier run; skipped stages never started.
        duration_s: seconds that the stage took when it was computed.
        artifact: path relative to the run folder.
        sha256: hash of the artifact.
        previous: the stage whose artifact this one started from.
        result: the worker's.
        scores: what intervals are computed from, by metric.
        error: of a failed stage.
    """

    name: str
    kind: str
    status: Status
    duration_s: float | None = None
    artifact: str | None = None
    sha256: str | None = None
    previous: str | None = None
    result: StepResult = field(default_factory=StepResult)
    scores: Scores = field(default_factory=dict)
    error: Failure | None = None

    @property
    def complete(self) -> bool:
        """Whether there are figures, new or cached."""
        return self.status in ("done", "cached")
