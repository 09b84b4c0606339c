"""The files of a comparison, by name."""

from __future__ import annotations

from shrink.base import files
from shrink.contract.codec import to_plain
from shrink.contract.comparison import COMPARE_NAME, Comparison
from shrink.report.compare_text import render_comparison_markdown

MARKDOWN_NAME = "compare.md"
HTML_NAME = "compare.html"
COMPARE_NAMES = (MARKDOWN_NAME, HTML_NAME, COMPARE_NAME)


def render_comparison(found: Comparison) -> dict[str, str]:
    """Return compare.md, compare.html and compare.json, each made from the comparison alone."""
    from shrink.report.compare_page import render_comparison_html

    return {
        MARKDOWN_NAME: render_comparison_markdown(found),
        HTML_NAME: render_comparison_html(found),
        COMPARE_NAME: files.json_text(to_plain(found)),
    }
