"""What `shrink data check` says of targets that are no plain labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shrink.contract.job import CheckJob
from shrink.data.config import DataConfig
from shrink.tools.data_check import data_check

LABELS = np.arange(40) % 4


@pytest.mark.parametrize(
    ("y", "keys", "notes"),
    [
        (LABELS, {}, []),
        (np.eye(4)[LABELS], {}, ["targets of shape (4,) are one-hot labels"]),
        (np.tile([1, 1, 0], (40, 1)), {}, ["targets of shape (3,) are zeros and ones"]),
        (np.full((40, 2), 0.5), {}, ["targets of shape (2,) are numbers"]),
        (np.eye(4)[LABELS], {"target": "input"}, []),
    ],
)
def test_data_check_says_what_targets_look_like(
    tmp_path: Path, y: np.ndarray, keys: dict[str, Any], notes: list[str]
) -> None:
    np.savez(tmp_path / "d.npz", x=np.arange(80.0).reshape(40, 2), y=y)
    config = DataConfig.model_validate({"source": "npz", "path": str(tmp_path / "d.npz"), **keys})
    job = CheckJob(name="d", data=config.model_dump(mode="json"))
    assert data_check(job, lambda *words, **fields: None).notes == tuple(notes)
