"""Which steps of a plan are run: `--from` and `--until`."""

from __future__ import annotations

from shrink.base.errors import RecipeError
from shrink.base.suggest import hint_for
from shrink.recipe.plan import Plan, Step


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
