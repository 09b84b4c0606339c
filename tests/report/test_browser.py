"""report.html in a real browser: nothing wider than the screen, nothing on the console."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.report.plain import render_html
from tests.report.test_tables import audited, layer, operator
from tests.report.toys import outcome, outcomes, report, with_result

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


_CONTRAST = """
<iframe id="f" width="1000" height="800" style="border:0" srcdoc="{page}"></iframe>
<script>
const parse = text => text.match(/[0-9.]+/g).map(Number);
const luminance = ([r, g, b]) => [r, g, b].map(v => v / 255)
  .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
addEventListener("load", () => {{
  const page = document.getElementById("f").contentDocument, view = page.defaultView;
  page.querySelectorAll("details").forEach(d => d.open = true);
  const background = e => {{
    for (; e; e = e.parentElement) {{
      const found = parse(view.getComputedStyle(e).backgroundColor);
      if (found.length === 3 || found[3] === 1) return found;
    }}
    return [255, 255, 255];
  }};
  const own = e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
  const shown = e => e.getClientRects().length && !e.closest(".skip, title, desc, style");
  const texts = [...page.querySelectorAll("body *")].filter(e => own(e) && shown(e));
  const faint = texts.filter(e => {{
    const style = view.getComputedStyle(e), isDrawn = e.tagName === "text";
    const pair = [parse(isDrawn ? style.fill : style.color), background(e)].map(luminance);
    return (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05) < 4.5;
  }}).map(e => e.outerHTML.slice(0, 80));
  const dark = luminance(background(page.body)) < 0.1;
  document.title = JSON.stringify({{texts: texts.length, faint, dark}});
}});
</script>
"""

_WITHOUT_SCRIPTS = """
<iframe id="off" width="800" height="800" sandbox="allow-same-origin" srcdoc="{page}"></iframe>
<iframe id="on" width="800" height="800" srcdoc="{page}"></iframe>
<script>
addEventListener("load", () => {{
  const measure = id => {{
    const body = document.getElementById(id).contentDocument.body;
    return [body.innerText.length, body.scrollHeight, body.querySelectorAll("svg").length];
  }};
  document.title = JSON.stringify({{off: measure("off"), on: measure("on")}});
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


def titled(dumped: str) -> dict[str, Any]:
    """What the wrapper's script has written into its own title."""
    title = re.search("<title>(.*?)</title>", dumped)
    assert title is not None
    result: dict[str, Any] = json.loads(html.unescape(title[1]))
    return result


def long_page() -> str:
    name = "a-stage-with-a-very-long-name-" * 3
    stages = [*outcomes(), outcome(name, 95, 13_000, "prune")]
    rows = {"layers": [layer("conv" + "z" * 80, 100)], **audited([operator("ELU", 9.0)])}
    stages[0] = with_result(stages[0], details=rows)
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
    result = titled(dumped)
    assert result["texts"] > 1000
    # The frame's own scroll bar takes some of its width.
    assert width - 20 <= result["clientWidth"] <= width
    assert (result["scrollWidth"], result["wide"]) == (result["clientWidth"], [])


@pytest.mark.parametrize(("scheme", "is_dark"), [("0", True), ("1", False)])
def test_page_has_the_contrast_of_aa_in_every_text(
    tmp_path: Path, scheme: str, is_dark: bool
) -> None:
    wrapper = tmp_path / "wrapper.html"
    wrapper.write_text(_CONTRAST.format(page=html.escape(long_page())), "utf-8")
    dumped = browse(wrapper, "--dump-dom", f"--blink-settings=preferredColorScheme={scheme}")
    result = titled(dumped.stdout)
    assert result["texts"] > 100
    assert (result["dark"], result["faint"]) == (is_dark, [])


def test_page_reads_the_same_with_scripts_off(tmp_path: Path) -> None:
    wrapper, page = tmp_path / "wrapper.html", html.escape(long_page())
    wrapper.write_text(_WITHOUT_SCRIPTS.format(page=page), "utf-8")
    result = titled(browse(wrapper, "--dump-dom").stdout)
    assert result["off"] == result["on"]
    assert result["off"][0] > 1000
    script = html.escape("<p>text</p><script>document.body.innerText = 'changed'</script>")
    wrapper.write_text(_WITHOUT_SCRIPTS.format(page=script), "utf-8")
    control = titled(browse(wrapper, "--dump-dom").stdout)
    assert control["off"] != control["on"]


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
