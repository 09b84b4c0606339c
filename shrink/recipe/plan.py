"""From a recipe to an ordered plan of steps, with every name resolved and every order checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from shrink.base.errors import ModelError, Position, RecipeError, hint_for
from shrink.base.metrics import needs_slices
from shrink.base.packages import check_keras
from shrink.contract.details import Usage
from shrink.engine.config import TrainingConfig
from shrink.model.reference import (
    Form,
    ModelReference,
    exists,
    looks_like_model,
    parse_model_reference,
)
from shrink.recipe.data_reference import check_examples
from shrink.recipe.distillation import check_distillation
from shrink.recipe.gates import check_gates, saved_reports
from shrink.recipe.inheritance import Inherited, check_named, inherit
from shrink.recipe.load import LoadedRecipe, recipe_errors
from shrink.recipe.named_files import located
from shrink.recipe.overrides import SECTIONS, numbered
from shrink.recipe.schema import Recipe
from shrink.stages.base import StageConfig
from shrink.stages.compact.config import CompactConfig
from shrink.stages.distill.config import DistillConfig, StudentScale
from shrink.stages.prune.config import PruneConfig

if TYPE_CHECKING:
    from shrink.contract.report import Report

BASELINE = "baseline"
_WITHOUT_TRAINING = ("seed", "memory_limit", "host_memory_limit")
"""Keys of `training` that count in stages that do not train, too."""


@dataclass(frozen=True)
class Source:
    """Where a step takes a model from: an earlier step, or a named model with arguments."""

    step: str | None = None
    reference: ModelReference | None = None
    arguments: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """One step of a plan: a stage with its inputs, or the evaluation of a trained model."""

    index: int
    name: str
    kind: str
    config: StageConfig | None
    training: TrainingConfig
    inputs: Mapping[str, Source]
    """`model` is what the stage starts from; `distill` has a `teacher` too."""
    previous: str | None
    form: Form
    preserves: tuple[str, ...] = ()
    """What this stage must preserve of earlier ones of this line."""

    @property
    def epochs(self) -> int:
        """Passes over the training examples; 0 where nothing is trained."""
        return 0 if self.config is None else self.config.passes

    def named(self) -> dict[str, ModelReference]:
        """Return the trained models that a distillation names as teachers or student, by role.

        A student that is scaled and begins with new weights is none of them.
        """
        if self.kind != "distill":
            return {}
        return {
            role: source.reference
            for role, source in self.inputs.items()
            if source.reference is not None
            and source.reference.trained
            and (not source.arguments or source.arguments.get("inherit"))
        }


@dataclass(frozen=True)
class Plan:
    """The ordered steps of a recipe, whose paths are absolute; the first is the baseline."""

    recipe: Recipe
    source: Path
    steps: tuple[Step, ...]
    saved: Mapping[str, Report] = field(default_factory=dict)
    """The report that each gate with `against` compares with, by the gate's name."""
    inherited: Inherited | None = None
    """What the record of the recipe's model gave."""

    @property
    def usage(self) -> Usage | None:
        """The record of the recipe's model; None where there is none."""
        return None if self.inherited is None else self.inherited.usage

    @property
    def baseline(self) -> Step:
        """The step that all others are compared with."""
        return self.steps[0]

    @property
    def finals(self) -> tuple[str, ...]:
        """The last step of each branch: no other step continues from it."""
        used = {source.step for step in self.steps for source in step.inputs.values()}
        used |= {step.previous for step in self.steps}
        return tuple(step.name for step in self.steps if step.name not in used)

    @property
    def data_path(self) -> Path | None:
        """Where the data are; of `source: python` the file, without its function."""
        text, is_function = self.recipe.data.path, self.recipe.data.source == "python"
        return None if text is None else Path(text.rpartition(":")[0] if is_function else text)

    @property
    def custom_objects(self) -> Path | None:
        """The Python file whose classes and functions the models name."""
        code = self.recipe.custom_objects
        return None if code is None else Path(code)

    def check_installed(self) -> None:
        """Raise `ResourceError` where a package is missing that its models or stages need."""
        named = {one.reference for step in self.steps for one in step.inputs.values()}
        keras = any(one is not None and one.kind != "tflite" for one in named)
        if keras:
            check_keras()
        for stage in self.recipe.stages:
            stage.check_installed()

    def step(self, name: str) -> Step:
        """Return the step of this name."""
        return next(step for step in self.steps if step.name == name)


