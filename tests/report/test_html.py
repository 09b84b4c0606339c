"""report.html: whole, self-contained, accessible, and safe with any text in the report."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from shrink.contract.result import StepResult
from tests.report.page import Page
from tests.report.plain import render_html
from tests.report.test_tables import layer
from tests.report.toys import failure, outcome, outcomes, report, with_result

HOSTILE = "</title></style><img src=x onerror=alert(1)>\"'{{ 7*7 }}&amp;\x00\x1b\ud800"
HOSTILE_SHOWN = "</title></style><img src=x onerror=alert(1)>\"'{{ 7*7 }}&amp;\ufffd\ufffd\ufffd"
AA_TEXT, AA_GRAPHIC = 4.5, 3.0


def page(*arguments: Any, **settings: Any) -> Page:
    built = report(*arguments, **settings)
    built["command"] = "shrink run digits"
    built["resolved_recipe"] = "name: digits\n"
    return Page(render_html(built))


@pytest.fixture(scope="module")
def full() -> Page:
    limits = {"tflite_bytes": 10, "accuracy_drop": 0.5, "loss": {"limit": 0.01, "level": "warn"}}
    return page(gates=limits)


def test_render_html_closes_every_tag(full: Page) -> None:
    assert full.open == []


def test_render_html_says_what_got_smaller_and_what_it_cost(full: Page) -> None:
    assert "digits FAILED: 1 of 3 gates missed: tflite_bytes" in full.text
    smaller = "The TFLite file of quantize is 7.14 times smaller than that of train"
    assert f"{smaller}: 14.0 KB instead of 100 KB." in full.text
    assert "Accuracy changed by -2.00 points (95 % interval of the difference " in full.text


@pytest.mark.parametrize(
    "words",
    [
        *("train", "prune", "quantize", "PASS accuracy_drop", "FAIL tflite_bytes", "WARN loss"),
        *("14.0 KB > 10 B", "shrink run digits", "name: digits", "CPU:0", "40.0 MB", "700 MB"),
        *("Loss by epoch", "Accuracy against TFLite file size", "Tensor arena"),
    ],
)
def test_render_html_shows(full: Page, words: str) -> None:
    assert words in full.text


def test_render_html_needs_no_network_and_no_script(full: Page) -> None:
    assert "script" not in full.tags()
    assert not full.values("src")
    # The artifact lies beside the page, in the run folder.
    assert set(full.values("href")) == {"data:,", "#content", "artifacts/02-quantize.tflite"}
    assert "url(" not in full.source
    assert "@import" not in full.source
    assert "://" not in full.source
    assert not [name for _, a in full.elements for name in a if name.startswith("on")]


def test_render_html_has_unique_ids_and_names_every_image(full: Page) -> None:
    ids = full.values("id")
    assert len(ids) == len(set(ids))
    named = " ".join(full.values("aria-labelledby")).split()
    assert set(named) <= set(ids)
    assert "content" in ids
    images = [a for tag, a in full.elements if tag == "svg"]
    assert [a for a in images if a.get("role") == "img"]
    # Every image is read out by its title, or hidden because the text beside it says the same.
    inner = [a for a in images if a.get("role") != "img" and a.get("aria-hidden") != "true"]
    assert len(inner) == sum(1 for line in full.source.splitlines() if 'class="strip"' in line)


def test_render_html_lets_a_keyboard_reach_what_scrolls(full: Page) -> None:
    scrolling = [a for tag, a in full.elements if tag == "pre"]
    assert len(scrolling) == 2
    assert all(a["tabindex"] == "0" and a["aria-label"] for a in scrolling)
    assert full.elements[0] == ("html", {"lang": "en"})


def test_render_html_escapes_every_text() -> None:
    stage = replace(outcome(HOSTILE, 98, 100, None), status="done")
    stage = with_result(stage, notes=[HOSTILE], skipped=[{"layer": HOSTILE, "reason": HOSTILE}])
    error = failure(type="StageError", message=HOSTILE, hint=HOSTILE, subject=HOSTILE)
    failed = replace(outcome("b", 9, 9, HOSTILE), status="failed", result=StepResult(), error=error)
    built = report(
        [stage, outcome("c", 97, 50, HOSTILE), failed],
        {"tflite_bytes": 1, "loss": {"limit": 1, "stage": HOSTILE}},
        finals=(HOSTILE, "c"),
        baseline=HOSTILE,
        devices=[HOSTILE],
        packages={HOSTILE: HOSTILE},
    )
    built["recipe"]["name"] = built["command"] = built["resolved_recipe"] = HOSTILE
    found = Page(render_html(built))
    assert found.open == []
    assert found.tags().isdisjoint({"img", "script"})
    assert not re.search("[\x00\x1b\ud800]", found.source)
    assert found.source.encode()
    for place in ("h1", "p", "strong", "th", "title", "dt", "dd", "code", "li", "span", "desc"):
        assert any(HOSTILE_SHOWN in data for tag, data in found.texts if tag == place), place


def test_render_html_shows_a_run_that_failed_at_once() -> None:
    error = failure(type="StageError", message="the loss is NaN", hint="lower the rate")
    failed = replace(
        outcomes()[0], status="failed", result=StepResult(), error=error, artifact=None
    )
    found = page([failed], finals=())
    assert "train failed. the loss is NaN Hint: lower the rate" in found.text
    assert "polyline" not in found.tags()


def test_render_html_shows_a_run_without_stages() -> None:
    assert "No stage ran." in page([], finals=()).text


def test_render_html_stays_below_a_megabyte_and_says_what_it_cut() -> None:
    layers = [{"layer": f"layer_{i}" * 20, "reason": f"reason {i}" * 300} for i in range(200)]
    history = {"loss": [1 / (i + 1) for i in range(5_000)], "val_loss": [0.5] * 5_000}
    notes = [f"note {i}" * 100 for i in range(200)]
    stages = [
        with_result(
            outcome(f"stage-{i}", 90 + i, 100 - i, None),
            skipped=layers,
            notes=notes,
            training={"history": history, "memory_limit_bytes": 41_000_000},
            details={"layers": [layer(f"conv_{n}", n) for n in range(3_000)]},
        )
        for i in range(6)
    ]
    found = page(stages, finals=("stage-5",), baseline="stage-0")
    assert len(found.source.encode()) < 1_000_000
    assert "1000 more in report.json" in found.text
    assert "rows; all in report.json" in found.text


def sweep(count: int) -> Page:
    ends = [outcome(f"s{n}", 97 - n, 1000 - 50 * n, "train") for n in range(count)]
    return page([outcome("train", 98, 1000, None), *ends], finals=tuple(e.name for e in ends))


def test_render_html_shows_every_result_and_the_plot_before_them() -> None:
    shown = sweep(6)
    table = shown.source[shown.source.index(">Stages</h2>") :]
    assert all(cell in table for cell in ("93.00 %", "800 B", "92.00 %", "750 B"))
    source = shown.source
    first, fourth = source.index("of s0 and train are"), source.index("file of s3 is")
    assert source.index("<figure>") < first < fourth
    assert "file of s4 is" not in source
    one = page()
    assert one.source.index("The TFLite file of quantize is") < one.source.index("<figure>")


@pytest.mark.parametrize("path", ["/elsewhere/a.tflite", "../a.tflite"])
def test_render_html_links_only_to_what_lies_beside_the_page(path: str) -> None:
    shown = page([outcome("train", 98, 1000, None, artifact=path)], finals=("train",))
    assert set(shown.values("href")) == {"data:,", "#content"}
    assert path in shown.text
