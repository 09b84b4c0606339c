"""Why a stage failed: what its worker printed, kept to be read, and errors in the user's words."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from shrink.base import files
from shrink.base.errors import ShrinkError
from shrink.run.process import LOG_NAME

_MOST_KEPT = 20


def with_kept_log(error: ShrinkError, work: Path, folder: Path, name: str) -> ShrinkError:
    """Keep the worker's log, and return the error with a hint that names it.

    Args:
        error: changed in place.
        work: the worker's folder, which goes with it.
        folder: of the kept logs; the newest 20 stay.
        name: of this one, without a suffix.
    """
    try:
        text = (work / LOG_NAME).read_text(encoding="utf-8", errors="replace")
        files.make_folder(folder)
        path = folder / f"{name}.log"
        files.write_text(path, text)
        by_age = sorted(folder.glob("*.log"), key=lambda one: one.stat().st_mtime)
        for old in by_age[:-_MOST_KEPT]:
            old.unlink(missing_ok=True)
    except OSError:  # a full disk must not hide why the stage failed
        return error
    error.hint = f"{error.hint or 'read the log'} (all that was said: {path})"
    return error


def with_names_of_the_user(error: ShrinkError, called: Mapping[str, str]) -> ShrinkError:
    """Return an error that names no file of the store, which nobody wrote.

    Args:
        error: changed in place.
        called: by path in the store, what the user calls the file.
    """
    for path, name in called.items():
        error.message = error.message.replace(path, name)
        error.subject = error.subject and error.subject.replace(path, name)
        error.hint = error.hint and error.hint.replace(path, name)
    return error