def build_plan(loaded: LoadedRecipe) -> Plan:
    """Resolve a recipe's names and check its order.

    Raises:
        RecipeError: an illegal order, an unknown stage, a distillation without a student.
        ModelError: a named model that is not there.
        InputError: a saved report, which a gate compares with, that is not there or not readable.
    """
    recipe = loaded.recipe
    check_distillation(recipe.stages, loaded)
    reference = parse_model_reference(recipe.model, loaded.folder("model"))
    inherited = inherit(loaded, reference)
    loaded, recipe = inherited.loaded, inherited.loaded.recipe
    builder = _Builder(loaded, reference)
    for index, config in enumerate(recipe.stages):
        builder.add(index, config)
    steps = _counting_on_compact(builder.steps)
    for step in steps:
        for role, other in step.named().items():
            if role == "model" and not reference.trained and inherited.usage is None:
                # The models that this recipe builds are trained on what its student takes.
                taken = inherit(loaded, other)
                inherited = replace(inherited, keys=taken.keys, of="student")
                loaded, recipe = taken.loaded, taken.loaded.recipe
            warnings = check_named(loaded, role, other)
            inherited = replace(inherited, warnings=(*inherited.warnings, *warnings))
    found = located(loaded).recipe
    plan = Plan(found, loaded.source, steps, saved_reports(loaded), inherited)
    check_gates([step.name for step in steps], loaded)
    for name in recipe.task.metrics or ():
        if needs_slices(name) and not recipe.data.slices:
            raise RecipeError(
                f"{name} has to know which examples are normal, and data.slices does not say it",
                position=loaded.position("task", "metrics"),
                hint="name the column that says it: data: {slices: [{column: condition}]}",
            )
    configs = {step.name: step.config for step in steps if step.config is not None}
    check_examples(recipe.data, configs, recipe.gates, loaded)
    return plan


