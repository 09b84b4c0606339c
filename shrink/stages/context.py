"""The context of a stage: model, data, task, devices, training and warnings."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from shrink.base.errors import ReportWarning, listed
from shrink.base.host import UNUSED_GPU_HINT, unused_gpu
from shrink.base.progress import Phase, Share
from shrink.base.types import leaves
from shrink.contract.details import Details, Usage
from shrink.contract.events import Heartbeat, Send
from shrink.contract.job import MicroBatchPlan, StepJob
from shrink.contract.model_source import Trust
from shrink.contract.report import Skipped
from shrink.contract.trained_range import ModelMetadata
from shrink.data.config import NO_DATA, DataConfig
from shrink.data.dataset import Dataset
from shrink.data.examples import Examples
from shrink.data.fingerprint import fingerprint, section_by_content
from shrink.data.matching import (
    ModelNames,
    artifact_names,
    in_model_order,
    keras_names,
    needs_names,
    saved_model_names,
)
from shrink.data.opening import open_dataset_for
from shrink.data.slices import Slicing, slicings_of
from shrink.data.sources.none import no_examples
from shrink.engine.config import TrainingConfig
from shrink.model.compilation import Compiled, read_compiled
from shrink.model.image_input import image_input
from shrink.model.metadata import metadata_of
from shrink.model.reference import ModelReference
from shrink.model.scan import check_model_file
from shrink.model.user_reads import code_digest
from shrink.stages.demands import check_demands, check_gated, check_normal
from shrink.task.artifact import evaluate_batches
from shrink.task.config import TaskConfig
from shrink.task.interface import (
    artifact_interface,
    check_mixup,
    describe_usage,
    keras_interface,
)
from shrink.task.resolve import resolve_task
from shrink.task.task import Task
from shrink.tflite.lazy import keras

if TYPE_CHECKING:
    from shrink.engine.devices import Devices
    from shrink.engine.microbatch import AfterUpdate
    from shrink.engine.objective import Objective
    from shrink.engine.record import TrainingRecord
    from shrink.engine.whole_split import Outputs, WholeSplit


@dataclass(frozen=True)
class StageResult:
    """The result of a stage: a Keras model or a TFLite artifact, and its entries in the report.

    Attributes:
        model: the trained or changed model; None where the stage made a TFLite artifact.
        tflite: the artifact's bytes, or None.
        training: how it was trained, where it was.
        skipped: layers left alone, each with the reason.
        notes: sentences for the report.
        details: further sections of the report.
        later: returns more details; called after the stage, outside of its duration.
        cpu_operators: operators that stay on the CPU, of a file for an accelerator.
        not_run: why the artifact cannot be run and measured here; empty where it can.
        imported: sparsity, clusters and ranges of an imported model.
    """

    model: keras.Model | None = None
    tflite: bytes | None = None
    training: TrainingRecord | None = None
    skipped: Sequence[Skipped] = ()
    notes: Sequence[str] = ()
    details: Details | None = None
    later: Callable[[], Details] | None = None
    cpu_operators: int | None = None
    not_run: str = ""
    imported: ModelMetadata = field(default_factory=ModelMetadata)


class Planned(Exception):
    """Raised by a stage that is planned, where it would train.

    Args:
        plan: the micro-batch to train with.
    """

    def __init__(self, plan: MicroBatchPlan) -> None:
        super().__init__(plan)
        self.plan = plan


class StageContext:
    """Everything around a stage; models are loaded inside the devices' scope.

    Attributes:
        kind: of the stage.
        imported: sparsity, clusters and ranges of an imported model.
        untrained: whether only sizes matter, as the model's values were never trained.
        teachers: the cache of teacher outputs, shared by all runs.
        sensitivities: the cache of the cost of pruning each group, shared by all runs.
        import_notes: by role, how close an imported or scaled model is to the original; else empty.
        warnings: of this stage.

    Args:
        job: the worker's job.
        send: sends an event to the parent.
        planning: whether `train` only plans the training, and raises `Planned`.
    """

    untrained = False

    def __init__(self, job: StepJob, send: Send, *, planning: bool = False) -> None:
        self.planning = planning
        self.name = job.name
        self.kind = job.kind
        self.imported = metadata_of(job.inputs.get("model"))
        self.preserves = tuple(dict.fromkeys((*job.preserves, *self.imported.traits)))
        self.training, plan = TrainingConfig.model_validate(job.training), job.planning.plan
        if plan is not None:
            self.training = self.training.model_copy(
                update={"micro_batch_size": plan.micro_batch_size}
            )
        self.task_config = TaskConfig.model_validate(job.task)
        self.data_config = DataConfig.model_validate(job.data)
        self.split_seed = job.split_seed
        self.work = job.work
        self.teachers = job.teachers or job.work / "teachers"
        self.sensitivities = job.sensitivities or job.work / "sensitivities"
        self._job = job
        self._send = send
        heartbeat = None if job.heartbeat is None else Heartbeat(job.heartbeat)
        self._heartbeat = heartbeat
        self._trainings = 0
        self._early: keras.Model | None = None
        self._names: ModelNames | None = None
        self.import_notes: dict[str, str] = {}
        self.warnings: list[ReportWarning] = []

    @functools.cached_property
    def dataset(self) -> Dataset:
        """The recipe's examples; several inputs or targets in the order of the stage's model.

        Without data all splits are empty.
        """
        if not self.has_data:
            return no_examples()
        # A stage's own seed must not move examples between splits: what one stage trained on
        # another would test on.
        dataset = open_dataset_for(
            self.data_config, self.split_seed, self._image_input, self._job.earlier_splits
        )
        if "model" not in self._job.inputs or not needs_names(dataset):
            return dataset
        return in_model_order(dataset, self._model_names())

    def _image_input(self) -> tuple[int, int, int] | None:
        return image_input(self._job.inputs["model"]) if "model" in self._job.inputs else None

    @property
    def has_data(self) -> bool:
        """Whether there are examples; else all splits are empty, and no metric is measured."""
        return self.data_config.source != NO_DATA

    @property
    def has_targets(self) -> bool:
        """Whether the examples have targets; without them, no metric is measured."""
        return self.has_data and self.data_config.target != "none"

    def _model_names(self) -> ModelNames:
        path = self.input_path()
        if path.suffix == ".tflite":
            return artifact_names(path)
        if self.input_graph_only():
            check_model_file(path, self.trust())
            return saved_model_names(path)
        if self._names is None:
            self._early = self.load()  # `load` returns it next: memory holds it once
            self._names = keras_names(self._early)
        return self._names

    @property
    def file_only(self) -> bool:
        """Whether a .tflite file is measured or compacted, for which TensorFlow is not needed."""
        return self.kind in ("baseline", "compact") and self.input_path().suffix == ".tflite"

    def start(self) -> None:
        """Set all seeds, and open the devices before anything else starts TensorFlow's runtime."""
        if self.file_only:
            random.seed(self.training.seed)
            np.random.seed(self.training.seed)
        else:
            keras.utils.set_random_seed(self.training.seed)
            self.devices  # noqa: B018

    @property
    def device_names(self) -> tuple[str, ...]:
        """The devices that the stage runs on, such as `GPU:0`."""
        return ("CPU:0",) if self.file_only else tuple(self.devices.device_names)

    @functools.cached_property
    def devices(self) -> Devices:
        """The devices to train on."""
        from shrink.engine.devices import open_cluster, open_devices

        if self._job.place is not None:
            return open_cluster(self.training)
        devices = open_devices(self.training)
        if unused := unused_gpu(devices.on_gpu):
            self.warn("unused-gpu", unused, UNUSED_GPU_HINT)
        return devices

    def load(self, role: str = "model") -> keras.Model:
        """Return the input of this role (`model`, `teacher`), loaded or built anew."""
        if role == "model" and self._early is not None:
            model, self._early = self._early, None
            return model
        from shrink.graph.scale import check_blocks
        from shrink.model.load import (
            check_micro,
            check_stateless,
            check_student,
            import_note,
            load_source,
        )
        from shrink.model.savable import check_savable

        source = self._job.inputs[role]
        with self.devices.scope():
            model = load_source(source, as_graph=role.partition("-")[0] == "teacher")
        check_stateless(model, source.path)
        if role == "model":
            for demand in self._job.demands:
                if demand.student:
                    check_student(model, source, demand.student)
                if demand.blocks:
                    check_blocks(model, demand.blocks, demand.exclude)
                if demand.micro:
                    check_micro(model, demand.stage)
            self._names = keras_names(model)
            if source.function is not None:
                check_savable(model, source.path)
        if role not in self.import_notes:
            self.import_notes[role] = import_note(model, source)
        return model

    def teacher_usage(self, role: str) -> Usage | None:
        """Return the record of a teacher; None where no run wrote one."""
        own = (demand.records for demand in self._job.demands if demand.stage == self.name)
        return next(own, {}).get(role)

    def roles(self, prefix: str) -> list[str]:
        """Return the roles of inputs that are called `prefix`, or `prefix-2` and so on."""
        return [role for role in self._job.inputs if role.partition("-")[0] == prefix]

    def input_path(self, role: str = "model") -> Path:
        """Return the path of the file behind an input."""
        return self._job.inputs[role].path

    def input_graph_only(self) -> bool:
        """Whether the input is a SavedModel without Keras' layers."""
        source = self._job.inputs["model"]
        return ModelReference(source.kind, source.path).graph_only

    def has_recipes_model(self) -> bool:
        """Whether this stage begins with the recipe's own model file."""
        source = self._job.inputs.get("model")
        return source is not None and source.path == self._job.task_model

    def trust(self) -> Trust:
        """Return the recipe's permissions for code in model files."""
        return self._job.inputs["model"].trust

    def code_of(self, role: str) -> dict[str, str | None]:
        """Return hashes of the user's code behind an input: custom layers and builders.

        Weights and configuration do not determine what these compute; a cache key needs both.
        """
        source, custom = self._job.inputs[role], self.trust().custom_objects
        builder = source.path if source.kind == "builder" else None
        paths = {"custom_objects": custom, "builder": builder}
        return {name: None if path is None else code_digest(path) for name, path in paths.items()}

    def data_identity(self) -> dict[str, object]:
        """Return the part of a cache key that determines the examples, as plain data."""
        specs = leaves(self.dataset.reference.input_spec)
        return {
            "data": {**section_by_content(self.data_config), "cache": None},
            # Images are resized to the stage's model.
            "inputs": [f"{spec.dtype.name}{[*spec.shape]}" for spec in specs],
            "fingerprint": fingerprint(self.data_config),
            "split_seed": self.split_seed,
            "earlier_splits": [path.stem for path in self._job.earlier_splits],
        }

    def task_identity(self) -> dict[str, object]:
        """Return the part of a cache key that determines loss and metrics, as plain data."""
        compiled = None if self._compiled is None else asdict(self._compiled)
        task = self.task_config.with_files(lambda file: f"{code_digest(Path(file))}.py")
        return {"task": task.model_dump(mode="json"), "compiled": compiled}

    def task(self, model: keras.Model | Path | None = None) -> Task:
        """Return loss and metrics for a Keras model or .tflite file, by default the input file."""
        model = self.input_path() if model is None else model
        is_file = isinstance(model, Path)
        interface = artifact_interface(model) if is_file else keras_interface(model)
        task = resolve_task(self.task_config, self.dataset, interface, self._compiled)
        check_demands(self._job.demands, self.dataset, task, self.data_config)
        check_gated(self._job.gated, task)
        check_normal(task.metrics, lambda: self.test_slicings)
        return task

    def usage(self, content: bytes) -> Usage:
        """Return the usage record of a .tflite file."""
        before = self._job.usage
        return describe_usage(content, self.dataset, self.data_config, self.task_config, before)

    def warn_of_data(self, usage: Usage) -> None:
        """Warn at the first stage of data that was read wrongly, or has too few classes."""
        names, labels = self.dataset.class_names, usage.labels or ()
        source = self._job.inputs.get("model")
        if not self.has_recipes_model() and (source is None or source.function is None):
            return
        self.warnings += [replace(one, stage=self.name) for one in self.dataset.warnings]
        if len(labels) > len(names) > 0:
            self.warn(
                "unnamed-outputs",
                f"the model has {len(labels)} outputs and the data {len(names)} classes "
                f"({listed(names, 10)}): the other outputs are labelled by their numbers",
                "name a class for each output, in the order of the outputs: data.classes",
            )

    @functools.cached_property
    def test_slicings(self) -> tuple[Slicing, ...]:
        """Which slice each test example is in, by each entry of `data.slices`."""
        return slicings_of(self.dataset, "test", self.data_config)

    @functools.cached_property
    def _compiled(self) -> Compiled | None:
        """The compiled arguments of the recipe's model, which later stages' models lack."""
        return None if self._job.task_model is None else read_compiled(self._job.task_model)

    def train(
        self,
        model: keras.Model,
        objective: Objective,
        epochs: int,
        after_update: Sequence[AfterUpdate] = (),
        dataset: Dataset | None = None,
        task: Task | None = None,
        training: TrainingConfig | None = None,
    ) -> TrainingRecord:
        """Train `model` in place; what earlier stages made the model keep, it keeps.

        Args:
            model: what is trained.
            objective: what is minimised.
            epochs: passes over the training examples.
            after_update: called after every update, in graph.
            dataset: in place of the recipe's, the same examples with more to their targets.
            task: in place of the model's own, where it has more outputs than the task.
            training: in place of the recipe's.

        Raises:
            Planned: the context is for planning; nothing was trained.
        """
        from shrink.engine.fit import train
        from shrink.engine.microbatch import TrainingSetup
        from shrink.engine.objective import METRICS
        from shrink.engine.plan_training import plan_training
        from shrink.engine.recovery import Watcher
        from shrink.engine.resume import Recovery
        from shrink.pruning.masks import frozen_masks
        from shrink.pruning.sharing import keep_shared

        # What keeps a trait of earlier stages after every update, by the trait.
        keepers: Mapping[str, Callable[[keras.Model], AfterUpdate]]
        keepers = {"sparsity": frozen_masks, "clusters": keep_shared}
        task, dataset = task or self.task(model), dataset or self.dataset
        if self.data_config.augment is not None and self.data_config.augment.mixup is not None:
            check_mixup(self.dataset, task.losses, model)
        with self.devices.scope():
            kept = [keep(model) for trait, keep in keepers.items() if trait in self.preserves]
        setup = TrainingSetup(
            model,
            objective,
            training or self.training,
            self.devices,
            metrics=[name for name in task.metrics if name in METRICS],
            after_update=(*after_update, *kept),
            epoch_metrics=_epoch_metrics(task, self.dataset.validation),
        )
        if self.planning:
            raise Planned(plan_training(setup, dataset))
        self._trainings += 1
        watcher = Watcher(self._heartbeat, self._send)
        checkpoints, earlier = self._job.checkpoints, self._job.attempts
        record = train(
            setup,
            dataset,
            epochs=epochs,
            monitor=task.monitor,
            on_progress=self._send,
            stage=self.name,
            recovery=Recovery(
                None if checkpoints is None else checkpoints / str(self._trainings),
                earlier.micro_batch_size,
                earlier.events,
                watcher,
            ),
        )
        watcher.end()
        return record

    def warn(self, code: str, message: str, hint: str | None = None) -> None:
        """Add a warning to the report; see `ReportWarning`."""
        self.warnings.append(ReportWarning(code, message, hint, self.name))

    def phase(self, name: str, done: int = 0, total: int | None = None) -> None:
        """Show what the stage does now, in a word or two, and how much of a known total is done."""
        self._send(Phase(name) if total is None else Share(name, done, total))


def _epoch_metrics(task: Task, examples: Examples) -> WholeSplit | None:
    """Return how a monitor that is no mean over batches is measured after every epoch."""
    from shrink.engine.objective import METRICS
    from shrink.engine.whole_split import WholeSplit

    name = task.monitor.removeprefix("val_")
    if name in METRICS or name not in task.metrics:
        return None
    scored = replace(task, metrics=(name,))

    def score(batches: Iterator[Outputs]) -> Mapping[str, float | None]:
        return evaluate_batches(batches, len(examples), scored, with_intervals=False).metrics

    return WholeSplit(examples, score, len(task.losses), (name,))
