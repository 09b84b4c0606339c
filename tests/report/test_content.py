"""The recipe that a report holds."""

from __future__ import annotations

from typing import Any

import pytest

from shrink.recipe.resolution import recipe_text
from shrink.report import page
from tests.report.plain import recipe_of
from tests.report.toys import report


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (recipe_text({"model": "größer.keras"}), {"model": "größer.keras"}),
        (recipe_text({"model": "gr\udcc3\udcb6sser.keras"}), {"model": "gr��sser.keras"}),
        ("no: [recipe", {}),
        ("just text", {}),
        (None, {}),
    ],
    ids=["text", "bytes that are no text", "no YAML", "no mapping", "none"],
)
def test_recipe_of_reads_what_can_be_shown(text: str | None, expected: dict[str, Any]) -> None:
    assert dict(recipe_of(report() | {"resolved_recipe": text})) == expected


def test_titles_of_folds_are_text_within_an_html_tag() -> None:
    fold = page.Fold("quantize_int8 \\ <b> @me: losses", ("shown_here",))
    shown = page.to_markdown(page.Page("", "", "fine", "good", (page.Section("", (fold,)),)))
    assert "<summary>quantize_int8 \\ &lt;b&gt; @\u200bme: losses</summary>" in shown
    assert "shown\\_here" in shown
