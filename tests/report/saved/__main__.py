"""Prints a digest of all that is made of reports, to compare two versions of shrink by.

Run: python -m tests.report.saved [FOLDER...], with folders of run folders beside the stored ones.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
from pathlib import Path

from rich.console import Console

from shrink.base.files import json_text
from shrink.contract.codec import to_plain
from shrink.contract.report import Report
from shrink.contract.report_file import report_of
from shrink.report.ci import gate_annotations, output_lines
from shrink.report.diff import diff_reports, render_diff_markdown, render_diff_terminal
from shrink.report.run_files import render
from shrink.report.sections import render_report
from tests.report.saved import NAMES, saved


def renderings(report: Report, other: Report) -> dict[str, str]:
    """All texts that are made of a report, and of its difference to another one."""
    found = {"report.json": json_text(to_plain(report)), **render(report, {})}
    changes = diff_reports(report, other)
    found["diff.json"] = json_text(to_plain(changes))
    found["diff.md"] = render_diff_markdown(changes)
    for width in (60, 100, 200):
        stream = io.StringIO()
        console = Console(file=stream, width=width)
        render_report(report, console, Path("runs"))
        render_diff_terminal(changes, console)
        found[f"terminal-{width}"] = stream.getvalue()
    found["outputs"] = output_lines(report, Path("runs"))
    found["annotations"] = "\n".join(gate_annotations(report, {"GITHUB_ACTIONS": "true"}))
    return found


def main() -> None:
    """Print a line per text."""
    documents = {name: saved(name) for name in NAMES}
    for folder in sys.argv[1:]:
        for path in sorted(Path(folder).glob("*/report.json")):
            documents[str(path)] = json.loads(path.read_text(encoding="utf-8"))
    reports = {name: report_of(document) for name, document in documents.items()}
    pairs = zip(reports.items(), [*reports.values()][1:] + [*reports.values()][:1], strict=True)
    for (name, report), other in pairs:
        for what, text in renderings(report, other).items():
            print(hashlib.sha256(text.encode()).hexdigest()[:16], name, what)  # noqa: T201


main()
