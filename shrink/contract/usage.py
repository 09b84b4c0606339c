"""The record beside an artifact: preprocessing, labels and lineage in a JSON file.

    artifacts/metadata.json    of the artifacts of a run, an entry for each
    NAME.json                  of a single file NAME that is written outside of a run
    lineages/<identity>.json   in the cache: for copies without their record

All have the same form. An entry beside a file counts for the file with its SHA-256 and for no
other, one of the cache also for a Keras model that was loaded and saved again.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from shrink.base import files
from shrink.base.cache import cache_root, keep, key_of, lineage_path
from shrink.base.errors import RecipeError, ReportWarning, ResourceError
from shrink.base.figures import figures_of
from shrink.base.foreign import JsonObject
from shrink.contract.codec import ContractError, from_plain, to_plain
from shrink.contract.details import Details, Usage
from shrink.contract.report import DataSet, Report, Stage

ARTIFACTS = "artifacts"
METADATA_NAME = f"{ARTIFACTS}/metadata.json"
VOCABULARY_NAME = f"{ARTIFACTS}/vocabulary.txt"
_VERSION = 1
_ARENAS = tuple(name for name in figures_of("memory") if name.startswith("arena"))
_OF_THE_FILE = ("inputs", "outputs", "metrics", "examples", "operators", *_ARENAS)
_NO_USAGE = frozenset({"file", "sha256", "lineage"})
_DAMAGED = (zipfile.BadZipFile, KeyError, ValueError, EOFError, RecursionError, NotImplementedError)
OF_ANOTHER_FILE = "record-of-another-file"


def metadata(
    report: Report, report_sha256: str, lineages: Mapping[str, JsonObject]
) -> dict[str, object]:
    """Return the content of `artifacts/metadata.json`.

    Args:
        report: the report.
        report_sha256: of the `report.json` that holds it.
        lineages: by the SHA-256 of each artifact (`shrink.run.lineage`).

    Returns:
        `recipe`; `report_sha256`; and in `artifacts` an entry for each finished artifact, .tflite
        files first: `file`, `sha256`, the fields of `Usage`, `metrics` and the `examples` they are
        of, `lineage`; and of a compacted one the arena, its estimates and the kinds of `operators`
        that the firmware's resolver needs.
    """
    finished = [stage for stage in report.stages if stage.artifact]
    return {
        "schema_version": _VERSION,
        "recipe": to_plain(report.recipe),
        "report_sha256": report_sha256,
        "artifacts": [
            _entry(report, stage, lineages)
            for stage in sorted(finished, key=lambda s: not str(s.artifact).endswith(".tflite"))
        ],
    }


def _entry(report: Report, stage: Stage, lineages: Mapping[str, JsonObject]) -> JsonObject:
    usage = complete_usage(stage.extra, report.recipe.name, report.data)
    entry = {
        "file": str(stage.artifact).rpartition("/")[2],
        "sha256": stage.sha256,
        **to_plain(usage),
        "metrics": to_plain(stage.metrics),
        "examples": stage.examples,
    }
    if lineage := lineages.get(stage.sha256 or ""):
        entry["lineage"] = lineage
    if stage.extra.compact:
        entry |= {name: stage.figure(name) for name in _ARENAS}
        entry["operators"] = sorted({row.name for row in stage.extra.operators})
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
    usages = (stage.extra.interface for stage in reversed(report.stages) if stage.artifact)
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
    for entry in record_entries(artifact):
        with contextlib.suppress(ContractError):
            if entry.keys() - _NO_USAGE:
                return from_plain(Usage, entry)
    return None


def record_entries(artifact: Path) -> Iterator[JsonObject]:
    """Yield the entries for the content of an artifact: those beside it, then the cache's."""
    with contextlib.suppress(OSError):
        digest = files.sha256(artifact)
        beside = [one for one in _beside(artifact) if one.get("sha256") == digest]
        yield from sorted(beside, key=lambda one: one.get("file") != artifact.name)
        yield from _artifacts(lineage_path(cache_root(), identity(artifact)))


def identity(artifact: Path) -> str:
    """Return the SHA-256 of a Keras model's layers and weights, of any other file its own."""
    digest = files.sha256(artifact)
    return _layers_and_weights(artifact, digest) if artifact.suffix == ".keras" else digest


@functools.lru_cache(maxsize=64)
def _layers_and_weights(archive: Path, sha256: str) -> str:
    """Hash what is the same when Keras saves a model again without the weights of an optimizer.

    Those are in the same HDF5 file. It may come from anywhere, and only workers parse such files.
    """
    try:
        with zipfile.ZipFile(archive) as members:
            # Keras packs nothing, so that no more than the file is read.
            if any(one.compress_type != zipfile.ZIP_STORED for one in members.infolist()):
                return sha256
            config = json.loads(members.read("config.json"), object_hook=_as_built)
            with members.open("model.weights.h5") as file:
                weights = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
            return key_of(json.dumps(config, sort_keys=True), weights)
    except _DAMAGED:
        return sha256


def _as_built(config: JsonObject) -> JsonObject:
    """Leave out of a layer how it is trained, and what was an address."""
    changing = ("compile_config", "trainable", "shared_object_id")
    return {key: one for key, one in config.items() if key not in changing}


