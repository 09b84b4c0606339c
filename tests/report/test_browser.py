"""report.html in a real browser: nothing wider than the screen, nothing on the console."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from shrink.report.html import render_html
from tests.report.toys import outcome, outcomes, report

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine"),
]
# A frame has any width, a window on a desktop has not. What is meant to scroll by itself, or is
# kept for screen readers only, may be wider.
_MEASURE = """
<iframe id="f" width="{width}" height="800" style="border:0" srcdoc="{page}"></iframe>
<script>
addEventListener("load", () => {{
  const page = document.getElementById("f").contentDocument;
  page.querySelectorAll("details").forEach(d => d.open = true);
  const apart = "pre, .skip, thead, .wide *";
  const wide = [...page.querySelectorAll("body *")].filter(e => !e.closest(apart)
    && e.getBoundingClientRect().right > {width} + 0.5).map(e => e.outerHTML.slice(0, 80));
  const {{scrollWidth, clientWidth}} = page.documentElement;
  const result = {{scrollWidth, clientWidth, wide, texts: page.body.innerText.length}};
  document.title = JSON.stringify(result);
}});
</script>
"""


def browse(path: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    assert BROWSER is not None
    profile = f"--user-data-dir={path.parent / 'profile'}"
    quiet = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", profile)
    network = ("--disable-background-networking", "--host-resolver-rules=MAP * ~NOTFOUND")
    return subprocess.run(
        [BROWSER, *quiet, *network, *flags, path.as_uri()],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )


def long_page() -> str:
    name = "a-stage-with-a-very-long-name-" * 3
    stages = [*outcomes(), outcome(name, 95, 13_000, "prune")]
    limits = {"tflite_bytes": 10, "accuracy_drop": {"limit": 0.01, "confidence": 0.95}}
    built = report(stages, limits, finals=("quantize", name))
    built["command"] = "shrink run " + "x" * 300
    built["resolved_recipe"] = "name: " + "y" * 300
    return render_html(built)


@pytest.mark.parametrize("width", [320, 360, 768, 1280])
def test_page_never_scrolls_sideways(tmp_path: Path, width: int) -> None:
    wrapper = tmp_path / "wrapper.html"
    wrapper.write_text(_MEASURE.format(width=width, page=html.escape(long_page())), "utf-8")
    dumped = browse(wrapper, "--dump-dom", "--window-size=1400,900").stdout
    title = re.search("<title>(.*?)</title>", dumped)
    assert title is not None
    result = json.loads(html.unescape(title[1]))
    assert result["texts"] > 1000
    # The frame's own scroll bar takes some of its width.
    assert width - 20 <= result["clientWidth"] <= width
    assert (result["scrollWidth"], result["wide"]) == (result["clientWidth"], [])


def test_page_says_nothing_on_the_console(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(long_page(), encoding="utf-8")
    done = browse(path, "--dump-dom", "--enable-logging=stderr")
    assert "<svg" in done.stdout
    assert "CONSOLE" not in done.stderr


def test_console_is_watched(tmp_path: Path) -> None:
    path = tmp_path / "loud.html"
    path.write_text("<script>console.error('heard')</script>", encoding="utf-8")
    assert "heard" in browse(path, "--dump-dom", "--enable-logging=stderr").stderr
