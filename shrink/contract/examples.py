"""The identity of the test examples of a run, to compare two runs."""

from __future__ import annotations

import hashlib

from shrink.contract.report import DataSet, Report, Stage

SPLITS = "splits"
_BY_PLACE = ("python",)
"""Sources whose fingerprint holds where they are."""


def tested_on(report: Report, stage: Stage) -> str | None:
    """Return a hash of the examples that a stage's metrics are of, whatever their order.

    By the content of the examples where the report has it; else by the data's fingerprint, with
    which all runs of one recipe and seed are alike. None where neither is known.
    """
    data = report.data or DataSet()
    known = data.test_examples or data.fingerprint
    if known is None or stage.examples is None:
        return None
    return hashlib.sha256(f"{known} {stage.examples}".encode()).hexdigest()[:16]


def other_examples(now: DataSet | None, then: DataSet | None) -> str | None:
    """Return how the test examples of two runs differ; None where nothing known of them does.

    Where both reports have the hash of the test examples, it decides, whatever file they are in.
    """
    if now is None or then is None:
        return None
    prints, tests = (now.fingerprint, then.fingerprint), (now.test_examples, then.test_examples)
    if tests[0] is not None and tests[0] == tests[1]:
        return None
    if None not in prints and prints[0] != prints[1] and now.source not in _BY_PLACE:
        return "other data"
    counts = [(data.examples or {}).get("test") for data in (now, then)]
    if None not in tests or (None not in counts and len({*counts}) > 1):
        return "other test examples"
    return None
