"""The memory map of a compacted file: curves, peaks and words, against figures by hand."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest

from docs.report_schema import report_schema
from tests.report.page import Page
from tests.report.plain import (
    markup,
    memory_map_plots,
    render_card,
    render_html,
    render_markdown,
)
from tests.report.test_html import HOSTILE, HOSTILE_SHOWN
from tests.report.toys import outcomes, report, with_result

BEFORE = {
    "live_bytes": [30_000, 110_000, 60_000, 5_000],
    "origins": [0, 1, 2, 3],
    "peak_operator": "DEPTHWISE_CONV_2D",
    "holders": [
        {"name": "expand/Relu6;expand/bn", "live_bytes": 55_000, "size_bytes": 55_000},
        {"name": "depthwise/Relu6", "live_bytes": 55_000, "size_bytes": 55_000},
    ],
}
AFTER = {
    # The first three operators in two bands, with a slice before each and a concatenation.
    "live_bytes": [20_000, 25_000, 40_000, 30_000, 20_000, 25_000, 40_000, 30_000, 30_000, 5_000],
    "origins": [None, 0, 1, 2, None, 0, 1, 2, None, 3],
    "peak_operator": "DEPTHWISE_CONV_2D",
    "holders": [{"name": "in", "live_bytes": 20_000, "size_bytes": 20_000}]
    + [{"name": f"t{n}", "live_bytes": 5_000, "size_bytes": 55_000} for n in range(4)],
}


def compacted(**told: Any) -> dict[str, Any]:
    *first, quantize = outcomes()
    return report([*first, with_result(quantize, details={"compact": told})])


def built() -> dict[str, Any]:
    return compacted(changed=True, memory_before=BEFORE, memory_after=AFTER)


def lines(drawn: str) -> dict[str, list[tuple[float, float]]]:
    """Corners of each curve in percent, from the lower left, by its class."""
    return {
        line.attrib["class"]: [
            (float(x), 100 - float(y))
            for x, y in (point.split(",") for point in line.attrib["points"].split())
        ]
        for line in ElementTree.fromstring(drawn).iter("polyline")
    }


def test_memory_map_plots_draw_every_operator_before_and_after() -> None:
    (plot,) = memory_map_plots(built())
    found = lines(markup(plot))
    before, after = found["curve val_loss"], found["curve loss"]
    assert [x for x, _ in before] == [0, 25, 25, 50, 50, 75, 75, 100]
    heights = [y for _, y in before[::2]]
    tallest = heights[1]
    shares = [each / 11 for each in (3, 11, 6, 0.5)]
    assert heights == pytest.approx([tallest * share for share in shares], abs=0.02)
    # Two operators run before the second of the given file, six while its third is the furthest.
    assert len(after) == 20
    steps = [b[0] - a[0] for a, b in zip(after[::2], after[1::2], strict=True)]
    assert steps == pytest.approx([25 / 2] * 2 + [25] + [25 / 6] * 6 + [25], abs=0.02)
    assert after[4][1] == pytest.approx(tallest * 40 / 110, abs=0.02)


def test_memory_map_plots_mark_and_name_the_peaks() -> None:
    (plot,) = memory_map_plots(built())
    root = ElementTree.fromstring(markup(plot))
    labels = [t.text for t in root.iter("text") if "label" in t.attrib["class"].split()]
    assert labels == ["2 DEPTHWISE_CONV", "2 DEPTHWISE_CONV"]
    assert [c.attrib["class"] for c in root.iter("circle")] == ["dot val_loss", "dot loss"]
    assert plot.caption == (
        "At most 40,000 bytes of activations at operator 3 of 10 (DEPTHWISE_CONV_2D, a band of "
        "2), held by in (20,000), t0 (5,000 of 55,000), t1 (5,000 of 55,000) and 2 more; before, "
        "110,000 bytes of activations at operator 2 of 4 (DEPTHWISE_CONV_2D), held by "
        "expand/Relu6 (55,000) and depthwise/Relu6 (55,000)."
    )
    assert plot.caption in ElementTree.tostring(root, encoding="unicode")
    titles = [t.text for t in root.iter("text") if "title" in t.attrib["class"].split()]
    assert titles == ["operator of the given file", "activations that are needed (bytes)"]


def test_every_report_names_what_holds_the_peak() -> None:
    document = built()
    (plot,) = memory_map_plots(document)
    told = "held by expand/Relu6 (55,000) and depthwise/Relu6 (55,000)."
    page = Page(render_html(document))
    assert plot.caption in page.text
    assert "Memory by operator" in page.text
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    assert set(" ".join(page.values("aria-labelledby")).split()) <= set(ids)
    assert "script" not in page.tags()
    assert "## Memory by operator\n\n- **quantize**: at most 40,000" in render_markdown(document)
    assert told.replace("_", "\\_") in render_markdown(document)
    assert told in render_card(document, "ab" * 32)
    assert "Memory by operator" not in render_html(report()) + render_markdown(report())
    jsonschema.validate(document, report_schema())


def test_names_of_tensors_are_escaped() -> None:
    holders = [{"name": HOSTILE, "live_bytes": 1, "size_bytes": 2}]
    before = {**BEFORE, "holders": holders, "peak_operator": HOSTILE}
    page = Page(render_html(compacted(memory_before=before, memory_after=AFTER)))
    assert page.tags().isdisjoint({"img", "script"})
    assert any(HOSTILE_SHOWN in data for tag, data in page.texts if tag == "title")


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        ({"changed": True}, "Compacted, its arena takes 64.0 KB instead of 110 KB."),
        ({"changed": False, "reason": "it is small"}, ""),
    ],
)
def test_the_headline_says_what_became_of_the_arena(told: dict[str, Any], sentence: str) -> None:
    shown = Page(render_html(compacted(arena_before=110_000, arena_after=64_000, **told))).text
    assert ("Compacted, its arena" in shown) is bool(sentence)
    assert sentence in shown
