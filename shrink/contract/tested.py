"""Which test examples a run was measured on, as its folder says it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from shrink.contract.report import Report, Stage

LINEAGE_NAME = "lineage.json"
SPLITS = "splits"
_BYTES = 8
"""Of the hash of an example; see `shrink.data.membership`, which writes the files."""


def tested_on(folder: Path, report: Report, stage: Stage) -> str | None:
    """Return a hash of the examples that a stage's metrics are of, whatever their order.

    By the content of the examples where the run folder tells it; else by the data's fingerprint,
    with which all runs of one recipe and seed are alike. None where neither is known.

    Args:
        folder: of the run.
        report: of the run.
        stage: of the report.
    """
    # What a baseline was trained on is not always what it is tested on here.
    by_content = _by_content(folder, stage) if stage.kind != "baseline" else None
    fingerprint = report.data.fingerprint if report.data else None
    told = by_content or fingerprint
    if told is None or stage.examples is None:
        return None
    return hashlib.sha256(f"{told} {stage.examples}".encode()).hexdigest()[:16]


def _by_content(folder: Path, stage: Stage) -> str | None:
    try:
        lineage = json.loads((folder / LINEAGE_NAME).read_text("utf-8"))[str(stage.sha256)]
        path = folder / SPLITS / f"{lineage['links'][-1]['splits']}.bin"
        head, _, body = path.read_bytes().partition(b"\n")
        count = int(json.loads(head)["counts"]["test"])
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None
    begin = len(body) - count * _BYTES
    if count == 0 or begin < 0:
        return None
    examples = sorted(body[at : at + _BYTES] for at in range(begin, len(body), _BYTES))
    return hashlib.sha256(b"".join(examples)).hexdigest()
