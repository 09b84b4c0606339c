"""`shrink validate`, `schema`, `recipes` and `init`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shrink.base import files
from shrink.base.console import Console
from shrink.base.errors import InputError, RecipeError, together
from shrink.base.foreign import JsonObject
from shrink.cli.options import (
    AlwaysJsonFlag,
    JsonFlag,
    ModelArgument,
    QuietFlag,
    RecipesArgument,
    SetOption,
)
from shrink.recipe.bundle import bundled_recipes, bundled_schema, find_recipe

if TYPE_CHECKING:
    from shrink.contract.result import FirstLook


def validate(
    recipes: RecipesArgument,
    set_: SetOption = None,
    json_: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:

    console = Console(as_json=json_, quiet=quiet)
    checked: list[JsonObject] = []
    problems: list[RecipeError] = []
    for recipe in recipes:
        try:
            valid = _check(recipe, set_ or [])
        except RecipeError as error:
            problems.append(error)
            continue
        except InputError as error:
            problems.append(
                RecipeError(f"{recipe}: {error.message}", subject=error.subject, hint=error.hint)
            )
            continue
        checked.append(valid)
        for warning in valid["warnings"]:
            console.warn(warning)
        if not json_ and not quiet:
            stages = " -> ".join(valid["stages"]) or valid["recipe"]
            console.print(f"{recipe}: valid ({stages})")
    if problems:
        raise together(problems)
    if json_:
        console.document(checked[0] if len(recipes) == 1 else {"recipes": checked})


def _check(recipe: str, overrides: list[str]) -> JsonObject:
    """Return the name of a recipe, its stages in order, and what is missing yet.

    Raises:
        RecipeError: the recipe is wrong.
        InputError: its model or data cannot be used; a missing one is only a warning.
    """
    from shrink.data.config import source_of
    from shrink.recipe.matrix import load_variants
    from shrink.recipe.plan import build_plan

    variants = load_variants(find_recipe(recipe), overrides)
    found: JsonObject = {"valid": True, "recipe": variants.each[0].loaded.recipe.name}
    try:
        plan, *_ = [build_plan(one.loaded) for one in variants.each]
        if plan.data_path is None or plan.data_path.exists():
            source_of(plan.recipe.data.source).check(plan.recipe.data)
    except InputError as error:
        if error.subject is not None and Path(error.subject).exists():
            raise  # this model or data can never be used; a missing one may come later
        return {**found, "stages": [], "warnings": [str(error)]}
    missing = plan.data_path is not None and not plan.data_path.exists()
    warnings = [f"{plan.data_path}: the data is not here"] if missing else []
    return {**found, "stages": [step.name for step in plan.steps], "warnings": warnings}


def schema(json_: AlwaysJsonFlag = True, quiet: QuietFlag = False) -> None:
    """Print the JSON Schema of a recipe, for editors."""

    Console(as_json=json_, quiet=quiet).document(bundled_schema())


def recipes(json_: JsonFlag = False, quiet: QuietFlag = False) -> None:
    """List the bundled recipes, each runnable by its name."""

    console = Console(as_json=json_, quiet=quiet)
    bundled = bundled_recipes()
    if json_:
        console.document(
            [{"name": r.name, "summary": r.summary, "path": str(r.path)} for r in bundled]
        )
        return
    width = max((len(r.name) for r in bundled), default=0)
    for recipe in bundled:
        console.print(f"{recipe.name:<{width}}  {recipe.summary}")


def init(
    model: ModelArgument,
    data: Annotated[
        str,
        typer.Option(
            "--data",
            metavar="D",
            help="A source (digits), a folder of images, an .npz, .h5 or .csv file, or a YAML "
            "file.",
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The recipe to write.")
    ] = Path("recipe.yaml"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite a recipe.")] = False,
    json_: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Write a first recipe with gates for a model and its data."""
    from shrink.contract.codec import to_plain
    from shrink.recipe.load import load_recipe
    from shrink.recipe.plan import build_plan

    console = Console(as_json=json_, quiet=quiet)
    if output.exists() and not force:
        raise RecipeError("the file exists", subject=output, hint="overwrite it with --force")
    text, look = _written(model, data, output, console)
    files.write_text(output, text)
    plan = build_plan(load_recipe(output))
    stages = [step.name for step in plan.steps]
    if json_:
        console.document({"path": str(output), "stages": stages, "found": to_plain(look)})
        return
    console.print(str(output))
    if not quiet:
        console.say(f"{' -> '.join(stages)}; run it: shrink run {output}")


def _written(model: str, data: str, output: Path, console: Console) -> tuple[str, FirstLook]:
    from shrink.contract.job import FirstLookJob
    from shrink.contract.result import FirstLook
    from shrink.data.config import DataConfig, source_of
    from shrink.model.reference import parse_model_reference
    from shrink.recipe.data_reference import NO_EXAMPLES_LEFT, parse_named_data
    from shrink.recipe.load import validate_section
    from shrink.recipe.single import first_recipe, recipe_name
    from shrink.run.tool import run_tool

    reference = parse_model_reference(model, Path.cwd())
    named = parse_named_data(data, Path.cwd())
    section = validate_section(DataConfig, named.data, data)
    if section.test_split == 1:
        raise RecipeError(
            NO_EXAMPLES_LEFT, subject=data, hint="lower it, or evaluate alone: shrink evaluate"
        )
    source_of(section.source).check(section)
    config = section.model_dump(mode="json")
    job = FirstLookJob(name=str(reference), model=reference.source(), data=config, task=named.task)
    look = run_tool(job, FirstLook, console)
    return first_recipe(recipe_name(model), reference, named, look, output.parent), look