def _beside(artifact: Path) -> list[JsonObject]:
    shared = artifact.with_name(Path(METADATA_NAME).name)
    return [*_artifacts(record_path(artifact)), *_artifacts(shared)]


def _artifacts(record: Path) -> list[JsonObject]:
    found = files.read_mapping(record).get("artifacts")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def lineages_in(run: Path) -> dict[str, JsonObject]:
    """Return the lineages that a run folder has of its artifacts, by their SHA-256."""
    known = {one.get("sha256"): one.get("lineage") for one in _artifacts(run / METADATA_NAME)}
    return {str(sha256): one for sha256, one in known.items() if isinstance(one, dict)}


def record_path(artifact: Path) -> Path:
    """Return where the record of a single file is, beside it."""
    return artifact.with_name(f"{artifact.name}.json")


def record_of(artifact: Path) -> JsonObject:
    """Return what all entries say of an artifact; nothing where there are none."""
    return _merged(record_entries(artifact))


def cached_record(known_as: str) -> JsonObject:
    """Return what the cache says of the artifacts of an `identity`."""
    return _merged(_artifacts(lineage_path(cache_root(), known_as)))


def _merged(several: Iterable[JsonObject]) -> JsonObject:
    found: JsonObject = {}
    for entry in several:
        found |= {key: one for key, one in entry.items() if found.get(key) is None}
    return found


def write_record(artifact: Path, known: JsonObject, *, same_tensors: bool = True) -> None:
    """Write the record of a single file beside it, and into the cache; nothing where it is empty.

    Args:
        artifact: a file, or the folder of a SavedModel.
        known: from `record_of` the model that it is a copy or another form of.
        same_tensors: whether its inputs, outputs and figures are those of that model.

    Raises:
        ResourceError: the disk is full.
    """
    if not known:
        return
    left_out = () if same_tensors else _OF_THE_FILE
    own = {key: one for key, one in known.items() if key not in left_out}
    own |= {"file": artifact.name, "sha256": files.sha256(artifact)}
    document = {"schema_version": _VERSION, "artifacts": [own]}
    files.write_json(record_path(artifact), document)
    cached = lineage_path(cache_root(), identity(artifact))
    files.write_json(cached, {**files.read_mapping(cached), **document})


def check_free(
    artifact: Path, force: bool, *, has_record: bool = True, recipe: str | None = None
) -> None:
    """Refuse to write a file where that would replace a file of the user's.

    Args:
        artifact: the file to write, or the folder of a SavedModel.
        force: whether to replace files.
        has_record: whether `write_record` is to write its record.
        recipe: the name of the recipe that makes it. An artifact of the same recipe is replaced,
            so that the same command can run again.

    Raises:
        RecipeError: the file exists, or the place of its record is taken by another file.
        ResourceError: its folder cannot be written to.
    """
    files.make_folder(artifact.absolute().parent)
    if force:
        return
    place, hint = record_path(artifact), "choose --output, or --force to overwrite"
    if artifact.exists() and (recipe is None or record_of(artifact).get("recipe") != recipe):
        raise RecipeError("the file exists", subject=artifact, hint=hint)
    if has_record and place.exists() and not any("sha256" in one for one in _artifacts(place)):
        why = f"the file exists, and the record of {artifact.name} would replace it"
        raise RecipeError(why, subject=place, hint=hint)


def keep_record(
    artifact: Path, known: JsonObject, warn: Callable[[str], None], *, same_tensors: bool = True
) -> None:
    """Write the record of a file that is complete; where that fails, warn and go on."""
    try:
        write_record(artifact, known, same_tensors=same_tensors)
    except (OSError, ResourceError) as error:
        where = "beside it"
        hint = "write it to another folder, or state how its inputs are made where you use it"
        if str(cache_root()) in str(error):
            where = "in the cache, which knows copies"
            hint = "copy the file with its record, or choose another place with SHRINK_CACHE_DIR"
        why = str(error).partition("\n")[0]  # its own hint is about the file
        warn(f"{artifact} is written, but not its record {where}: {why}\n  hint: {hint}")


def stale_record(artifact: Path) -> tuple[ReportWarning, ...]:
    """Return a warning where the record beside a file is that of other content."""
    named = [one for one in _beside(artifact) if one.get("file") == artifact.name]
    with contextlib.suppress(OSError):
        digest = files.sha256(artifact)
        if named and all(one.get("sha256") != digest for one in named):
            message = f"{artifact}: the record beside it belongs to another file and is ignored"
            hint = "copy the record that belongs to the file, or state how its inputs are made"
            return (ReportWarning(OF_ANOTHER_FILE, message, hint),)
    return ()


def vocabulary_file(artifact: Path, usage: Usage) -> Path:
    """Return the file that holds the tokens of an artifact's record; it is written if need be."""
    text = vocabulary_text(usage.vocabulary)
    beside = artifact.parent / Path(VOCABULARY_NAME).name
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if beside.read_text(encoding="utf-8") == text:
            return beside
    path = lineage_path(cache_root(), identity(artifact)).with_suffix(".txt")
    keep(path, text.encode())
    return path
