"""What a worker gives back of a step, as the store keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from shrink.base.report_warning import ReportWarning
from shrink.contract.codec import left_out as no_key
from shrink.contract.record import record
from shrink.contract.report import MeasuredAt


@record
class Size:
    """The sizes of an artifact; `shrink.measure.size.measure_sizes` tells what each is."""

    file_bytes: int | None = None
    gzip_bytes: int | None = None
    tflite_bytes: int | None = None
    parameters: int | None = None
    nonzero_parameters: int | None = None
    macs: int | None = None


@record
class Memory:
    """Peaks in bytes: of inference, of the arena of a microcontroller, of training."""

    inference_peak_bytes: int | None = None
    arena_bytes: int | None = None
    arena_estimate_bytes: int | None = None
    training_peak_predicted_bytes: int | None = None
    training_peak_bytes: int | None = None
    training_peak_small_bytes: int | None = None
    training_host_peak_bytes: int | None = None


@record
class Latency:
    """Median and 90th percentile of one inference, and on how many examples it was timed."""

    p50_ms: float | None = None
    p90_ms: float | None = None
    threads: int | None = None
    examples: int | None = None


@record
class Measurement:
    """What was said of the figures alone, not of how the artifact was made."""

    notes: tuple[str, ...] = ()
    warnings: tuple[ReportWarning, ...] = ()


@record
class HeldOut:
    """What is known of the test examples; nothing where there is no data.

    Attributes:
        test_given: whether the data has a test split of its own.
        test: how many test examples there are.
        left_out: how many were left out of each split, for an earlier run trained on them.
        comparable: whether they could be compared with those of earlier runs.
        trained_on: how many examples earlier runs trained on.
    """

    test_given: bool | None = no_key(None)
    test: int | None = no_key(None)
    left_out: Mapping[str, int] | None = no_key(None)
    comparable: bool | None = no_key(None)
    trained_on: int | None = no_key(None)


@record
class Timing:
    """Seconds that the stage itself and the measuring took."""

    stage_s: float = 0.0
    measure_s: float = 0.0


@record
class Counts:
    """How many examples each split has, and the names of classes by index."""

    examples: Mapping[str, int] | None = None
    classes: tuple[str, ...] | None = None


@record
class StepResult:
    """What came of a step.

    Attributes:
        metrics: by name; none without examples.
        examples: that the metrics are of; None without data.
        guess: what guessing would score, from `shrink.task.artifact`.
        training: from `TrainingRecord.to_dict`; None where nothing was trained.
        skipped: layers left alone, each with the reason.
        notes: why a figure is None, how it was measured, what happened.
        measurement: what of the notes and warnings is of the measuring.
        details: what each kind of stage tells, with the task.
        devices: that it was computed on.
        duration_s: seconds from the start of the worker to its end; None while it is at work.
    """

    size: Size = Size()
    memory: Memory = Memory()
    metrics: Mapping[str, float] = field(default_factory=dict)
    examples: int | None = None
    latency: Latency = Latency()
    guess: Mapping[str, Any] | None = None
    training: Mapping[str, Any] | None = None
    skipped: tuple[Mapping[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[ReportWarning, ...] = ()
    measurement: Measurement | None = no_key(None)
    details: Mapping[str, Any] = field(default_factory=dict)
    splits: HeldOut = HeldOut()
    measured: MeasuredAt | None = None
    timing: Timing = Timing()
    devices: tuple[str, ...] = ()
    data: Counts = Counts()
    duration_s: float | None = None


@record
class StepDone:
    """What the worker of a step sends: the result, and by role the files in its folder."""

    result: StepResult
    files: Mapping[str, str]
