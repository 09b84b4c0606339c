"""Images that cannot be decoded: found in parallel, cached, and skipped up to a limit."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import astuple, replace

from shrink.base import files
from shrink.base.cache import entry_path, keep, key_of
from shrink.base.errors import DataError
from shrink.base.packages import versions
from shrink.data.config import DataConfig
from shrink.data.decoding import ImageDecoder
from shrink.data.fingerprint import fingerprint
from shrink.data.folders import shown
from shrink.data.source_table import SourceTable

_CHUNK = 64
_MOST_NAMED = 10


class SkippedNote(str):
    """A note on examples that were left out, as they cannot be decoded."""


def without_bad(table: SourceTable, decoder: ImageDecoder, config: DataConfig) -> SourceTable:
    """Return the rows whose images can be decoded, with a note on the others for the report.

    The first stage looks at every image; later ones, and later runs on the same files, read its
    findings from the cache folder.

    Args:
        table: the images.
        decoder: decides what can be used.
        config: the `data` section.

    Raises:
        DataError: more than `config.bad_examples_limit` cannot be decoded.
    """
    every = [file for split in table.splits for file in table.files(split)]
    bad = remembered_bad_files(every, decoder, config)
    if not bad:
        return table
    named = ", ".join(shown(path) for path in list(bad)[:_MOST_NAMED])
    more = f" and {len(bad) - _MOST_NAMED} more" if len(bad) > _MOST_NAMED else ""
    if len(bad) > config.bad_examples_limit * len(every):
        raise DataError(
            f"{len(bad)} of {len(every):,} images cannot be decoded, more than "
            f"{config.bad_examples_limit:.2%}: {named}{more}",
            subject=shown(config.path or ""),
            hint=f"shrink data check {shown(config.path or '')} shows why; repair them, or raise "
            "data.bad_examples_limit",
        )
    note = f"skipped {len(bad)} of {len(every):,} images that cannot be decoded: {named}{more}"
    kept = {
        split: rows[[file not in bad for file in table.files(split)]]
        for split, rows in table.splits.items()
    }
    return replace(table, splits=kept, notes=(*table.notes, SkippedNote(note)))


def remembered_bad_files(
    paths: Sequence[str],
    decoder: ImageDecoder,
    config: DataConfig,
    on_progress: Callable[[int], None] | None = None,
) -> dict[str, str]:
    """Return what is wrong with each bad image, from the cache folder where it was found out.

    Args:
        paths: of all images.
        decoder: decides what can be used.
        config: the `data` section.
        on_progress: called with the number of images done since the last call.
    """
    decoders = json.dumps(versions())
    settings = [fingerprint(config), decoders, *map(str, astuple(decoder)), *sorted(paths)]
    memory = entry_path("checked", key_of(*settings), ".json")
    try:
        known = json.loads(memory.read_text("utf-8", "surrogateescape"))
        if isinstance(known, dict) and known.keys() <= set(paths):
            return {path: str(text) for path, text in known.items()}
    except (OSError, ValueError):
        pass
    errors: dict[str, str] = {}
    for start in range(0, len(paths), _CHUNK):
        chunk = paths[start : start + _CHUNK]
        errors |= decoder.errors_of(chunk)
        if on_progress is not None:
            on_progress(len(chunk))
    keep(memory, files.encoded(files.json_text(errors)))
    return errors
