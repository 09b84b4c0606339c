"""Errors about arrays in memory name the argument, not the file that they were written to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import shrink
from shrink.api.given import verb_sections

X, Y = np.zeros((40, 4), np.float32), np.arange(40) % 2
DATA: dict[str, Callable[[], object]] = {
    "rows that differ": lambda: (X, Y[:39]),
    "rows that differ between splits": lambda: ((X, Y), (X, Y[:3])),
    "a table in the place of numbers": lambda: (np.full((40, 4), None), Y),
}


@pytest.mark.parametrize("data", DATA.values(), ids=DATA)
def test_data_errors_name_the_argument(
    data: Callable[[], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHRINK_CACHE_DIR", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text("def build():\n    raise RuntimeError\n", encoding="utf-8")
    with pytest.raises(shrink.ShrinkError) as caught:
        shrink.train("net.py:build", data=data(), epochs=1, quiet=True)  # type: ignore[arg-type]
    told = f"{caught.value.subject} {caught.value.message}"
    assert str(tmp_path) not in told
    assert caught.value.exit_code == 3, told


def test_only_evaluate_takes_gates() -> None:
    assert verb_sections("evaluate", {"gates": {"accuracy": 0.9}}).gates == {"accuracy": 0.9}
    with pytest.raises(shrink.ShrinkError, match="expected a mapping, not a float"):
        verb_sections("evaluate", {"gates": 0.9})
    with pytest.raises(shrink.ShrinkError, match="unknown key 'gates'"):
        verb_sections("prune", {"gates": {"accuracy": 0.9}})
