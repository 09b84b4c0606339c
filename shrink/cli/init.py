"""`shrink init`: a first recipe, written from a look at a model and its data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from shrink.cli.examples import epilog
from shrink.cli.options import JsonFlag, QuietFlag
from shrink.cli.verbs import ModelArgument


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("init", epilog=epilog("init"))(init)


def init(
    model: ModelArgument,
    data: Annotated[
        str,
        typer.Option(
            "--data",
            metavar="D",
            help="A source (digits), a folder of pictures, an .npz, .h5 or .csv file, or a YAML "
            "file.",
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", metavar="FILE", help="The recipe to write.")
    ] = Path("recipe.yaml"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite a recipe.")] = False,
    json_: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Look at a model and its data, and write a first recipe with gates."""
    from shrink.base import files
    from shrink.base.console import Console
    from shrink.recipe.load import load_recipe
    from shrink.recipe.plan import build_plan

    console = Console(as_json=json_, quiet=quiet)
    if output.exists() and not force:
        from shrink.base.errors import RecipeError

        raise RecipeError("it is there already", subject=output, hint="overwrite it with --force")
    text, found = _written(model, data, output, console)
    files.write_text(output, text)
    plan = build_plan(load_recipe(output))
    stages = [step.name for step in plan.steps]
    if json_:
        console.document({"path": str(output), "stages": stages, "found": found})
        return
    console.print(str(output))
    if not quiet:
        console.say(f"{' -> '.join(stages)}; run it: shrink run {output}")


def _written(model: str, data: str, output: Path, console: Any) -> tuple[str, dict[str, Any]]:
    from shrink.contract.codec import from_plain
    from shrink.contract.job import FirstLookJob
    from shrink.contract.result import FirstLook
    from shrink.data.config import DataConfig
    from shrink.data.early import check_early
    from shrink.model.reference import parse_model_reference
    from shrink.recipe.data_reference import parse_named_data
    from shrink.recipe.load import validate_section
    from shrink.recipe.single import first_recipe, recipe_name
    from shrink.run.tool import run_tool

    reference = parse_model_reference(model, Path.cwd())
    named = parse_named_data(data, Path.cwd())
    section = validate_section(DataConfig, named.data, data)
    check_early(section)
    config = section.model_dump(mode="json")
    job = FirstLookJob(name=str(reference), model=reference.source(), data=config, task=named.task)
    found = run_tool(job, console)
    look = from_plain(FirstLook, found)
    return first_recipe(recipe_name(model), reference, named, look, output.parent), found
