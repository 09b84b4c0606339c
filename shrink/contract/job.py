"""Jobs of workers: a type for each action, written to the job file as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from shrink.base.foreign import Json
from shrink.contract.details import Usage
from shrink.contract.events import OutOfMemoryEvent
from shrink.contract.model_source import ModelSource
from shrink.contract.record import record

Section = Mapping[str, Json]
"""A section of a recipe as plain data, for the class in the room above that knows its keys."""


@dataclass(frozen=True)
class Place:
    """A place among workers that train together; 0 is the chief."""

    workers: int
    index: int


@record
class Job:
    """What every job has.

    Attributes:
        action: what to do, a key of the worker's registry.
        name: what it is about, for messages.
        work: the worker's folder; known once it is started, as is the heartbeat.
        heartbeat: descriptor of the memory in which the worker shows how it is.
        place: among workers that train together; None for one alone.
    """

    action: str
    name: str
    work: Path = Path()
    heartbeat: int | None = None
    place: Place | None = None


@dataclass(frozen=True)
class MicroBatchPlan:
    """What the planner chose.

    Attributes:
        micro_batch_size: examples per forward pass and replica.
        predicted_bytes: the peak to expect, from probes of at most half that size; None where
            there are none, at a micro-batch of 1.
        verified_bytes: the peak of real steps at that size; None where there were none.
    """

    micro_batch_size: int
    predicted_bytes: int | None
    verified_bytes: int | None


@dataclass(frozen=True)
class Planning:
    """What to train a step with, or why that was not planned."""

    plan: MicroBatchPlan | None = None
    unplanned: str | None = None


@dataclass(frozen=True)
class Attempts:
    """What is known of the attempts before this one.

    Attributes:
        micro_batch_size: the largest that may be tried, if a larger one was too large.
        events: why.
    """

    micro_batch_size: int | None = None
    events: tuple[OutOfMemoryEvent, ...] = ()


@dataclass(frozen=True)
class Demand:
    """What a stage needs of the examples, and of the model that the worker starts from.

    Attributes:
        stage: its name.
        classes: whether it measures how many examples are classified rightly.
        class_weights: that its training is given.
        student: how the model is scaled to be its student; empty where it is not.
        blocks: how many blocks it removes from the model.
        exclude: shell patterns of layers that these blocks must not have.
        micro: whether TFLite Micro has to run what the model becomes.
        records: of the artifacts of other runs that it starts from or learns from, by role.
    """

    stage: str
    classes: bool
    class_weights: Literal["balanced"] | dict[str, float] | None
    student: Mapping[str, float] = field(default_factory=dict)
    blocks: int = 0
    exclude: tuple[str, ...] = ()
    records: Mapping[str, Usage] = field(default_factory=dict)
    micro: bool = False


MeasuredOn = Literal["test", "validation", "nothing"]
"""The examples that an artifact is measured on: a search looks at no test example."""


@dataclass(frozen=True)
class Made:
    """An artifact that an earlier worker made, with what it said of it as plain data."""

    artifact: Path
    result: Section


@record
class StepJob(Job):
    """One step of a plan: to be made, followed beside a chief, planned, or measured again.

    Attributes:
        kind: of the stage, or `baseline`.
        config: the stage's own section; None for a baseline.
        epochs: passes over the training examples; 0 where nothing is trained.
        training: the `training` section with all defaults, as far as the step reads it.
        inputs: models by role; `model` is what the step starts from.
        preserves: what this stage must preserve of earlier ones.
        data: the `data` section.
        task: the `task` section.
        split_seed: of the splits, the same for all steps.
        earlier_splits: files that say what earlier runs trained on.
        usage: of the recipe's model, where its run wrote a record.
        task_model: the recipe's model file, whose own loss is taken where the recipe has none.
        checkpoints: the folder for them; None for none.
        teachers: the folder of cached teacher outputs; None for one that goes with the job.
        sensitivities: the folder of what pruning groups costs; None likewise.
        planning: the micro-batch to train with.
        attempts: what came before.
        demands: of this step and the later ones, for the first worker to look at.
        gated: names of gates on metrics, where the recipe does not say what is measured.
        measured_on: the examples that metrics are of; on validation examples no more is measured
            than a choice needs, and on nothing not even that.
        timed: whether latency is measured on validation examples, too.
        made: what `measure` measures.
    """

    action: Literal["step", "follow", "probe", "measure"] = "step"
    kind: str
    config: Section | None = None
    epochs: int = 0
    training: Section
    inputs: Mapping[str, ModelSource]
    preserves: tuple[str, ...] = ()
    data: Section
    task: Section
    split_seed: int
    earlier_splits: tuple[Path, ...] = ()
    task_model: Path | None = None
    usage: Usage | None = None
    checkpoints: Path | None = None
    teachers: Path | None = None
    sensitivities: Path | None = None
    planning: Planning = Planning()
    attempts: Attempts = Attempts()
    demands: tuple[Demand, ...] = ()
    gated: tuple[str, ...] = ()
    measured_on: MeasuredOn = "test"
    timed: bool = False
    made: Made | None = None

    @property
    def trains(self) -> bool:
        """Whether a model is trained, by this worker for itself or as the chief of others."""
        return self.action == "step" and self.epochs > 0


OF_STEP = "step"
"""The function of an input of an `OutlineJob` that an earlier step of its chain makes."""


@record
class OutlineJob(Job):
    """Find the sizes of a model before it is trained: see `shrink.run.outline`.

    Attributes:
        steps: that lead to the model.
    """

    action: Literal["outline"] = "outline"
    steps: tuple[StepJob, ...]


@record
class Outline:
    """What is known of a chain of stages without training.

    Attributes:
        figures: sizes, MACs and arena, by the report's names; empty with an error.
        error: what a stage raised.
        stage_failed: whether a trained model would fail alike.
        exact: whether training makes none of the figures smaller.
    """

    figures: Mapping[str, float | None]
    error: str | None = None
    stage_failed: bool = False
    exact: bool = True


@record
class DoctorJob(Job):
    """Try what an installation can do."""

    action: Literal["doctor"] = "doctor"
    name: str = "doctor"


@record
class TrackerJob(Job):
    """Tell an experiment tracker of a run; `report` is its folder, `target` the tracker's."""

    action: Literal["tensorboard", "mlflow"]
    report: Path
    target: str


