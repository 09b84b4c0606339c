"""Reads a report.json, of this version or an earlier one."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

from shrink.base.cache import REPORT_NAME
from shrink.base.errors import InputError
from shrink.contract.codec import ContractError, from_plain
from shrink.contract.report import SCHEMA_VERSION, Report

_NAME_RUN = "name the folder of a finished run"


def report_of(document: Mapping[str, object]) -> Report:
    """Return the report that a document of JSON is.

    Raises:
        ContractError: it is none; the message names the place, such as `stages[2].size`.
    """
    return from_plain(Report, document)


def read_report(path: Path) -> Report:
    """Read a report from a `report.json` or from the run folder that holds one.

    Raises:
        InputError: it is missing, unreadable, no report, or of another schema version.
    """
    file = path / REPORT_NAME if path.is_dir() else path
    try:
        document = json.loads(
            file.read_text(encoding="utf-8"), parse_float=_finite, parse_constant=_finite
        )
    except FileNotFoundError as error:
        raise InputError("there is no report here", subject=file, hint=_NAME_RUN) from error
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", subject=file) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"is not JSON: {error}", subject=file, hint=_NAME_RUN) from error
    if not isinstance(document, dict) or "schema_version" not in document:
        raise InputError("is not a report of shrink", subject=file, hint=_NAME_RUN)
    if document["schema_version"] != SCHEMA_VERSION:
        raise InputError(
            f"has schema version {document['schema_version']!r}, and this shrink reads "
            f"{SCHEMA_VERSION}",
            subject=file,
            hint="use the version of shrink that wrote it, or run the recipe again",
        )
    try:
        return report_of(document)
    except ContractError as error:
        raise InputError(f"is not a report of shrink: {error}", subject=file) from error


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a finite number")
    return number
