"""`export`: Keras formats in a worker, a C array in this process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

from shrink.base import files
from shrink.base.console import Console
from shrink.base.errors import ModelError, RecipeError
from shrink.contract.details import Usage
from shrink.contract.findings import Exported, Firmware
from shrink.contract.job import ExportJob, FirmwareFactsJob
from shrink.contract.model_source import NO_TRUST, Trust
from shrink.contract.usage import check_free, keep_record, read_usage, record_of
from shrink.model.reference import ModelReference
from shrink.run.tool import run_tool
from shrink.tflite.cc_array import array_paths, cc_array

ExportFormat = Literal["keras", "keras3", "savedmodel", "cc-array"]
_SOURCE_SUFFIXES = (".cc", ".cpp", ".h")
_ENDINGS = {"keras": "export.keras", "keras3": "keras3.keras", "savedmodel": "saved-model"}


def export_model(
    reference: ModelReference,
    format_name: ExportFormat,
    output: Path | None,
    force: bool,
    console: Console,
    trust: Trust = NO_TRUST,
    name: str | None = None,
) -> list[str]:
    """Write a model in another form.

    Args:
        reference: the model or artifact.
        format_name: `keras`, `keras3`, `savedmodel` or `cc-array`.
        output: a file (`keras`, `keras3`, `.cc`) or a folder; by default beside the model.
        force: overwrite what is there.
        console: where progress and warnings are printed.
        trust: what the model's file may hold that is not Keras' own.
        name: of a C array; by default that of the run, or of the file.

    Returns:
        the paths that were written.
    """
    if format_name == "cc-array":
        return _export_array(reference, output, force, name, console)
    if name is not None:
        raise RecipeError(f"{format_name} has no name of its own", subject="--name")
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
    known = record_of(reference.path)
    check_free(target, force, has_record=bool(known))
    job = ExportJob(
        name=str(reference),
        model=reference.source(trust),
        format=format_name,
        target=target.resolve(),
    )
    run_tool(job, Exported, console)
    keep_record(target, known, console.warn)
    return [str(target)]


def _export_array(
    reference: ModelReference,
    output: Path | None,
    force: bool,
    name: str | None,
    console: Console,
) -> list[str]:
    """Write the array; `--output model.cc` names both files, anything else is their folder."""
    if reference.kind != "tflite":
        raise ModelError(
            "a C array is made of a .tflite file",
            subject=reference.path,
            hint="quantize the model first: shrink quantize MODEL --data D",
        )
    folder, stem = output or reference.path.parent, name or _array_name(reference.path)
    paths = array_paths(folder, stem)
    if output is not None and output.suffix in _SOURCE_SUFFIXES:
        stem = name or output.stem
        source = output.with_suffix(".cc") if output.suffix == ".h" else output
        paths = (output.with_suffix(".h"), source)
    for path in paths:
        check_free(path, force, has_record=False)
    job = FirmwareFactsJob(name=str(reference), model=reference.source())
    usage = read_usage(reference.path) or Usage()
    firmware = replace(
        run_tool(job, Firmware, console), labels=usage.labels or (), front_end=usage.front_end
    )
    if firmware.tflm_fails is not None:
        console.warn(f"{reference.path}: {firmware.tflm_fails}")
    content = reference.path.read_bytes()
    texts = cc_array(content, stem, firmware, paths[0].name)
    files.make_folder(paths[0].parent)
    names = [path.name for path in paths]
    files.write_together(paths[0].parent, dict(zip(names, texts, strict=True)))
    return [str(path) for path in paths]


def _array_name(artifact: Path) -> str:
    """Return the name of the run that an artifact lies in, else that of its file."""
    usage = read_usage(artifact)
    return (usage and usage.recipe) or artifact.stem