def _counting_on_compact(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Return the steps, pruning to an arena of compacted files with the work that these may add."""
    shares: dict[str, float] = {}
    for step in steps:
        config = step.config
        if isinstance(config, CompactConfig) and config.bounds_work:
            for name in _line(steps, step):
                shares[name] = min(shares.get(name, config.max_extra_macs), config.max_extra_macs)
    return tuple(
        replace(step, config=step.config.counting_on(shares[step.name]))
        if isinstance(step.config, PruneConfig) and step.name in shares
        else step
        for step in steps
    )


def _line(steps: Sequence[Step], step: Step) -> Iterator[str]:
    """Yield the names of the steps that a step goes on from, the last one first."""
    by_name = {one.name: one for one in steps}
    while (name := step.inputs["model"].step) is not None:
        yield name
        step = by_name[name]


_QUANTIZE_FIRST = "quantize before it: `- quantize: {scheme: static_wi8_ai8}`"


class _Builder:
    """Adds one step after the other, checking each against what is there already."""

    def __init__(self, loaded: LoadedRecipe, reference: ModelReference) -> None:
        self.loaded = loaded
        self.recipe = loaded.recipe
        self.training = loaded.recipe.training
        self.reference = reference
        self.steps: list[Step] = []
        if reference.trained:
            inputs = {"model": Source(reference=reference)}
            self.steps.append(
                Step(0, BASELINE, BASELINE, None, self.training, inputs, None, reference.form)
            )
        elif not self.recipe.stages or self.recipe.stages[0].kind != "train":
            raise RecipeError(
                f"{self.recipe.model} builds a model without weights, so the first stage must "
                "train it",
                position=loaded.position("stages", 0),
                hint="start stages with `- train: {epochs: 10}` (or `shrink train` before a single "
                "verb), or name a trained model file",
            )

    def add(self, index: int, config: StageConfig) -> None:
        """Append the step of one stage."""
        path = ("stages", index, config.kind)
        name = self._name(config, path)
        previous = self._previous(config, path)
        inputs = self._inputs(config, previous, path)
        self._check_form(config, name, inputs["model"], path)
        preserves = self._preserved(inputs["model"])
        for trait in config.breaks:
            if trait in preserves:
                raise RecipeError(
                    f"{name} cannot keep the {trait} of an earlier stage",
                    position=self.loaded.position(*path),
                    hint=f"let {config.kind} come first",
                )
        self.steps.append(
            Step(
                len(self.steps),
                name,
                config.kind,
                config,
                self._training(config, path),
                inputs,
                previous.name if previous else None,
                config.produces,
                preserves,
            )
        )

    def _find(self, name: str) -> Step | None:
        return next((step for step in self.steps if step.name == name), None)

    def _names(self) -> list[str]:
        return [step.name for step in self.steps]

    def _name(self, config: StageConfig, path: tuple[str | int, ...]) -> str:
        name = config.name or numbered(config.kind, self._names())
        where = self.loaded.position(*path, "name")
        if name in self._names():
            raise RecipeError(f"two stages are called {name!r}", position=where)
        if name in SECTIONS or name == BASELINE:
            raise RecipeError(f"a stage cannot be called {name!r}", position=where)
        return name

    def _previous(self, config: StageConfig, path: tuple[str | int, ...]) -> Step | None:
        if config.from_ is None:
            return self.steps[-1] if self.steps else None
        if (step := self._find(config.from_)) is not None:
            return step
        raise RecipeError(
            f"from: no earlier stage is called {config.from_!r}",
            position=self.loaded.position(*path, "from"),
            hint=hint_for(config.from_, self._names()),
        )

    def _inputs(
        self, config: StageConfig, previous: Step | None, path: tuple[str | int, ...]
    ) -> dict[str, Source]:
        if isinstance(config, DistillConfig) and previous is not None:
            teachers = self._teachers(config, path)
            if config.student is None:
                student = Source(step=previous.name)
            elif isinstance(config.student, StudentScale):
                student = self._scaled(config.student, teachers[0])
            else:
                student = self._named(config.student, (*path, "student"))
            if config.student is None and student == teachers[0]:
                raise RecipeError(
                    f"distill has no student: the stage before, {previous.name!r}, is the teacher",
                    position=self.loaded.position(*path),
                    hint="give `student: {width: 0.5}`, a model, or a stage's name",
                )
            named = {f"teacher-{n}": teacher for n, teacher in enumerate(teachers[1:], 2)}
            return {"model": student, "teacher": teachers[0], **named}
        if previous is None:
            return {"model": Source(reference=self.reference)}
        return {"model": Source(step=previous.name)}

    def _teachers(self, config: DistillConfig, path: tuple[str | int, ...]) -> list[Source]:
        names = (config.teacher,) if isinstance(config.teacher, str) else config.teacher
        named = [self._named(name, (*path, "teacher")) for name in names or ()]
        return [self._asked(source, path) for source in named or [Source(step=self.steps[0].name)]]

    def _asked(self, teacher: Source, path: tuple[str | int, ...]) -> Source:
        """Return a teacher that can be asked: of a graph its folder, not what it converts to."""
        before = self._find(teacher.step) if teacher.step else None
        reference = teacher.reference
        if before is not None and before.form == "tflite":
            reference = self.reference if before.kind == BASELINE else None
            if reference is not None and reference.graph_only:
                return Source(reference=reference)
        if (before is not None and before.form == "tflite") or (
            reference is not None and reference.kind == "tflite"
        ):
            raise ModelError(
                "a .tflite file cannot be a teacher, which TensorFlow has to run",
                subject=reference.path if reference else teacher.step,
                hint="give the Keras model, or the SavedModel, that it was made from",
            )
        return teacher

    def _named(self, name: str, path: tuple[str | int, ...]) -> Source:
        if (step := self._find(name)) is not None:
            return Source(step=step.name)
        if looks_like_model(name) or exists(self.loaded.folder(*path) / name):
            return Source(reference=parse_model_reference(name, self.loaded.folder(*path)))
        raise RecipeError(
            f"{name!r} is neither an earlier stage nor a model",
            position=self.loaded.position(*path),
            hint=hint_for(name, self._names()),
        )

    def _scaled(self, scale: StudentScale, teacher: Source) -> Source:
        """Return the recipe's builder with arguments, or a trained model that is cut."""
        factors = {"width": scale.width, "depth": scale.depth}
        arguments = {name: value for name, value in factors.items() if value is not None}
        if self.reference.kind == "builder" and not scale.inherit:
            return Source(reference=self.reference, arguments=arguments)
        if teacher.reference is not None and teacher.reference.graph_only:
            raise ModelError(
                "no student can be cut from a teacher of which only a graph is known",
                subject=teacher.reference.path,
                hint="name the student, a model file or a builder: `student: small.py:build`",
            )
        arguments["inherit"] = float(scale.inherit)
        return Source(teacher.step, teacher.reference, arguments)

    def _check_form(
        self, config: StageConfig, name: str, source: Source, path: tuple[str | int, ...]
    ) -> None:
        before = self._find(source.step) if source.step else None
        if before is not None and before.kind != BASELINE:
            if before.form not in config.follows:  # a file can be a start, to more of them
                branch = "branch from an earlier stage with `from: NAME`"
                raise RecipeError(
                    f"{name} cannot follow {before.name}, whose artifact is a .{before.form} file",
                    position=self.loaded.position(*path),
                    hint=branch if "keras" in config.follows else _QUANTIZE_FIRST,
                )
            return
        reference = source.reference or self.reference
        if "keras" not in config.accepts and reference.kind != "tflite":
            raise ModelError(
                f"{config.kind} starts from a .tflite file",
                subject=reference.path,
                hint=_QUANTIZE_FIRST,
            )
        if reference.form not in config.accepts:
            form = "SavedModel of a graph" if reference.graph_only else ".tflite file"
            raise ModelError(
                f"{config.kind} cannot start from a {form}, which has no layers",
                subject=reference.path,
                hint="give the Keras model that it was made from",
            )

    def _training(self, config: StageConfig, path: tuple[str | int, ...]) -> TrainingConfig:
        """Return the recipe's training, with what the stage's own section says in place of it."""
        if not config.training:
            return self.training
        # Refuse settings of a training that the stage does not do.
        idle = [key for key in config.training or () if key not in _WITHOUT_TRAINING]
        if not config.reads_training and idle:
            raise RecipeError(
                f"training.{idle[0]} does nothing: the stage {config.kind} does not train",
                position=self.loaded.position(*path, "training", idle[0]),
                hint=f"it needs epochs above 0; else leave {idle[0]} out",
            )
        base = self.recipe.training.model_dump()
        merged = {**base, **config.training}
        if isinstance(config.training.get("optimizer"), dict):
            merged["optimizer"] = {**base["optimizer"], **config.training["optimizer"]}
        try:
            return TrainingConfig.model_validate(merged)
        except ValidationError as error:
            where = (*path, "training")

            def locate(inner: tuple[str | int, ...]) -> Position:
                return self.loaded.position(*inner)

            raise recipe_errors(error, TrainingConfig, where, locate)[0] from error

    def _preserved(self, source: Source) -> tuple[str, ...]:
        if source.step is None or source.arguments:  # a scaled copy keeps no promise
            return ()
        before = self.steps[self._names().index(source.step)]
        own = before.config.preserved() if before.config else ()
        return tuple(dict.fromkeys((*before.preserves, *own)))