@record
class ModelJob(Job):
    """Work on one model."""

    model: ModelSource


@record
class CheckModelsJob(Job):
    """Load the models that later stages name, to refuse a bad one before anything is trained."""

    action: Literal["check-models"] = "check-models"
    models: tuple[ModelSource, ...] = ()
    teachers: tuple[ModelSource, ...] = ()


@record
class InspectJob(ModelJob):
    """Describe layers or operators; `groups`: also the channels that can be pruned together."""

    action: Literal["inspect"] = "inspect"
    groups: bool = False


@record
class ProfileJob(ModelJob):
    """Measure the memory of a training step; `memory_limit` in bytes, `trace` a folder."""

    action: Literal["profile"] = "profile"
    batch_size: int
    memory_limit: int | None = None
    trace: Path | None = None


@record
class ExportJob(ModelJob):
    """Write a model in another form."""

    action: Literal["export"] = "export"
    format: Literal["keras", "keras3", "savedmodel"]
    target: Path


@record
class FirmwareFactsJob(ModelJob):
    """Say what a firmware needs for a .tflite file."""

    action: Literal["firmware-facts"] = "firmware-facts"


@record
class BenchJob(ModelJob):
    """Measure latency and memory of a .tflite file."""

    action: Literal["bench"] = "bench"
    threads: int = 1


@record
class CompactJob(ModelJob):
    """Rewrite a .tflite file into `target`.

    Attributes:
        runtime: whose arena counts, or where operators are to run; a stage's `target`.
        arguments: of `shrink.compact.compact`, as the stage gives them.
    """

    action: Literal["compact"] = "compact"
    target: Path
    runtime: str
    arguments: Section


@record
class FirstLookJob(ModelJob):
    """Say what a model and its data are."""

    action: Literal["first-look"] = "first-look"
    data: Section
    task: Section
    seed: int = 0


@record
class CheckJob(Job):
    """Read all examples, divided by this seed, and say what they are and which cannot be read."""

    action: Literal["data-check"] = "data-check"
    data: Section
    seed: int = 0
