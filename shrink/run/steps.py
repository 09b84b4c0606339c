"""The steps of a plan: which are run, and the jobs of their workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from shrink.base.errors import RecipeError, hint_for
from shrink.contract.job import Demand, StepJob
from shrink.contract.model_source import ModelSource
from shrink.recipe.plan import Plan, Step
from shrink.run.keys import records_of, step_settings
from shrink.run.lineage import Splits
from shrink.run.store import Store


def selected_steps(plan: Plan, last: str | None) -> tuple[Step, ...]:
    """Return the steps up to `last`, all without it."""
    if last is None or not any(step.name == last for step in plan.steps):
        return plan.steps
    return plan.steps[: plan.step(last).index + 1]


def check_step_names(plan: Plan, first: str | None, last: str | None) -> None:
    """Raise `RecipeError` where `--from` or `--until` name no step, or leave nothing between."""
    names = [step.name for step in plan.steps]
    for flag, name in (("--from", first), ("--until", last)):
        if name is not None and name not in names:
            raise RecipeError(f"{flag}: no stage is called {name!r}", hint=hint_for(name, names))
    if first is not None and last is not None and names.index(first) > names.index(last):
        raise RecipeError(
            f"--from {first} begins after --until {last} has ended",
            hint=f"the order is {' -> '.join(names)}",
        )


def demands_of(steps: Sequence[Step]) -> tuple[Demand, ...]:
    """Return what each of these steps needs.

    Examples and models are opened in workers alone: the first one checks what later steps need,
    which would else be refused after the training before them.
    """
    demands = []
    for step in steps:
        if (config := step.config) is None:
            continue
        demand = Demand(
            step.name,
            config.needs_classes,
            step.training.class_weights if config.reads_training else None,
            records=records_of(step),
        )
        before = _steps_between(step, steps)
        if before is not None and all(one.config.keeps_layers for one in before if one.config):
            demand = replace(
                demand,
                student=step.inputs["model"].arguments,
                blocks=config.removes_blocks,
                exclude=tuple(getattr(config, "exclude", ())),
            )
        if before is not None and all(_keeps_operators(one) for one in before):
            demand = replace(demand, micro=config.needs_micro)
        demands.append(demand)
    return tuple(demands)


def _steps_between(step: Step, steps: Sequence[Step]) -> list[Step] | None:
    """Return the steps from the model that the first one starts from to that of a later one.

    None for the first step, and for a step that starts from another model.
    """
    source, start = step.inputs["model"], steps[0].inputs["model"]
    by_name = {one.name: one for one in steps}
    if step is steps[0]:
        return None
    found: list[Step] = []
    while (source.step, source.reference) != (start.step, start.reference):
        if (before := by_name.get(source.step or "")) is None:
            return None
        found.append(before)
        source = before.inputs["model"]
    return found


def _keeps_operators(step: Step) -> bool:
    """Whether a step leaves every layer that the model has, of whatever size."""
    known = step.kind in ("train", "prune", "cluster", "distill")
    return step.config is None or (known and not step.config.removes_blocks)


def task_model(plan: Plan) -> Path | None:
    """Return the file of the recipe's model, whose own loss is taken where the recipe has none."""
    reference = plan.steps[0].inputs["model"].reference
    return None if reference is None or reference.function else reference.path


def step_job(
    plan: Plan,
    step: Step,
    later: Sequence[Step],
    inputs: Mapping[str, ModelSource],
    splits: Splits,
    store: Store,
    key: str,
) -> StepJob:
    """Return all that a worker needs to know of a step.

    Args:
        plan: that the step is of.
        step: to be computed.
        later: steps, whose demands the first worker looks at.
        inputs: models by role.
        splits: how the data is divided.
        store: where checkpoints and teacher outputs are.
        key: of the step.
    """
    settings = step_settings(plan, step)
    # A limit is kept within or ends the step; where nothing is trained no figure tells of it.
    limits = {"memory_limit", "host_memory_limit"}
    training = settings.training.model_dump(mode="json", exclude=limits)
    training |= step.training.model_dump(include=limits)
    return StepJob(
        name=step.name,
        kind=step.kind,
        config=step.config.model_dump(mode="json", by_alias=True) if step.config else None,
        epochs=step.epochs,
        training=training,
        inputs=inputs,
        preserves=step.preserves,
        data=splits.data(settings.data).model_dump(mode="json"),
        task=settings.task,
        split_seed=splits.seed,
        earlier_splits=tuple(splits.files[one] for one in splits.earlier),
        task_model=task_model(plan),
        usage=plan.usage,
        checkpoints=store.checkpoints(key),
        teachers=store.teachers,
        sensitivities=store.sensitivities,
        demands=demands_of((step, *later)),
        gated=tuple(plan.recipe.gates) if plan.recipe.task.metrics is None else (),
    )


PLAN_NAME = "plan.json"
"""Where a run folder keeps what its steps depended on, for the next preview."""
