"""What pages say of a report: its recipe, and what trainings could not keep to."""

from __future__ import annotations

from typing import Any

import pytest

from shrink.recipe.resolution import recipe_text
from shrink.report import page
from tests.report.plain import recipe_of, render_markdown
from tests.report.toys import outcomes, report, with_result


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


def test_notes_say_what_a_training_could_not_keep_to() -> None:
    event = {"step": 3, "micro_batch_size": 64, "evidence": "OOM"}
    why = "statistics are per micro-batch and replica; training.batch_norm: frozen keeps them"
    training = {
        "replicas": 2,
        "micro_batch_size": 32,
        "accumulation_steps": 4,
        "oom_events": [event],
        "exact": False,
        "inexact_because": [f"bn_1: {why}", f"bn_2: {why}", "a loss compares examples"],
    }
    first, *rest = outcomes()
    text = render_markdown(report([with_result(first, training=training), *rest]))
    for note in (
        "each batch is trained as 4 micro-batches of at most 32 examples on each of 2 replicas; "
        "1 update ran out of memory with larger ones",
        f"training is not exact: bn\\_1, bn\\_2: {why.replace('_', chr(92) + '_')}",
        "training is not exact: a loss compares examples",
    ):
        assert f"- **train**: {note}\n" in text
    wholes = [f"loss {number} compares examples" for number in range(8)]
    training |= {"inexact_because": wholes, "micro_batch_size": None}
    text = render_markdown(report([with_result(first, training=training), *rest]))
    assert all(f"- **train**: training is not exact: {one}\n" in text for one in wholes)
    assert "trained as 4 micro-batches on each of 2 replicas; 1 update ran out" in text
    plain = render_markdown(report())
    assert "not exact" not in plain
    assert "micro-batch" not in plain
