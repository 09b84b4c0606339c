"""The files of a comparison, by name."""

from __future__ import annotations

from pathlib import Path

from shrink.base import files
from shrink.base.errors import RecipeError
from shrink.contract.codec import ContractError, from_plain, to_plain
from shrink.contract.comparison import COMPARE_NAME, Comparison
from shrink.report.compare_text import render_comparison_markdown

MARKDOWN_NAME = "compare.md"
HTML_NAME = "compare.html"
COMPARE_NAMES = (MARKDOWN_NAME, HTML_NAME, COMPARE_NAME)


def check_overwritten(folder: Path, hint: str) -> None:
    """Raise `RecipeError` where a file that a comparison would overwrite is not shrink's.

    Args:
        folder: that the comparison will lie in.
        hint: what to do instead.
    """
    there = [name for name in COMPARE_NAMES if (folder / name).exists()]
    if not there:
        return
    try:
        from_plain(Comparison, files.read_mapping(folder / COMPARE_NAME), unknown="drop")
    except ContractError:
        raise RecipeError(
            f"it is not shrink's ({COMPARE_NAME} there is no comparison), and would be overwritten",
            subject=folder / there[0],
            hint=hint,
        ) from None


def render_comparison(found: Comparison) -> dict[str, str]:
    """Return compare.md, compare.html and compare.json, each made from the comparison alone."""
    from shrink.report.compare_page import render_comparison_html

    return {
        MARKDOWN_NAME: render_comparison_markdown(found),
        HTML_NAME: render_comparison_html(found),
        COMPARE_NAME: files.json_text(to_plain(found)),
    }
