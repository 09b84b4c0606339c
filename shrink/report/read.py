"""A saved report, checked before anything is made of it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from shrink.base.errors import InputError
from shrink.report.shape import SCHEMA_VERSION, shape_problem


def read_report(path: Path) -> dict[str, Any]:
    """Read a report from a `report.json` or from the run folder that holds one.

    Raises:
        InputError: it is missing, unreadable, no report, or of another schema version.
    """
    file = path / "report.json" if path.is_dir() else path
    try:
        report = json.loads(
            file.read_text(encoding="utf-8"), parse_float=_finite, parse_constant=_finite
        )
    except FileNotFoundError as error:
        raise InputError(
            "there is no report here", subject=file, hint="name the folder of a finished run"
        ) from error
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", subject=file) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"is not JSON: {error}", subject=file) from error
    if not isinstance(report, dict) or "schema_version" not in report:
        raise InputError("is not a report of shrink", subject=file)
    if report["schema_version"] != SCHEMA_VERSION:
        raise InputError(
            f"has schema version {report['schema_version']!r}, and this shrink reads "
            f"{SCHEMA_VERSION}",
            subject=file,
            hint="use the version of shrink that wrote it, or run the recipe again",
        )
    if (problem := shape_problem(report)) is not None:
        raise InputError(f"is not a report of shrink: {problem}", subject=file)
    return report


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a finite number")
    return number
