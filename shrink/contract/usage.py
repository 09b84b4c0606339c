"""The record of how an artifact is used: `artifacts/metadata.json`, and the same in the cache.

    artifacts/metadata.json    beside the artifacts of a run, an entry for each
    lineages/<sha256>.json     in the cache, under `usage`: for copies and exported forms

An entry counts for the very file whose SHA-256 it has, and for no other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from shrink.base import files
from shrink.base.cache import cache_root, keep, lineage_path
from shrink.base.foreign import JsonObject
from shrink.contract.codec import ContractError, from_plain, to_plain
from shrink.contract.details import Details, Usage
from shrink.contract.report import DataSet, Report, Stage

ARTIFACTS = "artifacts"
METADATA_NAME = f"{ARTIFACTS}/metadata.json"
VOCABULARY_NAME = f"{ARTIFACTS}/vocabulary.txt"
_VERSION = 1
_ARENAS = ("arena_bytes", "arena_32_bytes", "arena_32_reference_bytes")


def metadata(report: Report, report_sha256: str) -> dict[str, object]:
    """Return what `artifacts/metadata.json` says, from the report alone.

    Args:
        report: the report.
        report_sha256: of the `report.json` that holds it.

    Returns:
        `recipe`; `report_sha256`; and in `artifacts` an entry for each finished artifact, .tflite
        files first: `file`, `sha256`, the fields of `Usage`, `metrics` and the `examples` they are
        of; and of a compacted one `arena_bytes`, its estimates for 32 bits and the kinds of
        `operators` that the firmware's resolver needs.
    """
    finished = [stage for stage in report.stages if stage.artifact]
    return {
        "schema_version": _VERSION,
        "recipe": to_plain(report.recipe),
        "report_sha256": report_sha256,
        "artifacts": [
            _entry(report, stage)
            for stage in sorted(finished, key=lambda stage: not _is_tflite(stage))
        ],
    }


def _is_tflite(stage: Stage) -> bool:
    return (stage.artifact or "").endswith(".tflite")


def _entry(report: Report, stage: Stage) -> JsonObject:
    usage = complete_usage(stage.told, report.recipe.name, report.data)
    entry = {
        "file": str(stage.artifact).rpartition("/")[2],
        "sha256": stage.sha256,
        **to_plain(usage),
        "metrics": to_plain(stage.metrics),
        "examples": stage.examples,
    }
    if stage.told.compact:
        entry |= {name: stage.figure(name) for name in _ARENAS}
        entry["operators"] = sorted({row.name for row in stage.told.operators})
    return entry


def complete_usage(details: Details, recipe: str, data: DataSet | None) -> Usage:
    """Return an artifact's record: what its stage says, with what the run knows."""
    known = data or DataSet()
    return replace(
        details.interface or Usage(),
        task=details.task,
        recipe=recipe,
        fingerprint=known.fingerprint,
        test_examples=known.test_examples,
    )


def vocabulary(report: Report) -> dict[str, str]:
    """Return the file of tokens, a line each, where a model of texts has any."""
    usages = (stage.told.interface for stage in reversed(report.stages) if stage.artifact)
    tokens = next((one.vocabulary for one in usages if one is not None and one.vocabulary), ())
    return {VOCABULARY_NAME: vocabulary_text(tokens)} if tokens else {}


def vocabulary_text(tokens: Iterable[str]) -> str:
    """Return the file of tokens: one a line, whose number from 0 is its id."""
    return "".join(f"{token}\n" for token in tokens)


def read_usage(artifact: Path) -> Usage | None:
    """Return the record of an artifact; None where no run of shrink wrote one for this file.

    Args:
        artifact: a file, or the folder of a SavedModel.
    """
    with contextlib.suppress(OSError):
        digest = files.sha256(artifact)
        for entry in _entries(artifact, digest):
            with contextlib.suppress(ContractError):
                return replace(from_plain(Usage, entry, unknown="drop"))
    return None


def _entries(artifact: Path, digest: str) -> Iterator[Mapping[str, object]]:
    beside = files.read_mapping(artifact.parent / Path(METADATA_NAME).name).get("artifacts")
    entries = [one for one in beside if isinstance(one, dict)] if isinstance(beside, list) else []
    same = [one for one in entries if one.get("sha256") == digest]
    yield from sorted(same, key=lambda one: one.get("file") != artifact.name)
    known = files.read_mapping(lineage_path(cache_root(), digest)).get("usage")
    if isinstance(known, dict):
        yield known


def vocabulary_file(artifact: Path, usage: Usage) -> Path:
    """Return the file that holds the tokens of an artifact's record; it is written if need be."""
    text = vocabulary_text(usage.vocabulary)
    beside = artifact.parent / Path(VOCABULARY_NAME).name
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if beside.read_text(encoding="utf-8") == text:
            return beside
    path = lineage_path(cache_root(), files.sha256(artifact)).with_suffix(".txt")
    keep(path, text.encode())
    return path
