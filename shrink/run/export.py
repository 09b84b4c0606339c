"""Exports: what needs Keras in a worker, a C array right here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shrink.console import Console
from shrink.errors import ModelError, RecipeError
from shrink.model.trust import NO_TRUST, Trust
from shrink.recipe.reference import ModelReference
from shrink.run import files
from shrink.run.tool import run_tool
from shrink.tflite.cc_array import array_paths, cc_array

_ENDINGS = {"keras": "export.keras", "keras3": "keras3.keras", "savedmodel": "saved-model"}


def export_model(
    reference: ModelReference,
    format_name: str,
    output: Path | None,
    force: bool,
    console: Console,
    trust: Trust = NO_TRUST,
) -> dict[str, Any]:
    """Write a model in another form.

    Args:
        reference: the model or artifact.
        format_name: `keras`, `keras3`, `savedmodel` or `cc-array`.
        output: a file (`keras`, `keras3`) or a folder; by default beside the model.
        force: overwrite what is there.
        console: told what happens.
        trust: what the model's file may hold that is not Keras' own.

    Returns:
        `format` and the `paths` written.
    """
    if format_name == "cc-array":
        return {"format": format_name, "paths": _export_array(reference, output, force)}
    if reference.form != "keras":
        raise ModelError(
            f"a graph without Keras' layers cannot become a {format_name} again",
            subject=reference.path,
            hint="export the Keras model that it was made from",
        )
    suffix = "" if format_name == "savedmodel" else ".keras"
    stem = reference.path.with_suffix("")
    target = output or stem.with_name(f"{stem.name}-{_ENDINGS[format_name]}")
    if suffix and target.suffix != suffix:
        raise RecipeError("a Keras file's name ends in .keras", subject=target)
    _check_free([target], force)
    settings = {"format": format_name, "target": str(target.resolve())}
    run_tool("export", reference, console, trust, **settings)
    return {"format": format_name, "paths": [str(target)]}


def _export_array(reference: ModelReference, output: Path | None, force: bool) -> list[str]:
    if reference.kind != "tflite":
        raise ModelError(
            "a C array is made of a .tflite file",
            subject=reference.path,
            hint="quantize the model first: shrink quantize MODEL --data D",
        )
    header, source = cc_array(reference.path.read_bytes(), reference.path.stem)
    paths = array_paths(output or reference.path.parent, reference.path.stem)
    _check_free(list(paths), force)
    for path, text in zip(paths, (header, source), strict=True):
        files.write_text(path, text)
    return [str(path) for path in paths]


def _check_free(paths: list[Path], force: bool) -> None:
    for path in paths:
        if path.exists() and not force:
            raise RecipeError(
                "it is there already", subject=path, hint="choose --output, or --force to overwrite"
            )
