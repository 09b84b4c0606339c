"""Options and results of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from shrink.base.errors import ShrinkError
from shrink.contract.job import MeasuredOn
from shrink.contract.report import Report
from shrink.contract.result import Scores


@dataclass(frozen=True)
class RunOptions:
    """How to run a plan.

    Attributes:
        output: the run folder, or one `.tflite` file for the artifact alone.
        force: overwrite the folder of another recipe's run.
        use_store: take finished steps from the store.
        first: compute this step and all after it anew.
        last: stop after this step.
        trust_model: load the model files whatever they hold.
        failure_logs: where the log of a stage that fails goes; by default into the run folder, as
            those of all stages do.
        since: a time of ISO 8601 in UTC; what was computed since then is taken from the store even
            where `use_store` or `first` ask for it anew: by another run of the same sweep.
        measured_on: the examples that metrics are of. What a run measures on validation examples
            is kept apart from other measurements of an artifact.
        timed: whether such a run measures latency, too.
    """

    output: Path
    force: bool = False
    use_store: bool = True
    first: str | None = None
    last: str | None = None
    trust_model: bool = False
    failure_logs: Path | None = None
    since: str | None = None
    measured_on: MeasuredOn = "test"
    timed: bool = False


@dataclass
class RunResult:
    """The report of a run, the folder that it is in, and the exit code that goes with it.

    Attributes:
        scores: of the examples that each stage was measured on, by its name.
    """

    report: Report
    folder: Path
    exit_code: int
    error: ShrinkError | None = None
    scores: Mapping[str, Scores] = field(default_factory=dict)
