"""Content keys: two steps with the same key give the same artifact and the same figures."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from shrink.base import files
from shrink.base.packages import versions
from shrink.contract.codec import to_plain
from shrink.contract.details import Usage
from shrink.contract.job import Section
from shrink.contract.usage import read_usage
from shrink.data.config import NO_DATA, DataConfig, source_code
from shrink.data.fingerprint import section_by_content
from shrink.engine.config import TrainingConfig
from shrink.model.user_reads import code_digest, declared_digests
from shrink.recipe.plan import Plan, Source, Step
from shrink.run.lineage import Splits, code_of
from shrink.stages import stage_code
from shrink.task.config import TaskConfig

_NOT_IN_KEYS = {"name", "from_", "training"}
_INPUTS = {"distill": {"teacher", "student"}}
"""Keys of a kind of stage that name its inputs, whose own keys or hashes count."""
_ONLY_FOR_TRAINING = ("augment", "cache")
"""Keys of `data` that matter where examples are trained on: to the result, or to its memory."""


@dataclass(frozen=True)
class StepSettings:
    """What of a recipe's sections decides the outcome of one step.

    A worker is given these and not the recipe's: what is not in the key cannot be in the result.
    """

    training: TrainingConfig
    data: DataConfig
    task: Section


def step_settings(plan: Plan, step: Step) -> StepSettings:
    """Return a step's settings; those that only training reads have their defaults elsewhere.

    A step that does not train reads no more of `training` than the seed, by which examples are
    chosen, and the evaluation of a model not even that.
    """
    training, data, task = step.training, plan.recipe.data, plan.recipe.task
    if step.config is None or not step.config.reads_training:
        training = TrainingConfig() if step.config is None else TrainingConfig(seed=training.seed)
        data, task = _for_measuring(plan)
    return StepSettings(training, data, task.model_dump(mode="json"))


def _by_content(task: Section, code: Callable[[Path], str]) -> Section:
    """Return a task whose functions are named by what their files hold, wherever these are."""
    config = TaskConfig.model_validate(task)
    return config.with_files(lambda file: f"{code(Path(file))}.py").model_dump(mode="json")


def _for_measuring(plan: Plan) -> tuple[DataConfig, TaskConfig]:
    """Return what of `data` and `task` counts where nothing is trained."""
    fields = DataConfig.model_fields
    data = plan.recipe.data.model_copy(update={k: fields[k].default for k in _ONLY_FOR_TRAINING})
    return data, plan.recipe.task.model_copy(update={"monitor": None})


def step_keys(plan: Plan, data_fingerprint: str, splits: Splits | None = None) -> dict[str, str]:
    """Return the key of every step, by name.

    A key holds the step's configuration and settings, the keys or hashes of its inputs with the
    code that they need, the data's fingerprint and its splits, and the versions of shrink and of
    the libraries that compute.

    Args:
        plan: the steps.
        data_fingerprint: of its data.
        splits: how it is divided; by default by the recipe's seed.
    """
    return keys_of(describe_steps(plan, data_fingerprint, splits))


StepDescriptions: TypeAlias = Mapping[str, Mapping[str, object]]
"""Everything that the outcome of each step depends on, as plain data by the step's name."""


def keys_of(described: StepDescriptions) -> dict[str, str]:
    """Return the key of every step, by name, of what `describe_steps` returned."""
    return {name: files.json_sha256(step) for name, step in described.items()}


def describe_steps(
    plan: Plan, data_fingerprint: str, splits: Splits | None = None
) -> StepDescriptions:
    """Return everything that each step's outcome depends on, as plain data by the step's name.

    The arguments are those of `step_keys`.
    """
    splits, read = splits or Splits(plan.recipe.training.seed), _Read()
    described: dict[str, dict[str, object]] = {}
    keys: dict[str, str] = {}
    for step in plan.steps:
        left_out = _NOT_IN_KEYS | _INPUTS.get(step.kind, set())
        config = step.config.model_dump(mode="json", exclude=left_out) if step.config else {}
        settings, custom = step_settings(plan, step), plan.custom_objects
        described[step.name] = {
            "kind": step.kind,
            **({} if step.config is None else stage_code(step.kind)),
            "config": config,
            "training": settings.training.model_dump(mode="json"),
            "inputs": {role: _source(source, keys, read) for role, source in step.inputs.items()},
            "claims": list(step.preserves),
            "custom_objects": None if custom is None else read.code(custom),
            "depends": read.declared(plan.recipe.depends or ()),
            "data": {
                **section_by_content(splits.data(settings.data)),
                **source_code(plan.recipe.data.source),
            },
            "slices": _slices(plan, read.code),
            "data_fingerprint": data_fingerprint,
            "split_seed": splits.seed,
            "earlier_splits": list(splits.earlier),
            "task": _by_content(settings.task, read.code),
            "records": {
                role: [to_plain(one) for one in (usage.normalize, usage.labels, usage.front_end)]
                for role, usage in records_of(step).items()
            },
            # Without data, the record of the model is handed on.
            "usage": to_plain(plan.usage) if plan.recipe.data.source == NO_DATA else None,
            # The file of the recipe's model says which loss is meant where the recipe does not.
            "task_model": [
                _source(plan.steps[0].inputs["model"], keys, read),
                to_plain(None if plan.usage is None else plan.usage.task),
            ],
            "versions": versions(),
        }
        keys[step.name] = files.json_sha256(described[step.name])
    return described


def _slices(plan: Plan, digest: Callable[[Path], str]) -> list[object]:
    """Return by what test examples are divided: columns and files are part of the fingerprint."""
    described: list[object] = []
    for one in plan.recipe.data.slices or ():
        file = one.file
        code = None if file is None else [digest(file), str(one.function).rpartition(":")[2]]
        described.append([one.model_dump(mode="json", exclude={"function"}), code])
    return described


class _Read:
    """What the files of a plan hold; each is read once, however many steps depend on it."""

    def __init__(self) -> None:
        self.code = functools.cache(code_digest)
        self.declared = functools.cache(functools.partial(declared_digests, Path("/")))
        self.content = functools.cache(files.sha256)


def records_of(step: Step) -> dict[str, Usage]:
    """Return the records of the teachers and the student that a step names, by role."""
    references = step.named()
    usages = {role: read_usage(reference.path) for role, reference in references.items()}
    return {role: usage for role, usage in usages.items() if usage is not None}


def runs_code(plan: Plan) -> bool:
    """Whether a plan names Python files of the user's, which tell more of themselves when run."""
    sources = (source for step in plan.steps for source in step.inputs.values())
    builds = any(s.reference is not None and s.reference.kind == "builder" for s in sources)
    return builds or bool(code_of(plan))


def _source(source: Source, keys: Mapping[str, str], read: _Read) -> object:
    if source.step is not None:
        key = keys[source.step]
        return {"step": key, "arguments": dict(source.arguments)} if source.arguments else key
    reference = source.reference
    if reference is None:
        return None
    builds = reference.kind == "builder"
    return {
        "sha256": read.code(reference.path) if builds else read.content(reference.path),
        "function": reference.function,
        "arguments": dict(source.arguments),
    }
