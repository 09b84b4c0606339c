"""The notebooks under examples/ run from the first cell to the last."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


def test_there_are_three_notebooks_without_outputs() -> None:
    names = [path.stem for path in NOTEBOOKS]
    assert names == ["device-budget", "first-model", "from-tfmot"]
    for path in NOTEBOOKS:
        cells = nbformat.read(path, as_version=4).cells
        assert not any(cell.get("outputs") for cell in cells)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
