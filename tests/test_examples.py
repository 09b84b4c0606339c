"""The notebooks under examples/ run from the first cell to the last."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = [
    ROOT / "examples" / f"{name}.ipynb" for name in ("device-budget", "first-model", "from-tfmot")
]


def cells(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return found


def test_notebooks_show_a_table_and_no_log() -> None:
    found = sorted((ROOT / "examples").glob("*.ipynb"))
    assert [path for path in found if path.stem != "gpu-check"] == NOTEBOOKS
    for path in NOTEBOOKS:
        text = str([cell.get("outputs") for cell in cells(path)])
        assert "<table>" in text
        assert "oneDNN" not in text
        assert "/tmp/" not in text


def test_the_notebook_for_gpus_runs_the_documented_check() -> None:
    code = [c for c in cells(ROOT / "examples" / "gpu-check.ipynb") if c["cell_type"] == "code"]
    text = "".join(line for cell in code for line in cell["source"])
    assert "-m tests.benchmarks.gpu --minutes 20 --output gpu.md" in text
    assert all(cell["outputs"] == [] for cell in code)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("SHRINK_CACHE_DIR", str(tmp_path / "store"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=1200, resources=resources).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    tables = [one["data"]["text/html"] for one in shown if "text/html" in one.get("data", {})]
    assert any("<table>" in table for table in tables)
    told = "".join(one["text"] for one in shown if one.get("name") == "stderr")
    assert "quantize" in told
