"""Makes anew what the documentation shows of runs, so that no figure in it goes stale.

Run: python -m docs.refresh [recipes] [schema] [reference] [plot] [requirements] [notebooks]
                            [page]

Everything without a word. `recipes` writes recipes/README.md from the recipes' first comments;
`schema` writes docs/report.schema.json and compare.schema.json from their types; `reference`
writes docs/reference/; `plot` draws
docs/accuracy-against-size.svg from the points beside it; `requirements` writes
requirements-tflite.txt from pyproject.toml; `notebooks` runs those under examples/ (minutes) and
keeps what they show. `page` runs `recipes/tones-keyword.yaml` for docs/example-report.html and
`recipes/digits.yaml` for docs/report.png in an empty cache, which takes two minutes on an idle
machine. The picture needs a Chromium. Run it on a machine that does nothing else: both show
latencies.
"""

from __future__ import annotations

import argparse
import html
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docs import reference_pages
from docs.report_schema import compare_schema_text, report_schema_text
from shrink.base.packages import KERAS_PACKAGES
from shrink.recipe.bundle import bundled_recipes

ROOT = Path(__file__).parents[1]
POINTS = ROOT / "docs" / "accuracy-against-size.jsonl"
_RECIPE = "recipes/digits.yaml"
_EXAMPLE = "recipes/tones-keyword.yaml"
_WORDS = ("recipes", "schema", "reference", "plot", "requirements", "notebooks", "page")
_WINDOW = "1340,500"
_BESIDE = """<body style="margin:0;display:flex;background:#fff">
<pre style="margin:0;padding:24px 18px;width:604px;background:#16202c;color:#dfe7ee;font:12px/1.45
DejaVu Sans Mono,monospace">{terminal}</pre>
<iframe src="report.html" style="flex:none;border:0;width:1110px;height:780px;
transform:scale(.645);transform-origin:0 0"></iframe>"""
"""The page of the picture: a terminal of 80 columns, and the head of the report."""


@dataclass(frozen=True)
class Run:
    """One run of a recipe: its folder and standard output."""

    folder: Path
    output: str


def recipes_page() -> str:
    """Return recipes/README.md: every bundled recipe with what it does."""
    rows = [f"| [{r.name}]({r.path.name}) | {r.summary} |" for r in bundled_recipes()]
    head = (
        "# Recipes",
        "",
        "Each runs by its name, such as `shrink run digits`; those of digits download nothing.",
        "This page is made from the recipes by `python -m docs.refresh recipes`.",
        "",
        "| recipe | what it does |",
        "|---|---|",
    )
    return "\n".join([*head, *rows]) + "\n"


def plot() -> str:
    """Return docs/accuracy-against-size.svg, of the points that the benchmark has measured."""
    from tests.benchmarks.bench_peers_plot import drawn

    return drawn([json.loads(line) for line in POINTS.read_text(encoding="utf-8").splitlines()])


def requirements_tflite() -> str:
    """Return the packages that commands on .tflite files and saved reports need."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = {text: re.split(r"[<>=!~ ]", text)[0] for text in project["dependencies"]}
    kept = [text for text, name in names.items() if name not in KERAS_PACKAGES]
    return "\n".join(
        (
            "# For .tflite files (compact, evaluate, inspect, bench, export) and saved reports "
            "(diff, compare, report).",
            "# Made from pyproject.toml by `python -m docs.refresh requirements`.",
            *kept,
            "",
        )
    )


def shown_output(output: str) -> str:
    """Return a run's output as the picture shows it: without notes, cached stages, skips."""
    parts = output.strip().split("\n\n")
    left_out = ("notes", "skipped", "cached")
    return "\n\n".join(part for part in parts if part.partition("\n")[0] not in left_out)


def run_recipe(folder: Path, recipe: str) -> Run:
    """Run a recipe of this checkout; `folder` has the cache and the runs."""
    output = f"runs/{Path(recipe).stem}"
    settings = {"SHRINK_CACHE_DIR": str(folder / "store"), "COLUMNS": "80"}
    words = [sys.executable, "-m", "shrink", "run", str(ROOT / recipe), "--output", output]
    done = subprocess.run(
        words,
        cwd=folder,
        env={**os.environ, **settings},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return Run(folder / output, done.stdout)


def run_notebook(path: Path) -> None:
    """Run a notebook in an empty folder, and keep what its cells show, without TensorFlow's log."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(PYTHONPATH=str(ROOT), SHRINK_CACHE_DIR=f"{folder}/store")
        resources = {"metadata": {"path": folder}}
        NotebookClient(notebook, timeout=1200, resources=resources).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [one for one in cell.outputs if _is_worth_showing(one)]
    nbformat.write(notebook, path)


def _is_worth_showing(output: Any) -> bool:
    """Whether it is neither TensorFlow's log nor the address of an object."""
    if output.get("name") == "stderr":
        return re.match(r"\[\d+/\d+\]", output["text"]) is not None
    return " at 0x" not in output.get("data", {}).get("text/plain", "")


def write_image(run: Run) -> None:
    """Write docs/report.png, a run's output beside its page; say so where there is no Chromium."""
    from PIL import Image

    from tests.report.test_browser import BROWSER, browse

    if BROWSER is None:
        sys.stderr.write("docs/report.png stays as it is: there is no Chromium here\n")
        return
    target = ROOT / "docs" / "report.png"
    page = run.folder / "beside.html"
    terminal = html.escape(f"$ shrink run {_RECIPE}\n{shown_output(run.output)}")
    page.write_text(_BESIDE.format(terminal=terminal), encoding="utf-8")
    flags = (f"--screenshot={target}", f"--window-size={_WINDOW}", "--hide-scrollbars")
    browse(page, *flags, "--blink-settings=preferredColorScheme=1", "--force-device-scale-factor=2")
    Image.open(target).convert("RGB").quantize(64).save(target, optimize=True)


def write_example(run: Run) -> None:
    """Write docs/example-report.html, without paths of this machine and links to artifacts."""
    page = (run.folder / "report.html").read_text(encoding="utf-8").replace(f"{ROOT}/", "")
    page = re.sub(r'<a href="artifacts/[^"]*">(.*?)</a>', r"\1", page)
    (ROOT / "docs" / "example-report.html").write_text(page, encoding="utf-8")


def main() -> None:
    """Make anew what the words name, or everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", choices=[[], *_WORDS])
    wanted = set(parser.parse_args().what) or set(_WORDS)
    made: tuple[tuple[str, Path, Callable[[], str]], ...] = (
        ("recipes", ROOT / "recipes" / "README.md", recipes_page),
        ("schema", ROOT / "docs" / "report.schema.json", report_schema_text),
        ("schema", ROOT / "docs" / "compare.schema.json", compare_schema_text),
        ("plot", ROOT / "docs" / "accuracy-against-size.svg", plot),
        ("requirements", ROOT / "requirements-tflite.txt", requirements_tflite),
    )
    for name, path, text in made:
        if name in wanted:
            path.write_text(text(), encoding="utf-8")
    if "reference" in wanted:
        for path, page in reference_pages.pages():
            path.write_text(page, encoding="utf-8")
    if "notebooks" in wanted:
        for path in sorted((ROOT / "examples").glob("*.ipynb")):
            if path.stem != "gpu-check":  # whoever has a GPU runs it
                run_notebook(path)
    if "page" in wanted:
        with tempfile.TemporaryDirectory() as folder:
            write_example(run_recipe(Path(folder), _EXAMPLE))
            write_image(run_recipe(Path(folder), _RECIPE))


if __name__ == "__main__":
    main()
