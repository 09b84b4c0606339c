"""The files that are made from a report alone, by their names in the run folder."""

from __future__ import annotations

import hashlib

from shrink.base import files
from shrink.contract.codec import to_plain
from shrink.contract.report import Report
from shrink.report.card import render_card
from shrink.report.ci import render_junit
from shrink.report.content import flat_metrics
from shrink.report.markdown import render_markdown
from shrink.report.metadata import metadata

ARTIFACTS = "artifacts"
MARKDOWN_NAME = "report.md"
HTML_NAME = "report.html"
JUNIT_NAME = "junit.xml"
METRICS_NAME = "metrics.json"
CARD_NAME = "model-card.md"
METADATA_NAME = f"{ARTIFACTS}/metadata.json"
RENDERED = (MARKDOWN_NAME, HTML_NAME, JUNIT_NAME, METRICS_NAME, CARD_NAME, METADATA_NAME)
"""Every name that `render` returns."""


def render(report: Report) -> dict[str, str]:
    """Return the files that show a report, by name: each is made from it alone."""
    from shrink.report.html import render_html  # jinja2: only a run that ends needs it

    digest = hashlib.sha256(files.json_text(to_plain(report)).encode()).hexdigest()
    return {
        MARKDOWN_NAME: render_markdown(report),
        HTML_NAME: render_html(report),
        JUNIT_NAME: render_junit(report),
        METRICS_NAME: files.json_text(flat_metrics(report)),
        CARD_NAME: render_card(report, digest),
        METADATA_NAME: files.json_text(metadata(report, digest)),
    }
