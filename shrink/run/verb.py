"""A verb as a recipe of one stage, from a command line or a call in Python."""

from __future__ import annotations

from pathlib import Path

from shrink.base.console import Console
from shrink.base.errors import RecipeError
from shrink.base.fields import parse_memory
from shrink.base.foreign import JsonObject
from shrink.contract.findings import Profile
from shrink.contract.job import ProfileJob
from shrink.contract.model_source import Trust
from shrink.model.reference import parse_model_reference
from shrink.recipe.data_reference import NamedData
from shrink.recipe.load import recipe_from_mapping
from shrink.recipe.plan import Plan, build_plan
from shrink.recipe.single import Sections, single_recipe
from shrink.run.lineage import named_code
from shrink.run.session import RUNS, free_name
from shrink.run.tool import run_tool
from shrink.stages import STAGES


def verb_recipe(
    verb: str,
    model: str,
    sections: Sections,
    data: str | NamedData | None,
    custom_objects: Path | None,
) -> JsonObject:
    """Return a verb's recipe, of one stage or none; paths start from the current folder.

    Args:
        verb: its name.
        model: as the command line names it.
        sections: the keys that were given, by section.
        data: as the command line names it, or what it stands for; None for that of the model's run.
        custom_objects: the Python file whose objects the model names.

    Raises:
        RecipeError: see `single_recipe`.
    """
    stages = [{verb: sections.stage}] if verb in STAGES else []
    code = None if custom_objects is None else custom_objects.resolve()
    return single_recipe(verb, model, data, stages, sections, Path.cwd(), code, named_code)


def plan_verb(recipe: JsonObject, said: str, hint: str, console: Console | None = None) -> Plan:
    """Return the plan of a verb's recipe.

    Args:
        recipe: from `verb_recipe`.
        said: what stands for the recipe's file in errors, such as `shrink prune`.
        hint: of errors that have none.
        console: prints the other name that a plan gets where its folder holds another run; None to
            keep its name.

    Raises:
        RecipeError: a key or a value is wrong.
    """
    try:
        plan = build_plan(recipe_from_mapping(recipe, said))
    except RecipeError as error:
        for problem in (error, *error.others):
            problem.hint = problem.hint or hint
        raise
    if console is None or (name := free_name(plan)) == recipe["name"]:
        return plan
    console.say(f"{RUNS / recipe['name']} holds another run; this run goes to {RUNS / name}")
    return build_plan(recipe_from_mapping({**recipe, "name": name}, said))


def profile_model(
    model: str,
    batch_size: int,
    memory_limit: object,
    trace: Path | None,
    custom_objects: Path | None,
    trust_model: bool,
    console: Console,
) -> Profile:
    """Measure the memory of a training step of a model, as the command line names it.

    Raises:
        RecipeError: the limit is no size.
        ShrinkError: the model cannot be used, or memory gives out.
    """
    try:
        limit = None if memory_limit is None else parse_memory(memory_limit)
    except ValueError as error:
        raise RecipeError(str(error), subject="--memory-limit") from error
    reference = parse_model_reference(model, Path.cwd())
    code = None if custom_objects is None else custom_objects.resolve()
    job = ProfileJob(
        name=str(reference),
        model=reference.source(Trust(code, trust_model)),
        batch_size=batch_size,
        memory_limit=limit,
        trace=None if trace is None else trace.resolve(),
    )
    return run_tool(job, Profile, console)
