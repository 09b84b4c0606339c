"""`shrink compact MODEL --output FILE.tflite`: writes the file without a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from shrink.base.foreign import JsonObject
from shrink.cli.options import print_result

if TYPE_CHECKING:
    from shrink.base.console import Console
    from shrink.contract.findings import Placing, Rewriting
    from shrink.contract.model_source import Trust
    from shrink.stages.compact.config import CompactConfig


def compact_file(
    model: str, stage: JsonObject, output: Path, force: bool, trust: Trust, console: Console
) -> None:
    """Rewrite one file, without a run, and say what became of it.

    Args:
        model: as the command line gives it.
        stage: the keys of the stage.
        output: the file to write.
        force: whether to overwrite it.
        trust: what the flags say of the model's file; refused where they say anything.
        console: where progress, warnings and the result are printed.
    """
    from shrink.compact.targets.names import PLACED
    from shrink.contract.findings import Placing, Rewriting
    from shrink.contract.job import CompactJob
    from shrink.contract.usage import check_free, keep_record, record_of
    from shrink.model.reference import parse_model_reference, refuse_idle_trust
    from shrink.run.tool import run_tool

    config = _config(model, stage)
    reference = parse_model_reference(model, Path.cwd())
    refuse_idle_trust(trust, [reference])
    known = record_of(reference.path)  # before the target may take its place
    target = output.resolve()
    check_free(target, force, has_record=bool(known))
    job = CompactJob(
        name=str(reference),
        model=reference.source(),
        target=target,
        runtime=config.target,
        arguments=config.arguments,
    )
    if config.target in PLACED:
        placed = run_tool(job, Placing, console)
        keep_record(target, known, console.warn, same_tensors=False)
        print_result(placed, console, placed_lines)
    else:
        rewritten = run_tool(job, Rewriting, console)
        keep_record(target, known, console.warn, same_tensors=False)
        print_result(rewritten, console, compaction_lines)


def _config(model: str, stage: JsonObject) -> CompactConfig:
    """Return the stage's configuration, refused in the words of a recipe where it is wrong."""
    from shrink.base.errors import RecipeError
    from shrink.cli.options import help_hint
    from shrink.data.config import NO_DATA
    from shrink.recipe.load import recipe_from_mapping
    from shrink.recipe.plan import build_plan
    from shrink.recipe.single import Sections, single_recipe
    from shrink.stages.compact.config import CompactConfig

    value = single_recipe("compact", model, NO_DATA, [{"compact": stage}], Sections(), Path.cwd())
    try:
        config = build_plan(recipe_from_mapping(value, "shrink compact")).recipe.stages[0]
    except RecipeError as error:
        error.hint = error.hint or help_hint("shrink compact")
        raise
    assert isinstance(config, CompactConfig), "the recipe has this stage"
    return config


def placed_lines(result: Placing) -> list[str]:
    """Return where the operators of a file run, for people."""
    from shrink.report.placement import sentences_of

    left = [
        f"on the CPU  {'-' if one.operator is None else one.operator} {one.kind}, {one.tensor}: "
        f"{one.reason}"
        for one in result.placement.on_cpu
    ]
    before, after = result.file_bytes_before, result.file_bytes
    same = f"file        {before:,} -> {after:,} bytes" if result.changed else ""
    return [
        *(f"placed      {line}" for line in sentences_of(result.placement)),
        *left,
        *filter(None, [same]),
        f"written     {result.path}{'' if result.changed else ', the same bytes'}",
    ]


def compaction_lines(result: Rewriting) -> list[str]:
    """Return what became of a file, for people."""
    before, after = result.arena_before, result.arena_after
    if not result.changed:
        return [
            f"unchanged   {result.reason}",
            *_int8_lines(result),
            f"arena       {before:,} bytes",
            f"written     {result.path}, the same bytes",
        ]
    share = result.macs_after / max(1, result.macs_before) - 1
    equality = result.equality
    assert equality is not None, "a changed file is compared"
    needs = ", ".join(result.new_operators) or "none"
    return [
        f"arena       {before:,} -> {after:,} bytes ({after / before - 1:+.1%}); this order of "
        f"operators needs at least {result.bound_bytes:,}",
        f"MACs        {result.macs_before:,} -> {result.macs_after:,} ({share:+.1%})",
        f"file        {result.file_bytes_before:,} -> {result.file_bytes:,} bytes",
        f"operators   new to a firmware's resolver: {needs}",
        f"outputs     equal to the byte on {equality.examples} inputs in "
        f"{', '.join(equality.runtimes)}"
        + ("" if equality.distinct else "; all inputs give the same outputs: weak evidence"),
        *_int8_lines(result),
        *(f"done        {line}" for line in result.done),
        *([f"warning     {result.caution}"] if result.caution else []),
        *_kernels_of(result),
        f"written     {result.path}",
    ]


def _kernels_of(result: Rewriting) -> list[str]:
    """Return why no kernel is stored otherwise, or what runs a file in which some are."""
    if result.decode is None:
        return []
    if not result.decode.changed:
        return [f"kernels     all dense: {result.decode.reason}"]
    return [
        "runtime     TFLite Micro alone, with AddDecode() in its resolver; LiteRT refuses the file"
    ]


def _int8_lines(result: Rewriting) -> list[str]:
    """Return what became of inputs and outputs that are not int8."""
    made = [
        f"{one.side:<12}{one.name} is int8 in place of {one.given_type}, scale "
        f"{one.scale:.9g}, zero point {one.zero_point}"
        for one in result.borders
    ]
    return made + [f"left        {line}" for line in result.borders_left]
